package build

import (
	"net/netip"
	"testing"

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
