package xds

import (
	"fmt"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// fuzzSnapshots are pushed to a fuzzed client: with all resources, with none, with other versions, and
// with virtual hosts that have moved.
var fuzzSnapshots = []string{
	"cds base@1 *\ncds a@1 after=eds/a\ncds b@1 prewarm after=eds/a\neds a@1\nlds a@1 *\nrds a@1 after=vhds/dummy\nvhds dummy@1 *\nvhds svc@1 before=cds/a",
	"",
	"cds base@2 *\ncds a@2 after=eds/b\neds b@2\nlds b@2 *\nvhds dummy@1 *\nvhds svc@2\nvhds b@2 before=cds/a",
	"cds base@1 *\ncds b@1 *\neds a@3\nvhds other@1 before=cds/b\nvhds svc@4",
}

var (
	fuzzTypes = []string{ClusterType, EndpointType, ListenerType, RouteType, VirtualHostType, TypePrefix + "x.Y"}
	fuzzNames = []string{"a", "b", "svc", "base", "dummy", "*", "", "none"}
)

// steps converts bytes to requests: one byte for the kind, two for the names.
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
	c := fuzzClient(snapshots[0])
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
	checkKept(t, c)
}

// FuzzStateOfTheWorld: for any requests, a message contains each resource at most once, and in the end
// the client has all resources to which it subscribed.
func FuzzStateOfTheWorld(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 0, 0, 4, 3, 0, 0xf0, 1, 0, 0xf0, 2, 0, 0xf0, 3, 0})
	f.Add([]byte{0, 1, 0, 1, 1, 0, 0xf0, 1, 0, 0, 0x21, 1, 0xf0, 0, 0, 0, 0x20, 1})
	f.Add([]byte{1, 3, 1, 1, 2, 2, 1, 0, 1, 3, 0xff, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var snapshots []Snapshot
		for i, text := range fuzzSnapshots {
			snapshots = append(snapshots, mustSnapshot(t, fmt.Sprint(i), text))
		}
		c := fuzzClient(snapshots[0])
		c.proxy.GRPC, c.unsolicited = true, false
		for ; len(data) >= 3; data = data[3:] {
			what, bits, nonce := data[0], data[1], data[2]
			if what >= 0xf0 {
				changes, known := new(diffCache).between(c.snapshot, snapshots[int(bits)%len(snapshots)])
				checkOnce(t, sotw{}.write(c, c.push(snapshots[int(bits)%len(snapshots)], changes, known)))
				continue
			}
			r := &discovery.DiscoveryRequest{TypeUrl: fuzzTypes[int(what)%len(fuzzTypes)]}
			for i, name := range fuzzNames {
				if bits>>i&1 == 1 {
					r.ResourceNames = append(r.ResourceNames, name)
				}
			}
			switch sub := c.types[r.GetTypeUrl()]; nonce % 3 {
			case 1: // with the nonce of the last message
				if sub != nil {
					r.ResponseNonce = sub.acks.nonce
				}
			case 2:
				r.ResponseNonce = fmt.Sprint(nonce) // with the nonce of an older message, or of none
			}
			answer, err := sotw{}.read(c, r)
			if err != nil {
				t.Fatal(err)
			}
			checkOnce(t, sotw{}.write(c, answer))
			c.dropOverLimit(answer)
		}
		checkUpToDate(t, c)
		checkKept(t, c)
	})
}

func fuzzClient(v Snapshot) *client {
	return &client{
		proxy: &Proxy{ID: "x"}, snapshot: v, maxNames: 50, maxPeerNames: 60, peer: &peer{}, unsolicited: true,
		prewarm: NewPrewarmCache(), types: map[string]*subscription{},
	}
}

// checkOnce requires that no resource occurs twice in a message.
func checkOnce(t *testing.T, messages []*discovery.DiscoveryResponse) {
	t.Helper()
	for _, m := range messages {
		seen := map[string]bool{}
		for _, body := range m.GetResources() {
			if seen[string(body.GetValue())] {
				t.Errorf("a resource of %s comes twice", shortType(m.GetTypeUrl()))
			}
			seen[string(body.GetValue())] = true
		}
	}
}

// checkKept requires that the counts that limits use agree with the stored names.
func checkKept(t *testing.T, c *client) {
	t.Helper()
	for typeURL, sub := range c.types {
		bytes := 0
		for name := range sub.names {
			bytes += len(name)
		}
		if bytes != sub.bytes {
			t.Errorf("%s: %d bytes of names are counted as %d", shortType(typeURL), bytes, sub.bytes)
		}
	}
	if n := c.count(countSubscribed); n > c.maxNames {
		t.Errorf("%d names are kept; want at most %d", n, c.maxNames)
	}
}

// FuzzPrewarmCache: for any use by workloads, the cache stays within its limits and contains each name
// once.
func FuzzPrewarmCache(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 16, 1, 32, 2, 0, 1, 64, 5})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := NewPrewarmCache()
		c.maxWorkloads, c.maxOfAccount, c.maxNames = 6, 3, 4
		for ; len(data) >= 2; data = data[2:] {
			w := Workload{Namespace: fmt.Sprint(data[0] & 3), Name: fmt.Sprint(data[0] >> 2 & 15)}
			if data[0]&0x80 == 0 {
				c.Add(w, []string{fmt.Sprint(data[1] & 7), fmt.Sprint(data[1] >> 3 & 7)})
			}
			if got := c.Get(w); len(got) > c.maxNames || len(slices.Compact(got)) != len(got) {
				t.Fatalf("%q: want at most %d, each once", got, c.maxNames)
			}
			of := map[string]int{}
			for w := range c.entries {
				of[w.Namespace]++
			}
			for namespace, n := range of {
				if n > c.maxOfAccount {
					t.Fatalf("account %s has %d workloads; want at most %d", namespace, n, c.maxOfAccount)
				}
			}
			if len(c.entries) > c.maxWorkloads {
				t.Fatalf("%d workloads; want at most %d", len(c.entries), c.maxWorkloads)
			}
		}
	})
}

// checkMessages requires that no resource occurs twice, no cluster is removed, and endpoints follow
// their clusters.
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

// checkAnswered requires that each subscribed name is in the messages, as a resource or as a removal.
func checkAnswered(t *testing.T, r *discovery.DeltaDiscoveryRequest, messages []*discovery.DeltaDiscoveryResponse) {
	t.Helper()
	answered := map[string]bool{}
	for _, m := range messages {
		if m.GetTypeUrl() != r.GetTypeUrl() {
			continue
		}
		for _, one := range m.GetResources() {
			answered[one.GetName()] = true
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

// checkUpToDate requires that, after any history, the client has this snapshot's resources for all
// names to which it subscribed.
func checkUpToDate(t *testing.T, c *client) {
	t.Helper()
	for typeURL, sub := range c.types {
		for name := range sub.names {
			want := c.named(typeURL, name).Resource
			if want == nil {
				want = notFound(c.proxy, typeURL, name)
			}
			got, has := sub.sent[name]
			if want == nil && !has {
				continue
			}
			if want == nil || !has || got != want.Version {
				t.Errorf("%s %q: sent %+v; want %+v", shortType(typeURL), name, got, want)
			}
		}
	}
}
