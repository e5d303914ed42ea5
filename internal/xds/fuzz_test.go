package xds

import (
	"fmt"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// fuzzSnapshots are pushed to a fuzzed client: with everything, with nothing, with other
// versions, and with hosts that moved.
var fuzzSnapshots = []string{
	"cds base@1 *\ncds a@1 after=eds/a\ncds b@1 prewarm after=eds/a\neds a@1\nlds a@1 *\nrds a@1 after=vhds/dummy\nvhds dummy@1 *\nvhds svc@1 aliases=a,b before=cds/a",
	"",
	"cds base@2 *\ncds a@2 after=eds/b\neds b@2\nlds b@2 *\nvhds dummy@1 *\nvhds svc@2 aliases=a\nvhds b@2 before=cds/a",
	"cds base@1 *\ncds b@1 *\neds a@3\nvhds other@1 aliases=a,b before=cds/b\nvhds svc@4",
}

var (
	fuzzTypes = []string{ClusterType, EndpointType, ListenerType, RouteType, VirtualHostType, TypePrefix + "x.Y"}
	fuzzNames = []string{"a", "b", "svc", "base", "dummy", "*", "", "none"}
)

// steps turns bytes into requests: one byte for the kind, two for the names.
func steps(data []byte) (out []any) {
	for len(data) >= 3 {
		what, names, more := data[0], data[1], data[2]
		data = data[3:]
		if what >= 0xf0 {
			out = append(out, int(names)%len(fuzzSnapshots))
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
		for _, diffs := range []bool{false, true} {
			fuzzOne(t, data, diffs)
		}
	})
}

func fuzzOne(t *testing.T, data []byte, diffs bool) {
	var snapshots []Snapshot
	for i, text := range fuzzSnapshots {
		v := mustSnapshot(t, fmt.Sprint(i), text)
		v.diffs = diffs
		snapshots = append(snapshots, v)
	}
	c := &client{
		proxy: &Proxy{ID: "x", OnDemand: true}, snapshot: snapshots[0], maxNames: 50, maxPeerNames: 60, peer: &peer{}, unsolicited: true,
		prewarm: NewPrewarmCache(), types: map[string]*subscription{}, recorded: map[string]bool{},
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
			c.dropOverLimit(b)
			checkMessages(t, c, messages)
			checkAnswered(t, step, messages)
		case int:
			changes, known := new(diffCache).between(c.snapshot, snapshots[step])
			checkMessages(t, c, d.write(c, c.push(snapshots[step], changes, known)))
		}
	}
	checkUpToDate(t, c)
}

// checkMessages: no resource comes twice, no cluster is removed, endpoints follow clusters.
func checkMessages(t *testing.T, c *client, messages []*discovery.DeltaDiscoveryResponse) {
	t.Helper()
	seen := map[key]bool{}
	endpoints := map[string]bool{}
	for _, m := range slices.Backward(messages) {
		for _, r := range m.GetResources() {
			k := key{m.GetTypeUrl(), r.GetName()}
			if seen[k] {
				t.Errorf("%v comes twice", k)
			}
			seen[k] = true
			switch k.typeURL {
			case EndpointType:
				endpoints[k.name] = true
			case ClusterType:
				for _, n := range c.named(ClusterType, k.name).After {
					if !endpoints[n.Resource.Name] {
						t.Errorf("the endpoints %s do not follow the cluster %s", n.Resource.Name, k.name)
					}
				}
			}
		}
		for _, name := range m.GetRemovedResources() {
			k := key{m.GetTypeUrl(), name}
			if k.typeURL == ClusterType {
				t.Errorf("cluster %q is removed", name)
			}
			if seen[k] {
				t.Errorf("%v is sent and removed", k)
			}
			seen[k] = true
		}
	}
}

// checkAnswered: each subscribed name is in the messages, as a resource, an alias or removed.
func checkAnswered(t *testing.T, r *discovery.DeltaDiscoveryRequest, messages []*discovery.DeltaDiscoveryResponse) {
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
			t.Errorf("%q of %s is subscribed, and not answered", name, shortType(r.GetTypeUrl()))
		}
	}
}

// checkUpToDate: whatever happened before, the client has this snapshot's resources of the
// names that it subscribed to.
func checkUpToDate(t *testing.T, c *client) {
	t.Helper()
	for typeURL, sub := range c.types {
		for name, resource := range sub.resources {
			want := c.named(typeURL, name).Resource
			if want == nil {
				want = notFound(c.proxy, typeURL, name)
			}
			got, has := sub.sent[resource]
			if want == nil && !has {
				continue
			}
			if want == nil || !has || resource != want.Name || got != want.Version {
				t.Errorf("%s %q: sent %+v; want %+v", shortType(typeURL), name, got, want)
			}
		}
		for resource, names := range sub.aliasNames {
			for _, name := range names {
				if sub.resources[name] != resource {
					t.Errorf("%q is noted as an alias of %q, and served by %q", name, resource, sub.resources[name])
				}
			}
		}
	}
}
