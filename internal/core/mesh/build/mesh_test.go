package build

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/mesh"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func svc(namespace, name, vip string, ports ...mesh.PortSpec) *mesh.ServiceSpec {
	s := &mesh.ServiceSpec{Namespace: namespace, Name: name, Ports: ports}
	if vip != "" {
		s.Addresses = []netip.Addr{addr(vip)}
	}
	return s
}

func port(name string, number uint16) mesh.PortSpec {
	return mesh.PortSpec{Port: mesh.Port{Name: name, Number: number, Protocol: mesh.ProtocolOf("", name, "")}}
}

func pod(namespace, name, ip string, labels ...string) *mesh.WorkloadSpec {
	w := &mesh.WorkloadSpec{Workload: mesh.Workload{Namespace: namespace, Name: name, ServiceAccount: "default", Addresses: []netip.Addr{addr(ip)}}, Ready: true}
	for i := 0; i < len(labels); i += 2 {
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		w.Labels[labels[i]] = labels[i+1]
	}
	return w
}

func slice(namespace, name, service string, p mesh.SlicePort, ips ...string) *mesh.SliceSpec {
	s := &mesh.SliceSpec{Namespace: namespace, Name: name, Service: service, Ports: []mesh.SlicePort{p}}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, mesh.SliceEndpoint{Addresses: []netip.Addr{addr(ip)}, Ready: true})
	}
	return s
}

func selecting(s *mesh.ServiceSpec, selector ...string) *mesh.ServiceSpec {
	s.Selector = map[string]string{}
	for i := 0; i < len(selector); i += 2 {
		s.Selector[selector[i]] = selector[i+1]
	}
	return s
}

func TestResolve(t *testing.T) {
	db := svc("shop", "db", "", port("tcp-db", 5432))
	db.Headless = true
	hidden := svc("shop", "hidden", "10.0.0.3", port("http", 80))
	hidden.ExportTo = []string{"."}
	some := svc("shop", "some", "10.0.0.4", port("http", 80))
	some.ExportTo = []string{"pay"}
	unexported := svc("shop", "unexported", "10.0.0.5", port("http", 80))
	unexported.ExportTo = []string{"~"}
	m := Mesh(mesh.Config{}, svc("shop", "reviews", "10.0.0.1", port("http", 80)), db, hidden, some, unexported,
		&mesh.SliceSpec{Namespace: "shop", Name: "db-x", Service: "db", Ports: []mesh.SlicePort{{Name: "tcp-db", Number: 5432}}, Endpoints: []mesh.SliceEndpoint{
			{Addresses: []netip.Addr{addr("10.1.0.1")}, Hostname: "db-0"},
			{Addresses: []netip.Addr{addr("10.1.0.2")}, Hostname: "db-1"},
		}})
	tests := map[string]struct{ name, from, want string }{
		"a short name is of the client's namespace":    {"reviews", "shop", "reviews.shop.svc.cluster.local"},
		"a short name of another namespace is unknown": {"reviews", "pay", ""},
		"with the namespace":                           {"reviews.shop", "pay", "reviews.shop.svc.cluster.local"},
		"with svc":                                     {"reviews.shop.svc", "pay", "reviews.shop.svc.cluster.local"},
		"the whole name":                               {"reviews.shop.svc.cluster.local", "pay", "reviews.shop.svc.cluster.local"},
		"with a dot at the end and in capitals":        {"Reviews.Shop.SVC.cluster.local.", "pay", "reviews.shop.svc.cluster.local"},
		"another word than svc":                        {"reviews.shop.pod", "pay", ""},
		"another domain":                               {"reviews.shop.svc.example.org", "pay", ""},
		"an empty name":                                {"", "shop", ""},
		"a dot":                                        {".", "shop", ""},
		"one's own, not exported":                      {"hidden", "shop", "hidden.shop.svc.cluster.local"},
		"not exported":                                 {"hidden.shop", "pay", ""},
		"exported to the client":                       {"some.shop", "pay", "some.shop.svc.cluster.local"},
		"exported to others, even from its own":        {"some", "shop", ""},
		"exported to no namespace":                     {"unexported", "shop", ""},
		"a pod's name is no service":                   {"db-0.db.shop.svc", "shop", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if s := m.Resolve(tt.name, tt.from); s != nil {
				got = s.Host
			}
			if got != tt.want {
				t.Errorf("Resolve(%q, %q) = %q, want %q", tt.name, tt.from, got, tt.want)
			}
		})
	}
	for _, name := range []string{"db-1.db", "db-1.db.shop", "DB-1.db.shop.svc.cluster.local."} {
		s, endpoints := m.ResolveHostname(name, "shop")
		if s == nil || s.Name != "db" || len(endpoints) != 1 || endpoints[0].Addr != addr("10.1.0.2") {
			t.Errorf("ResolveHostname(%q) = %v, %v, want db's endpoint 10.1.0.2", name, s, endpoints)
		}
	}
	for _, name := range []string{"db-7.db", "db", "x.reviews", ""} {
		if s, endpoints := m.ResolveHostname(name, "shop"); s != nil || endpoints != nil {
			t.Errorf("ResolveHostname(%q) = %v, %v, want nothing", name, s, endpoints)
		}
	}
}

func TestLookUps(t *testing.T) {
	node := pod("kube-system", "proxy", "192.168.0.1")
	node.HostNetwork = true
	m := Mesh(mesh.Config{},
		svc("b", "one", "10.0.0.1"), svc("a", "one", "10.0.0.1"), svc("a", "two", "2001:db8::1"),
		pod("a", "p", "10.1.0.1", "app", "one"), node)
	if got := m.ByAddress(addr("10.0.0.1")); got != m.ByName("a", "one") || got == nil {
		t.Errorf("of two services with one address got %v, want the first by namespace", got)
	}
	if got := m.ByAddress(addr("::ffff:10.0.0.1")); got != m.ByName("a", "one") {
		t.Errorf("by the mapped address got %v", got)
	}
	if got := m.ByAddress(addr("2001:db8::1")); got == nil || got.Name != "two" {
		t.Errorf("by IPv6 got %v", got)
	}
	if got := m.ByAddress(addr("10.0.0.9")); got != nil {
		t.Errorf("by an unused address got %v", got)
	}
	if got := m.Workload(addr("10.1.0.1"), ""); got == nil || got != m.Pod("a", "p") {
		t.Errorf("workload by address: %v", got)
	}
	if got := m.Workload(addr("192.168.0.1"), ""); got != nil {
		t.Errorf("a pod on its node's network was found by address: %v", got)
	}
	empty := &mesh.Mesh{}
	if empty.Service("x") != nil || empty.ByAddress(addr("10.0.0.1")) != nil || empty.Workload(addr("10.0.0.1"), "") != nil || len(empty.Services()) != 0 {
		t.Error("an empty mesh has something")
	}
}

func TestServicesAgreeInAnyOrder(t *testing.T) {
	all := []mesh.Protocol{mesh.Unknown, mesh.TCP, mesh.ServerFirst, mesh.HTTP, mesh.HTTP2, mesh.GRPC, mesh.TLS}
	for _, a := range all {
		for _, b := range all {
			if mergeProtocols(a, b) != mergeProtocols(b, a) {
				t.Errorf("mergeProtocols(%q, %q) depends on the order", a, b)
			}
			for _, c := range all {
				if l, r := mergeProtocols(mergeProtocols(a, b), c), mergeProtocols(a, mergeProtocols(b, c)); l != r {
					t.Errorf("%q, %q, %q: %q or %q, by the order", a, b, c, l, r)
				}
			}
		}
	}
}

func TestPolicies(t *testing.T) {
	policy := func(namespace, name string, mode mesh.Mode, selector ...string) *mesh.PolicySpec {
		p := &mesh.PolicySpec{Namespace: namespace, Name: name, Mode: mode}
		if selector != nil {
			p.Selector = map[string]string{selector[0]: selector[1]}
		}
		return p
	}
	withPort := func(p *mesh.PolicySpec, number uint16, mode mesh.Mode) *mesh.PolicySpec {
		p.Ports = map[uint16]mesh.Mode{number: mode}
		return p
	}
	younger := policy("shop", "a", mesh.ModeDisable)
	younger.Created = younger.Created.AddDate(2020, 0, 0)
	tests := map[string]struct {
		policies []mesh.Part
		want     mesh.TLSMode
		ports    map[uint16]mesh.TLSMode
	}{
		"no declaration":                              {nil, mesh.Permissive, nil},
		"the mesh":                                    {[]mesh.Part{policy(mesh.DefaultRoot, "x", mesh.ModeStrict)}, mesh.Strict, nil},
		"the namespace, not the mesh":                 {[]mesh.Part{policy(mesh.DefaultRoot, "x", mesh.ModeStrict), policy("shop", "x", mesh.ModeDisable)}, mesh.Disable, nil},
		"another namespace":                           {[]mesh.Part{policy("pay", "x", mesh.ModeStrict)}, mesh.Permissive, nil},
		"the workload, not the namespace":             {[]mesh.Part{policy("shop", "x", mesh.ModeDisable), policy("shop", "y", mesh.ModeStrict, "app", "a")}, mesh.Strict, nil},
		"another workload":                            {[]mesh.Part{policy("shop", "y", mesh.ModeStrict, "app", "b")}, mesh.Permissive, nil},
		"a selector in the root namespace is ignored": {[]mesh.Part{policy(mesh.DefaultRoot, "y", mesh.ModeStrict, "app", "a")}, mesh.Permissive, nil},
		"the namespace leaves it to the mesh":         {[]mesh.Part{policy(mesh.DefaultRoot, "x", mesh.ModeStrict), policy("shop", "x", mesh.Unset)}, mesh.Strict, nil},
		"the workload leaves it to the namespace, but one port": {
			[]mesh.Part{policy("shop", "x", mesh.ModeStrict), withPort(policy("shop", "y", mesh.Unset, "app", "a"), 8080, mesh.ModeDisable)}, mesh.Strict,
			map[uint16]mesh.TLSMode{8080: mesh.Disable, 80: mesh.Strict}},
		"a port leaves it to the workload":       {[]mesh.Part{withPort(policy("shop", "y", mesh.ModeStrict, "app", "a"), 8080, mesh.Unset)}, mesh.Strict, map[uint16]mesh.TLSMode{8080: mesh.Strict}},
		"a permissive port of a strict workload": {[]mesh.Part{withPort(policy("shop", "y", mesh.ModeStrict, "app", "a"), 8080, mesh.ModePermissive)}, mesh.Strict, map[uint16]mesh.TLSMode{8080: mesh.Permissive}},
		"of two the older":                       {[]mesh.Part{younger, policy("shop", "b", mesh.ModeStrict)}, mesh.Strict, nil},
		"of two as old the first by name":        {[]mesh.Part{policy("shop", "b", mesh.ModeDisable), policy("shop", "a", mesh.ModeStrict)}, mesh.Strict, nil},
		"a port without a service":               {[]mesh.Part{withPort(policy("shop", "y", mesh.Unset, "app", "a"), 9999, mesh.ModeStrict)}, mesh.Permissive, map[uint16]mesh.TLSMode{9999: mesh.Strict, 8080: mesh.Permissive}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			web := selecting(svc("shop", "web", "10.0.0.1", mesh.PortSpec{Port: mesh.Port{Name: "http", Number: 80, Protocol: mesh.HTTP}, Target: 8080}), "app", "a")
			b := New(mesh.Config{})
			b.Set(web, pod("shop", "p", "10.1.0.1", "app", "a"))
			plain := b.Mesh()
			b.Set(tt.policies...)
			m := b.Mesh()
			w := m.Pod("shop", "p")
			if w.TLS != tt.want || tt.ports == nil && w.PortTLS(8080) != tt.want {
				t.Errorf("other ports %q, 8080 %q, want %q", w.TLS, w.PortTLS(8080), tt.want)
			}
			for number, want := range tt.ports {
				if got := w.PortTLS(number); got != want {
					t.Errorf("port %d: %q, want %q", number, got, want)
				}
			}
			if m.ByName("shop", "web").Endpoints[0].Workload != w {
				t.Error("the service's endpoint has another workload")
			}
			for _, p := range tt.policies {
				b.Delete(p.Key())
			}
			if diff := diffMeshes(plain, b.Mesh()); diff != "" {
				t.Errorf("policies leave something behind (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRoutesFor(t *testing.T) {
	match := func(kind mesh.TextKind, path string) mesh.Route {
		return mesh.Route{Matches: []mesh.Match{{Path: &mesh.Text{Kind: kind, Value: path}}}}
	}
	producer := &mesh.RouteSpec{Namespace: "shop", Name: "p", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}}, Rules: []mesh.Route{
		match(mesh.Prefix, "/api"), {}, match(mesh.Exact, "/api"), match(mesh.RegExp, "/a.*"), match(mesh.Prefix, "/api/v1"),
		{Matches: []mesh.Match{{Method: "GET"}, {Headers: []mesh.Pair{{Name: "a"}}}}},
	}}
	only81 := &mesh.RouteSpec{Namespace: "shop", Name: "q", Parents: []mesh.Parent{{Namespace: "shop", Name: "web", Section: "admin"}}, Rules: []mesh.Route{{}}}
	noPort := &mesh.RouteSpec{Namespace: "shop", Name: "r", Parents: []mesh.Parent{{Namespace: "shop", Name: "web", Port: 99}}, Rules: []mesh.Route{{}}}
	consumer := &mesh.RouteSpec{Namespace: "pay", Name: "c", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}}, Rules: []mesh.Route{{}}}
	m := Mesh(mesh.Config{}, svc("shop", "web", "10.0.0.1", port("http", 80), port("admin", 81)), producer, only81, noPort, consumer)
	names := func(namespace string, port uint16) []string {
		var out []string
		for _, r := range m.ByName("shop", "web").RoutesFor(namespace, port) {
			out = append(out, r.Name)
		}
		return out
	}
	all := []string{"shop/p/2", "shop/p/3", "shop/p/4", "shop/p/0", "shop/p/5", "shop/p/5", "shop/p/1"}
	for _, tt := range []struct {
		client string
		port   uint16
		want   []string
	}{{"shop", 80, all}, {"shop", 81, append(slices.Clone(all), "shop/q/0")}, {"pay", 80, []string{"pay/c/0"}}} {
		if diff := cmp.Diff(tt.want, names(tt.client, tt.port)); diff != "" {
			t.Errorf("routes for %s on port %d (-want +got):\n%s", tt.client, tt.port, diff)
		}
	}
}

func TestBackends(t *testing.T) {
	to := func(namespace, name string, port uint16) mesh.Backend {
		return mesh.Backend{Namespace: namespace, Name: name, Port: port, Weight: 1}
	}
	b := New(mesh.Config{})
	b.Set(&mesh.GrantSpec{Namespace: "pay", Name: "g", From: []mesh.GrantFrom{{Kind: mesh.KindRoute, Namespace: "shop"}}, To: []string{"log"}})
	mirrored := to("pay", "log", 80)
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80)), &mesh.RouteSpec{
		Namespace: "shop", Name: "r", Parents: []mesh.Parent{{Namespace: "shop", Name: "web"}},
		Rules: []mesh.Route{{Backends: []mesh.Backend{to("shop", "web", 80), to("shop", "v2", 80), to("shop", "web", 99)}, Filters: []mesh.Filter{{Mirror: &mirrored}}}},
	})
	hosts := func() []string {
		r := b.Mesh().ByName("shop", "web").Routes[0]
		out := []string{r.Filters[0].Mirror.Host}
		for _, b := range r.Backends {
			out = append(out, b.Host)
		}
		return out
	}
	check := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, hosts()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	const web, v2, log = "web.shop.svc.cluster.local", "v2.shop.svc.cluster.local", "log.pay.svc.cluster.local"
	check("at first", "", web, "", "")
	b.Set(svc("shop", "v2", "", port("http", 80)), svc("pay", "log", "", port("http", 80)))
	check("with the services", log, web, v2, "")
	before := b.Mesh().ByName("shop", "web")
	b.Set(slice("shop", "v2-x", "v2", mesh.SlicePort{Name: "http", Number: 8080}, "10.1.0.9"))
	if b.Mesh().ByName("shop", "web") != before {
		t.Error("an endpoint of a backend changed the service whose route leads there")
	}
	b.Delete(mesh.Key{Kind: mesh.KindService, Namespace: "pay", Name: "log"}, mesh.Key{Kind: mesh.KindService, Namespace: "shop", Name: "v2"})
	check("without them", "", web, "", "")
}

func TestWorkloadOfAnEndpoint(t *testing.T) {
	withPod := func(s *mesh.SliceSpec, name string) *mesh.SliceSpec {
		s.Endpoints[0].Pod = name
		return s
	}
	tests := map[string]struct {
		slice *mesh.SliceSpec
		want  string
	}{
		"the workload with the address": {slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.1"), "a"},
		"none":                          {slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.9"), ""},
		"the pod that the slice names":  {withPod(slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "192.168.0.1"), "node"), "node"},
		"not the pod, if the address is no more its own":       {withPod(slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.9"), "a"), ""},
		"the workload with the address, if the pod is unknown": {withPod(slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.1"), "x"), "a"},
		"not a pod on its node's network, by its address":      {slice("shop", "s", "web", mesh.SlicePort{Name: "http", Number: 80}, "192.168.0.1"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := pod("shop", "node", "192.168.0.1")
			node.HostNetwork = true
			m := Mesh(mesh.Config{}, svc("shop", "web", "10.0.0.1", port("http", 80)), tt.slice, pod("shop", "a", "10.1.0.1"), node)
			if got := title(m.ByName("shop", "web").Endpoints[0].Workload); got != tt.want {
				t.Errorf("workload %q, want %q", got, tt.want)
			}
		})
	}
}

// An endpoint that is not ready is kept if its pod is, in slices, which follow pods later, and by
// selectors.
func TestKeptEndpoints(t *testing.T) {
	tests := map[string]struct {
		change              func(*mesh.WorkloadSpec)
		bySlice, bySelector bool
	}{
		"no longer ready": {func(w *mesh.WorkloadSpec) { w.Ready, w.Kept = false, true }, true, true},
		"ready again":     {func(w *mesh.WorkloadSpec) { w.Kept = true }, true, false},
		"ready":           {func(*mesh.WorkloadSpec) {}, false, false},
		"not ready":       {func(w *mesh.WorkloadSpec) { w.Ready = false }, false, false},
		"terminating":     {func(w *mesh.WorkloadSpec) { w.Ready, w.Kept, w.Terminating = false, true, true }, false, false},
		"not there yet":   {nil, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			unready := slice("shop", "s", "sliced", mesh.SlicePort{Name: "http", Number: 80}, "10.1.0.1")
			unready.Endpoints[0].Ready = false
			parts := []mesh.Part{svc("shop", "sliced", "10.0.0.1", port("http", 80)), unready, selecting(svc("shop", "selected", "10.0.0.2", port("http", 80)), "app", "a")}
			if tt.change != nil {
				w := pod("shop", "a", "10.1.0.1", "app", "a")
				tt.change(w)
				parts = append(parts, w)
			}
			m := Mesh(mesh.Config{}, parts...)
			if got := m.ByName("shop", "sliced").Endpoints[0].Kept; got != tt.bySlice {
				t.Errorf("by a slice: kept %t, want %t", got, tt.bySlice)
			}
			for _, e := range m.ByName("shop", "selected").Endpoints {
				if e.Kept != tt.bySelector {
					t.Errorf("by a selector: kept %t, want %t", e.Kept, tt.bySelector)
				}
			}
		})
	}
}
