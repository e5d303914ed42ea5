package resource_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

const (
	web80   = "outbound|80||web.shop.svc.cluster.local"
	old80   = "outbound|80||old.shop.svc.cluster.local"
	old80v4 = "outbound|80|IPv4|old.shop.svc.cluster.local"
	old80v6 = "outbound|80|IPv6|old.shop.svc.cluster.local"
)

// A resource that was built for an object is kept while the object is the same, and shared
// by proxies with the same features.
func TestBuiltOnce(t *testing.T) {
	h := newTestMesh(parts()...)
	source := resource.New(h)
	before, _ := source.Current()
	if again, _ := source.Current(); again != before {
		t.Error("another snapshot of the same mesh")
	}
	one := client(withAgent)
	other := client(withAgent, func(p *xds.Proxy) { p.Namespace, p.ServiceAccount = "blog", "x" })
	names := map[string]string{web80: xds.EndpointType, "http|10.96.0.1:80": xds.ClusterType, "tcp|10.96.0.3:6379": xds.ClusterType,
		"routed/80.routed.shop.svc.cluster.local": xds.VirtualHostType, "virtualOutbound": xds.ListenerType, "tcp|10.244.0.4:6379": xds.ClusterType}
	first := map[string]*xds.Resource{}
	for name, typeURL := range names {
		first[name] = before.Named(one, typeURL, name).Resource
		if got := before.Named(other, typeURL, name).Resource; got != first[name] {
			t.Errorf("%s is built for each proxy", name)
		}
	}
	h.builder.Set(pod("web-3", "web", "10.244.0.9"))
	after, _ := source.Current()
	changed := []string{web80} // the cluster is the same: its endpoints come apart from it
	for name, typeURL := range names {
		got := after.Named(one, typeURL, name).Resource
		switch {
		case slices.Contains(changed, name):
			if got.Version == first[name].Version {
				t.Errorf("%s has not changed", name)
			}
		case got.Version != first[name].Version:
			t.Errorf("%s has changed", name)
		case name != "http|10.96.0.1:80" && !strings.HasPrefix(name, "routed/") && got != first[name]:
			t.Errorf("%s was built again", name)
		}
	}
}

// Two control planes send the same bytes.
func TestDeterministic(t *testing.T) {
	a, b := goldenCases(t), goldenCases(t)
	for name := range a {
		for i, n := range a[name] {
			if n.Resource.Version != b[name][i].Resource.Version || n.Resource.Version == "" {
				t.Errorf("%s: %s has versions %q and %q", name, n.Resource.Name, n.Resource.Version, b[name][i].Resource.Version)
			}
		}
	}
}

// A proxy gets nothing of a service that is not visible to it: neither endpoints nor their
// identities.
func TestVisibility(t *testing.T) {
	v := snapshot(t, parts()...)
	p := client()
	inside := client(func(p *xds.Proxy) { p.Namespace, p.ServiceAccount = "vault", "x" })
	for _, name := range []string{"http|10.96.0.66:80", "raw|10.96.0.66:80", "raw|10.244.0.66:80", "outbound|80||hidden.vault.svc.cluster.local"} {
		if got := text(t, flatten([]xds.Bundle{v.Named(p, xds.ClusterType, name)}, xds.ClusterType)); strings.Contains(got, "hidden") || strings.Contains(got, "spiffe") {
			t.Errorf("%s: %s", name, got)
		}
		if got := text(t, flatten([]xds.Bundle{v.Named(inside, xds.ClusterType, name)}, xds.ClusterType)); !strings.Contains(got, "spiffe://cluster.local/ns/vault/sa/hidden") {
			t.Errorf("%s, of the same namespace: %s", name, got)
		}
	}
	endpoints := v.Named(p, xds.EndpointType, "outbound|80||hidden.vault.svc.cluster.local").Resource
	if got := text(t, []xds.Dependency{{Type: xds.EndpointType, Resource: endpoints}}); strings.Contains(got, "10.244") {
		t.Errorf("endpoints: %s", got)
	}
	for _, typeURL := range types {
		if got := text(t, flatten(v.Wildcard(p, typeURL, nil), typeURL)); strings.Contains(got, "hidden") || strings.Contains(got, "10.96.0.66") {
			t.Errorf("%s: %s", typeURL, got)
		}
	}
}

// A proxy that claims a pod which its certificate is not for gets no listener for plain text;
// nor does one that is not in the mesh (yet).
func TestListenersOfAnother(t *testing.T) {
	v := snapshot(t, parts()...)
	plain := func(p *xds.Proxy) bool {
		return strings.Contains(text(t, []xds.Dependency{{Type: xds.ListenerType, Resource: v.Named(p, xds.ListenerType, "virtualInbound").Resource}}), "name: app-8080\n")
	}
	if !plain(client()) {
		t.Error("the pod itself has no plain port")
	}
	for name, change := range map[string]func(*xds.Proxy){
		"another account":   func(p *xds.Proxy) { p.ServiceAccount = "db" },
		"another namespace": func(p *xds.Proxy) { p.Namespace = "vault" },
		"not known":         func(p *xds.Proxy) { p.ID, p.Addresses = "sidecar~10.9.9.9~new.shop~x", addresses("10.9.9.9") },
	} {
		if plain(client(change)) {
			t.Errorf("%s: plain connections to port 8080 are taken", name)
		}
	}
}

// The listeners go with the port numbers of the mesh, not with its services.
func TestListenersOfManyServices(t *testing.T) {
	count := func(n int) int {
		var all []mesh.Part
		for i := range n {
			all = append(all, service(fmt.Sprintf("s%d", i), "web", fmt.Sprintf("10.100.%d.%d", i/250, i%250), port(80, mesh.HTTP), port(6379, mesh.TCP)))
		}
		size := 0
		v := snapshot(t, all...)
		for _, n := range flatten(v.Wildcard(client(), xds.ListenerType, nil), xds.ListenerType) {
			size += len(n.Resource.Body.Value)
		}
		if got := flatten(v.Wildcard(client(), xds.ClusterType, nil), xds.ClusterType); len(got) != 2 { // see fixedClusters
			t.Errorf("%d services: %d clusters", n, len(got))
		}
		return size
	}
	if few, many := count(1), count(1000); few != many {
		t.Errorf("%d bytes with one service, %d with 1000", few, many)
	}
}

// Diff reports every resource that differs.
func TestDiff(t *testing.T) { testDiff(t, mesh.Config{}) }

// So it does where requests are counted, which depends on the services of a port, and traced, which
// depends on the collector's service.
func TestDiffWithTelemetry(t *testing.T) { testDiff(t, observed(t)) }

func testDiff(t *testing.T, config mesh.Config) {
	h := newTestMeshOf(config, parts()...)
	source := resource.New(h)
	hidden := service("hidden", "hidden", "10.96.0.66", port(80, mesh.HTTP))
	hidden.Namespace = "vault"
	type step struct {
		name   string
		change func()
	}
	steps := []step{
		{"a policy", func() { h.builder.Set(&mesh.PolicySpec{Name: "all", Namespace: "shop", Mode: mesh.ModeStrict}) }},
		{"a new pod", func() { h.builder.Set(pod("web-9", "web", "10.244.0.9")) }},
		{"a pod at a subscribed address", func() { h.builder.Set(pod("x", "x", "10.9.9.9")) }},
		{"a pod gone", func() {
			h.builder.Delete((&mesh.WorkloadSpec{Workload: mesh.Workload{Name: "db-1", Namespace: "shop"}}).Key())
		}},
		{"a service seen", func() { h.builder.Set(hidden) }},
		{"a service at an address", func() { h.builder.Set(service("y", "old", "10.9.9.8", port(99, mesh.TCP))) }},
		{"another protocol", func() { h.builder.Set(service("old", "old", "10.96.0.2", port(80, mesh.ServerFirst))) }},
		{"a backend that was missing", func() { h.builder.Set(service("nowhere", "old", "10.96.0.7", port(80, mesh.HTTP))) }},
		{"an endpoint moved", func() { h.builder.Set(slice("old", "10.244.7.1")) }},
		{"an endpoint moved again", func() { h.builder.Set(slice("old", "10.244.7.2")) }},
		{"another address", func() { h.builder.Set(service("old", "old", "10.96.0.9", port(80, mesh.ServerFirst))) }},
		{"an IPv6 address more", func() { h.builder.Set(service("old", "old", "10.96.0.9 fd96::9", port(80, mesh.HTTP))) }},
		{"the IPv6 address first", func() { h.builder.Set(service("old", "old", "fd96::9 10.96.0.9", port(80, mesh.HTTP))) }},
		{"an address that another has", func() { h.builder.Set(service("a", "old", "10.96.0.9", port(79, mesh.TCP))) }},
		{"limits", func() { h.builder.Set(policyFor("web", mesh.BackendPolicy{Limits: mesh.Limits{Connections: 7}})) }},
		{"faults", func() {
			h.builder.Set(policyFor("web", mesh.BackendPolicy{Faults: mesh.Faults{Delay: 1, DelayPercent: 100}}))
		}},
		{"more faults", func() {
			h.builder.Set(policyFor("web", mesh.BackendPolicy{Faults: mesh.Faults{Delay: 2, DelayPercent: 100}}))
		}},
		{"faults gone", func() { h.builder.Delete(policyFor("web", mesh.BackendPolicy{}).Key()) }},
		{"a route gone", func() { h.builder.Delete((&mesh.RouteSpec{Name: "r", Namespace: "shop"}).Key()) }},
		{"the collector", func() { h.builder.Set(service("otel", "old", "10.96.0.10", port(4317, mesh.GRPC))) }},
		{"and has no more", func() { h.builder.Delete((&mesh.ServiceSpec{Name: "a", Namespace: "shop"}).Key()) }},
		{"nothing", func() {}},
	}
	if config.Telemetry.Metrics {
		steps = append(steps,
			step{"an endpoint of a service without a selector", func() {
				h.builder.Set(&mesh.ServiceSpec{Name: "byhand", Namespace: "shop", Addresses: addresses("10.96.0.11"), Ports: []mesh.PortSpec{port(80, mesh.HTTP)}})
			}},
			step{"which is a pod with a proxy", func() {
				h.builder.Set(&mesh.SliceSpec{Name: "byhand-1", Namespace: "shop", Service: "byhand", Ports: []mesh.SlicePort{{Name: "p80", Number: 8080}},
					Endpoints: []mesh.SliceEndpoint{{Addresses: addresses("10.244.0.1"), Ready: true}}})
			}},
			step{"a pod's labels", func() {
				h.builder.Set(pod("web-2", "web", "10.244.0.2", func(s *mesh.WorkloadSpec) { s.Labels = map[string]string{"app": "web", "version": "v2"} }))
			}})
	}
	universe := map[string][]string{
		xds.ClusterType: {"http|10.96.0.1:80", "raw|10.96.0.1:80", "tcp|10.96.0.1:80", "raw|10.244.0.9:8080", "tcp|10.244.0.9:8080", "tcp|10.96.0.1:82", "http|10.96.0.2:80", "tcp|10.96.0.3:6379", "http|10.96.0.5:80", "http|10.96.0.66:80",
			"tcp|10.244.0.66:80", "tcp|10.244.0.4:6379", "tcp|10.244.0.4:1", "tcp|10.9.9.9:99", "http|10.9.9.9:80", "tcp|10.9.9.8:99", web80, "http|10.244.0.9:8080", "tracing",
			"http|[fd96::9]:80", "http|10.96.0.9:80", "http|10.96.0.9:79", "http|10.96.0.11:80", old80, old80v4, old80v6, "http|[fd96::5]:80"},
		xds.EndpointType:    {web80, old80, old80v4, old80v6, "outbound|6379||db.shop.svc.cluster.local", "outbound|80||hidden.vault.svc.cluster.local"},
		xds.VirtualHostType: {"routed/80.routed.shop.svc.cluster.local", "routed/80.web.shop.svc.cluster.local", "routed/80-ipv6.routed.shop.svc.cluster.local"},
		xds.RouteType:       {web80, "outbound|80||routed.shop.svc.cluster.local"},
		xds.ListenerType:    {"virtualInbound", "virtualOutbound", "late", "virtualOutbound-early", "outbound_80", "outbound_10.96.0.2_80", "web:81"},
	}
	versions := func(v xds.Snapshot) map[[2]string]string {
		out := map[[2]string]string{}
		for typeURL, names := range universe {
			for _, name := range names {
				if r := v.Named(client(relayed), typeURL, name).Resource; r != nil {
					out[[2]string{typeURL, name}] = r.Version
				}
			}
		}
		return out
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			old, _ := source.Current()
			before := versions(old)
			step.change()
			now, _ := source.Current()
			after := versions(now)
			changes, ok := now.Diff(old)
			if !ok {
				t.Fatal("the changes are not known")
			}
			different := false
			for typeURL, lost := range setsDiffer(old, now) {
				if different = true; !changes[typeURL].Wildcard {
					t.Errorf("Wildcard of %s is another set, and Diff does not report that: %v", typeURL, lost)
				}
			}
			for typeURL, names := range universe {
				for _, name := range names {
					key := [2]string{typeURL, name}
					_, named := changes[typeURL].Names[name]
					named = named || changes[typeURL].Match != nil && changes[typeURL].Match(name)
					if before[key] != after[key] {
						different = true
						if !named && !changes[typeURL].AllNames {
							t.Errorf("%s differs, and Diff does not report that", name)
						}
					}
				}
			}
			if different == (step.name == "nothing") {
				t.Errorf("resources differ: %t", different)
			}
			if step.name == "nothing" && len(changes) > 0 {
				t.Errorf("%v", changes)
			}
		})
	}
}

// setsDiffer returns by type the names that Wildcard has in one snapshot only, for a proxy
// with declared and prewarmed clusters, and for one of another namespace.
func setsDiffer(old, now xds.Snapshot) map[string][]string {
	clients := []*xds.Proxy{
		client(relayed, func(p *xds.Proxy) { p.Metadata[contract.MetadataPrewarm] = "old,y:99,hidden.vault" }),
		client(func(p *xds.Proxy) { p.Namespace, p.ID = "bank", "x" }),
	}
	prewarm := []string{"http|10.96.0.2:80", "outbound|99||y.shop.svc.cluster.local"}
	out := map[string][]string{}
	for _, p := range clients {
		for _, typeURL := range []string{xds.ListenerType, xds.ClusterType, xds.EndpointType, xds.RouteType, xds.VirtualHostType} {
			count := map[string]int{}
			for _, a := range old.Wildcard(p, typeURL, prewarm) {
				count[a.Resource.Name] |= 1
			}
			for _, a := range now.Wildcard(p, typeURL, prewarm) {
				count[a.Resource.Name] |= 2
			}
			for name, in := range count {
				if in != 3 {
					out[typeURL] = append(out[typeURL], name)
				}
			}
		}
	}
	return out
}

// A resource that Wildcard returned is found by its name: so a stream looks up what became of
// it, and writes a complete list of the state of the world.
func TestNamedReturnsWhatWildcardReturns(t *testing.T) {
	shared := service("z-shares-an-address", "db", "10.96.0.3", port(7000, mesh.TCP))
	six := service("six", "db", "fd96::6 10.96.0.6", port(6379, mesh.TCP), port(contract.ReadinessPort, mesh.TCP))
	v := snapshot(t, append(parts(), shared, six)...)
	for name, change := range map[string]func(*xds.Proxy){
		"one family":    func(*xds.Proxy) {},
		"two families":  func(p *xds.Proxy) { p.Addresses = addresses("10.244.0.1 fd44::1") },
		"no HTTP there": func(p *xds.Proxy) { p.Namespace, p.ID = "bank", "x" },
	} {
		for _, typeURL := range types {
			p := client(withAgent, change)
			for _, b := range v.Wildcard(p, typeURL, nil) {
				if got := v.Named(p, typeURL, b.Resource.Name).Resource; got == nil || got.Version != b.Resource.Version {
					t.Errorf("%s: %s of %s is not the resource of that name: %v", name, b.Resource.Name, typeURL, got)
				}
			}
		}
	}
}

// The change of an endpoint affects its clusters, and no listeners: those would be compared
// for every proxy of the mesh.
func TestDiffOfAnEndpoint(t *testing.T) {
	h := newTestMesh(append(parts(), slice("routed", "10.244.7.1"))...)
	source := resource.New(h)
	old, _ := source.Current()
	h.builder.Set(slice("routed", "10.244.7.2"))
	now, _ := source.Current()
	changes, ok := now.Diff(old)
	if !ok {
		t.Fatal("the changes are not known")
	}
	for typeURL, c := range changes {
		if typeURL != xds.ClusterType && typeURL != xds.EndpointType || c.Wildcard || c.AllNames {
			t.Errorf("%s: %+v", typeURL, c)
		}
	}
	if _, named := changes[xds.EndpointType].Names["outbound|80||routed.shop.svc.cluster.local"]; !named {
		t.Errorf("the endpoints are not named: %v", changes)
	}
}

// slice is an endpoint of a service's port 80, of which nothing else is known.
func slice(service, at string) *mesh.SliceSpec {
	return &mesh.SliceSpec{Name: service + "-1", Namespace: "shop", Service: service,
		Ports: []mesh.SlicePort{{Name: "p80", Number: 80}}, Endpoints: []mesh.SliceEndpoint{{Addresses: addresses(at), Ready: true}}}
}

// The first answer for an address of the services' network may wait for its service, or its
// port; no other does.
func TestAddressesThatMayGetAService(t *testing.T) {
	v := snapshot(t, append(parts(), service("six", "db", "fd96::6", port(6379, mesh.TCP)))...)
	for name, held := range map[string]bool{
		"http|10.96.0.12:80": true, "tcp|10.96.0.12:6379": true, "raw|10.96.0.12:80": true, "tcp|[fd96::7]:1": true,
		"http|10.96.0.1:79":  true,  // a service, not a port
		"http|10.96.0.66:80": false, // a service that the proxy may not see
		"http|10.96.0.1:80":  false, "tcp|10.244.0.4:1": false, "tcp|10.9.9.9:99": false, "tcp|10.97.0.1:80": false, "tcp|[fd97::7]:1": false,
	} {
		b := v.Named(client(), xds.ClusterType, name)
		if b.Resource == nil || b.Hold > 0 != held {
			t.Errorf("%s: held for %s", name, b.Hold)
		}
	}
}
