package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func svc(namespace, name, vip string, ports ...PortSpec) *ServiceSpec {
	s := &ServiceSpec{Namespace: namespace, Name: name, Ports: ports}
	if vip != "" {
		s.Addresses = []netip.Addr{addr(vip)}
	}
	return s
}

func port(name string, number uint16) PortSpec {
	return PortSpec{Port: Port{Name: name, Number: number, Protocol: ProtocolOf("", name, "")}}
}

func pod(namespace, name, ip string, labels ...string) *WorkloadSpec {
	w := &WorkloadSpec{Workload: Workload{Namespace: namespace, Name: name, ServiceAccount: "default", Addresses: []netip.Addr{addr(ip)}}, Ready: true}
	for i := 0; i < len(labels); i += 2 {
		if w.Labels == nil {
			w.Labels = map[string]string{}
		}
		w.Labels[labels[i]] = labels[i+1]
	}
	return w
}

func slice(namespace, name, service string, p SlicePort, ips ...string) *SliceSpec {
	s := &SliceSpec{Namespace: namespace, Name: name, Service: service, Ports: []SlicePort{p}}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, SliceEndpoint{Addresses: []netip.Addr{addr(ip)}, Ready: true})
	}
	return s
}

func selecting(s *ServiceSpec, selector ...string) *ServiceSpec {
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
	m := New(Config{}, svc("shop", "reviews", "10.0.0.1", port("http", 80)), db, hidden, some, unexported,
		&SliceSpec{Namespace: "shop", Name: "db-x", Service: "db", Ports: []SlicePort{{"tcp-db", 5432}}, Endpoints: []SliceEndpoint{
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
	m := New(Config{},
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
	empty := &Mesh{}
	if empty.Service("x") != nil || empty.ByAddress(addr("10.0.0.1")) != nil || empty.Workload(addr("10.0.0.1"), "") != nil || len(empty.Services()) != 0 {
		t.Error("an empty mesh has something")
	}
}

func TestProtocolOf(t *testing.T) {
	tests := map[string]struct {
		app, name, transport string
		want                 Protocol
	}{
		"a name":                                {"", "http", "TCP", HTTP},
		"a prefix":                              {"", "http2-api", "", HTTP2},
		"a prefix in capitals":                  {"", "GRPC-api", "", GRPC},
		"grpc-web is HTTP":                      {"", "grpc-web", "", HTTP},
		"grpc-web with more is HTTP":            {"", "grpc-web-ui", "", HTTP},
		"grpc-website is gRPC":                  {"", "grpc-website", "", GRPC},
		"https is the application's TLS":        {"", "https", "", TLS},
		"mysql: the server speaks first":        {"", "mysql", "", ServerFirst},
		"redis and mongo: the client does":      {"", "mongo-main", "", TCP},
		"a name without a meaning":              {"", "web", "", Unknown},
		"no dash after the prefix":              {"", "httpapi", "", Unknown},
		"no declaration":                        {"", "", "", Unknown},
		"appProtocol before the name":           {"grpc", "http-api", "", GRPC},
		"an unknown appProtocol hides the name": {"example.com/x", "http-api", "", Unknown},
		"h2c":                                   {"kubernetes.io/h2c", "", "", HTTP2},
		"web sockets":                           {"kubernetes.io/ws", "", "", HTTP},
		"web sockets over TLS":                  {"kubernetes.io/wss", "", "", TLS},
		"UDP by transport":                      {"http", "http", "UDP", UDP},
		"UDP by name":                           {"", "udp-dns", "TCP", UDP},
		"SCTP is left alone":                    {"", "http", "SCTP", UDP},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ProtocolOf(tt.app, tt.name, tt.transport); got != tt.want {
				t.Errorf("ProtocolOf = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestServicesAgreeInAnyOrder(t *testing.T) {
	all := []Protocol{Unknown, TCP, ServerFirst, HTTP, HTTP2, GRPC, TLS}
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
	policy := func(namespace, name string, mode Mode, selector ...string) *PolicySpec {
		p := &PolicySpec{Namespace: namespace, Name: name, Mode: mode}
		if selector != nil {
			p.Selector = map[string]string{selector[0]: selector[1]}
		}
		return p
	}
	withPort := func(p *PolicySpec, number uint16, mode Mode) *PolicySpec {
		p.Ports = map[uint16]Mode{number: mode}
		return p
	}
	younger := policy("shop", "a", ModeDisable)
	younger.Created = younger.Created.AddDate(2020, 0, 0)
	tests := map[string]struct {
		policies []Part
		want     TLSMode
		ports    map[uint16]TLSMode
	}{
		"no declaration":                              {nil, Permissive, nil},
		"the mesh":                                    {[]Part{policy(DefaultRoot, "x", ModeStrict)}, Strict, nil},
		"the namespace, not the mesh":                 {[]Part{policy(DefaultRoot, "x", ModeStrict), policy("shop", "x", ModeDisable)}, Disable, nil},
		"another namespace":                           {[]Part{policy("pay", "x", ModeStrict)}, Permissive, nil},
		"the workload, not the namespace":             {[]Part{policy("shop", "x", ModeDisable), policy("shop", "y", ModeStrict, "app", "a")}, Strict, nil},
		"another workload":                            {[]Part{policy("shop", "y", ModeStrict, "app", "b")}, Permissive, nil},
		"a selector in the root namespace is ignored": {[]Part{policy(DefaultRoot, "y", ModeStrict, "app", "a")}, Permissive, nil},
		"the namespace leaves it to the mesh":         {[]Part{policy(DefaultRoot, "x", ModeStrict), policy("shop", "x", Unset)}, Strict, nil},
		"the workload leaves it to the namespace, but one port": {
			[]Part{policy("shop", "x", ModeStrict), withPort(policy("shop", "y", Unset, "app", "a"), 8080, ModeDisable)}, Strict,
			map[uint16]TLSMode{8080: Disable, 80: Strict}},
		"a port leaves it to the workload":       {[]Part{withPort(policy("shop", "y", ModeStrict, "app", "a"), 8080, Unset)}, Strict, map[uint16]TLSMode{8080: Strict}},
		"a permissive port of a strict workload": {[]Part{withPort(policy("shop", "y", ModeStrict, "app", "a"), 8080, ModePermissive)}, Strict, map[uint16]TLSMode{8080: Permissive}},
		"of two the older":                       {[]Part{younger, policy("shop", "b", ModeStrict)}, Strict, nil},
		"of two as old the first by name":        {[]Part{policy("shop", "b", ModeDisable), policy("shop", "a", ModeStrict)}, Strict, nil},
		"a port without a service":               {[]Part{withPort(policy("shop", "y", Unset, "app", "a"), 9999, ModeStrict)}, Permissive, map[uint16]TLSMode{9999: Strict, 8080: Permissive}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			web := selecting(svc("shop", "web", "10.0.0.1", PortSpec{Port: Port{Name: "http", Number: 80, Protocol: HTTP}, Target: 8080}), "app", "a")
			b := NewBuilder(Config{})
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
	match := func(kind TextKind, path string) Route { return Route{Matches: []Match{{Path: &Text{kind, path}}}} }
	producer := &RouteSpec{Namespace: "shop", Name: "p", Parents: []Parent{{Namespace: "shop", Name: "web"}}, Rules: []Route{
		match(Prefix, "/api"), {}, match(Exact, "/api"), match(RegExp, "/a.*"), match(Prefix, "/api/v1"),
		{Matches: []Match{{Method: "GET"}, {Headers: []Pair{{Name: "a"}}}}},
	}}
	only81 := &RouteSpec{Namespace: "shop", Name: "q", Parents: []Parent{{Namespace: "shop", Name: "web", Section: "admin"}}, Rules: []Route{{}}}
	noPort := &RouteSpec{Namespace: "shop", Name: "r", Parents: []Parent{{Namespace: "shop", Name: "web", Port: 99}}, Rules: []Route{{}}}
	consumer := &RouteSpec{Namespace: "pay", Name: "c", Parents: []Parent{{Namespace: "shop", Name: "web"}}, Rules: []Route{{}}}
	m := New(Config{}, svc("shop", "web", "10.0.0.1", port("http", 80), port("admin", 81)), producer, only81, noPort, consumer)
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
	to := func(namespace, name string, port uint16) Backend {
		return Backend{Namespace: namespace, Name: name, Port: port, Weight: 1}
	}
	b := NewBuilder(Config{})
	b.Set(&GrantSpec{Namespace: "pay", Name: "g", From: []GrantFrom{{KindRoute, "shop"}}, To: []string{"log"}})
	mirrored := to("pay", "log", 80)
	b.Set(svc("shop", "web", "10.0.0.1", port("http", 80)), &RouteSpec{
		Namespace: "shop", Name: "r", Parents: []Parent{{Namespace: "shop", Name: "web"}},
		Rules: []Route{{Backends: []Backend{to("shop", "web", 80), to("shop", "v2", 80), to("shop", "web", 99)}, Filters: []Filter{{Mirror: &mirrored}}}},
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
	b.Set(slice("shop", "v2-x", "v2", SlicePort{"http", 8080}, "10.1.0.9"))
	if b.Mesh().ByName("shop", "web") != before {
		t.Error("an endpoint of a backend changed the service whose route leads there")
	}
	b.Delete(Key{KindService, "pay", "log"}, Key{KindService, "shop", "v2"})
	check("without them", "", web, "", "")
}

func TestWorkloadOfAnEndpoint(t *testing.T) {
	withPod := func(s *SliceSpec, name string) *SliceSpec {
		s.Endpoints[0].Pod = name
		return s
	}
	tests := map[string]struct {
		slice *SliceSpec
		want  string
	}{
		"the workload with the address": {slice("shop", "s", "web", SlicePort{"http", 80}, "10.1.0.1"), "a"},
		"none":                          {slice("shop", "s", "web", SlicePort{"http", 80}, "10.1.0.9"), ""},
		"the pod that the slice names":  {withPod(slice("shop", "s", "web", SlicePort{"http", 80}, "192.168.0.1"), "node"), "node"},
		"not the pod, if the address is no more its own":       {withPod(slice("shop", "s", "web", SlicePort{"http", 80}, "10.1.0.9"), "a"), ""},
		"the workload with the address, if the pod is unknown": {withPod(slice("shop", "s", "web", SlicePort{"http", 80}, "10.1.0.1"), "x"), "a"},
		"not a pod on its node's network, by its address":      {slice("shop", "s", "web", SlicePort{"http", 80}, "192.168.0.1"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := pod("shop", "node", "192.168.0.1")
			node.HostNetwork = true
			m := New(Config{}, svc("shop", "web", "10.0.0.1", port("http", 80)), tt.slice, pod("shop", "a", "10.1.0.1"), node)
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
		change              func(*WorkloadSpec)
		bySlice, bySelector bool
	}{
		"no longer ready": {func(w *WorkloadSpec) { w.Ready, w.Kept = false, true }, true, true},
		"ready again":     {func(w *WorkloadSpec) { w.Kept = true }, true, false},
		"ready":           {func(*WorkloadSpec) {}, false, false},
		"not ready":       {func(w *WorkloadSpec) { w.Ready = false }, false, false},
		"terminating":     {func(w *WorkloadSpec) { w.Ready, w.Kept, w.Terminating = false, true, true }, false, false},
		"not there yet":   {nil, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			unready := slice("shop", "s", "sliced", SlicePort{"http", 80}, "10.1.0.1")
			unready.Endpoints[0].Ready = false
			parts := []Part{svc("shop", "sliced", "10.0.0.1", port("http", 80)), unready, selecting(svc("shop", "selected", "10.0.0.2", port("http", 80)), "app", "a")}
			if tt.change != nil {
				w := pod("shop", "a", "10.1.0.1", "app", "a")
				tt.change(w)
				parts = append(parts, w)
			}
			m := New(Config{}, parts...)
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
