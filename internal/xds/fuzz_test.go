package xds

import (
	"fmt"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// hurdles are views that a fuzzed client meets: with everything, with nothing, with other
// versions, and with hosts that moved.
var hurdles = []string{
	"cds base@1 *\ncds a@1 behind=eds/a\ncds b@1 wanted behind=eds/a\neds a@1\nlds a@1 *\nrds a@1 behind=vhds/dummy\nvhds dummy@1 *\nvhds svc@1 asked=a,b before=cds/a",
	"",
	"cds base@2 *\ncds a@2 behind=eds/b\neds b@2\nlds b@2 *\nvhds dummy@1 *\nvhds svc@2 asked=a\nvhds b@2 before=cds/a",
	"cds base@1 *\ncds b@1 *\neds a@3\nvhds other@1 asked=a,b before=cds/b\nvhds svc@4",
}

var (
	fuzzTypes = []string{ClusterType, EndpointType, ListenerType, RouteType, VirtualHostType, TypePrefix + "x.Y"}
	fuzzNames = []string{"a", "b", "svc", "base", "dummy", "*", "", "none"}
)

// steps turns bytes into requests: one byte says what, the next ones with which names.
func steps(data []byte) (out []any) {
	for len(data) >= 3 {
		what, names, more := data[0], data[1], data[2]
		data = data[3:]
		if what >= 0xf0 {
			out = append(out, int(names)%len(hurdles))
			continue
		}
		r := &discovery.DeltaDiscoveryRequest{TypeUrl: fuzzTypes[int(what)%len(fuzzTypes)]}
		for i, name := range fuzzNames {
			if names>>i&1 == 1 {
				r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
			}
			if more>>i&1 == 1 && what&0x40 == 0 {
				r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, name)
			}
			if more>>i&1 == 1 && what&0x40 != 0 {
				if r.InitialResourceVersions == nil {
					r.InitialResourceVersions = map[string]string{}
				}
				r.InitialResourceVersions[name] = "1"
			}
		}
		if what&0x80 != 0 {
			r.ResponseNonce = fmt.Sprint(what & 0x1f)
		}
		out = append(out, r)
	}
	return out
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 0, 0, 4, 3, 0, 0xf0, 1, 0, 0xf0, 2, 0, 0xf0, 3, 0})
	f.Add([]byte{0, 1, 0, 1, 1, 0, 0xf0, 1, 0, 0, 1, 1, 0xf0, 0, 0, 0, 0x20, 1})
	f.Add([]byte{0x40, 0x21, 0xff, 0x44, 3, 0xff, 0xf0, 3, 0, 0xf0, 1, 0})
	f.Add([]byte{3, 1, 0, 0x84, 0, 0, 4, 0, 0, 5, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, differ := range []bool{false, true} {
			fuzzOne(t, data, differ)
		}
	})
}

func fuzzOne(t *testing.T, data []byte, differ bool) {
	var views []View
	for i, text := range hurdles {
		v := mustView(t, fmt.Sprint(i), text)
		views = append(views, v)
		if differ {
			views[i] = &differView{v}
		}
	}
	c := &client{
		proxy: &Proxy{ID: "x", OnDemand: true}, view: views[0], maxNames: 50, unasked: true,
		memory: NewMemory(MemoryLimits{}), types: map[string]*subscription{}, stored: map[string]bool{},
	}
	d := delta{100}
	for _, step := range steps(data) {
		switch step := step.(type) {
		case *discovery.DeltaDiscoveryRequest:
			b, err := d.read(c, step)
			if err != nil {
				t.Fatal(err)
			}
			messages := d.write(c, b)
			c.written(b)
			keepsTheRules(t, c, messages)
			answersAll(t, step, messages)
		case int:
			changes, known := new(changes).between(c.view, views[step])
			keepsTheRules(t, c, d.write(c, c.refresh(views[step], changes, known)))
		}
	}
	isUpToDate(t, c)
}

// keepsTheRules: nothing is there twice, and no cluster is taken back.
func keepsTheRules(t *testing.T, c *client, messages []*discovery.DeltaDiscoveryResponse) {
	t.Helper()
	seen := map[key]bool{}
	endpoints := map[string]bool{}
	for _, m := range slices.Backward(messages) {
		for _, r := range m.GetResources() {
			k := key{m.GetTypeUrl(), r.GetName()}
			if seen[k] {
				t.Errorf("%v is there twice", k)
			}
			seen[k] = true
			switch k.typeURL {
			case EndpointType:
				endpoints[k.name] = true
			case ClusterType:
				for _, n := range c.named(ClusterType, k.name).Behind {
					if !endpoints[n.Resource.Name] {
						t.Errorf("the endpoints %s do not follow the cluster %s", n.Resource.Name, k.name)
					}
				}
			}
		}
		for _, name := range m.GetRemovedResources() {
			k := key{m.GetTypeUrl(), name}
			if k.typeURL == ClusterType {
				t.Errorf("cluster %q is told as removed", name)
			}
			if seen[k] {
				t.Errorf("%v is there and removed", k)
			}
			seen[k] = true
		}
	}
}

// answersAll: each name asked for is in the messages, as a resource, an alias or removed.
func answersAll(t *testing.T, r *discovery.DeltaDiscoveryRequest, messages []*discovery.DeltaDiscoveryResponse) {
	t.Helper()
	answered := map[string]bool{}
	for _, m := range messages {
		if m.GetTypeUrl() != r.GetTypeUrl() {
			continue
		}
		for _, one := range m.GetResources() {
			answered[one.GetName()] = true
			for _, alias := range one.GetAliases() {
				answered[alias] = true
			}
		}
		for _, name := range m.GetRemovedResources() {
			answered[name] = true
		}
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		if name != "*" && !answered[name] {
			t.Errorf("%q is asked for in %s, and not answered", name, short(r.GetTypeUrl()))
		}
	}
}

// isUpToDate: whatever the way here was, the client has what this view says of the names
// that it asked for.
func isUpToDate(t *testing.T, c *client) {
	t.Helper()
	for typeURL, sub := range c.types {
		for name, resource := range sub.asked {
			want := c.named(typeURL, name).Resource
			if want == nil {
				want = absent(c.proxy, typeURL, name)
			}
			got := sub.told[resource]
			if want == nil && got == nil {
				continue
			}
			if want == nil || got == nil || got.Name != want.Name || got.Version != want.Version {
				t.Errorf("%s %q: told %+v; want %+v", short(typeURL), name, got, want)
			}
		}
		for spelled, names := range sub.spellings {
			for _, name := range names {
				if sub.asked[name] != spelled {
					t.Errorf("%q is noted as a spelling of %q, and answered by %q", name, spelled, sub.asked[name])
				}
			}
		}
	}
}
