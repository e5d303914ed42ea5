package build

import (
	"fmt"
	"testing"

	"outrider.dev/internal/core/mesh"
)

// Kubernetes allows the same number for a port of each transport, in any order. All that proxies take is for the port of
// TCP.
func TestPortsWithTheSameNumber(t *testing.T) {
	dns := func(name string, p mesh.Protocol) mesh.PortSpec {
		return mesh.PortSpec{Port: mesh.Port{Name: name, Number: 53, Protocol: p}, TargetName: "dns"}
	}
	udp, tcp, sctp := dns("dns", mesh.UDP), dns("dns-tcp", mesh.HTTP), dns("dns-sctp", mesh.SCTP)
	route := func(name, section string, port uint16) *mesh.RouteSpec {
		return &mesh.RouteSpec{Namespace: "shop", Name: name, Parents: []mesh.Parent{{Namespace: "shop", Name: "sliced", Section: section, Port: port}},
			Rules: []mesh.Route{{Backends: []mesh.Backend{{Namespace: "shop", Name: "sliced", Port: 53, Weight: 1}, {Namespace: "shop", Name: "only-udp", Port: 53, Weight: 1}}}}}
	}
	limited := backendPolicy("p", 0, 7, mesh.PolicyTarget{Name: "sliced", Section: "dns-tcp"})
	for name, ports := range map[string][]mesh.PortSpec{
		"UDP first": {udp, sctp, tcp}, "TCP first": {tcp, udp, sctp}, "SCTP first": {sctp, tcp, udp},
	} {
		t.Run(name, func(t *testing.T) {
			both := slice("shop", "both", "sliced", mesh.SlicePort{Name: "dns-tcp", Number: 5353, Transport: mesh.OverTCP}, "10.1.0.2")
			both.Ports = append(both.Ports, mesh.SlicePort{Name: "dns", Number: 5300, Transport: mesh.OverUDP}, mesh.SlicePort{Name: "dns-sctp", Number: 5301, Transport: mesh.OverSCTP})
			a, b := pod("shop", "a", "10.1.0.1", "app", "a"), pod("shop", "b", "10.1.0.2", "app", "b")
			a.NamedPorts = map[mesh.NamedPort]uint16{{Name: "dns", Transport: mesh.OverUDP}: 5300, {Name: "dns", Transport: mesh.OverTCP}: 5353}
			m := Mesh(mesh.Config{}, a, b,
				svc("shop", "sliced", "10.0.0.1", ports...), both, slice("shop", "of-udp", "sliced", mesh.SlicePort{Name: "dns-tcp", Number: 5300, Transport: mesh.OverUDP}, "10.1.0.9"),
				selecting(svc("shop", "selected", "10.0.0.2", ports...), "app", "a"), svc("shop", "only-udp", "10.0.0.3", udp),
				route("by-section", "dns", 0), route("by-number", "", 53), limited)
			s := m.ByName("shop", "sliced")
			if got := s.Port(53); got == nil || got.Name != "dns-tcp" {
				t.Errorf("the port 53: %+v", got)
			}
			for service, want := range map[string]string{"sliced": "[dns 10.1.0.2:5300 dns-sctp 10.1.0.2:5301 dns-tcp 10.1.0.2:5353]", "selected": "[dns 10.1.0.1:5300 dns-tcp 10.1.0.1:5353]"} {
				var got []string
				for _, e := range m.ByName("shop", service).Endpoints {
					got = append(got, fmt.Sprintf("%s %s:%d", e.PortName, e.Addr, e.Port))
				}
				if fmt.Sprint(got) != want {
					t.Errorf("endpoints of %s: %v, want %s", service, got, want)
				}
			}
			for _, w := range []string{"a", "b"} {
				if got := m.Pod("shop", w).Ports; len(got) != 1 || got[0] != (mesh.AppPort{Number: 5353, Protocol: mesh.HTTP}) {
					t.Errorf("ports of %s: %v", w, got)
				}
			}
			routes := s.RoutesFor("shop", 53)
			if len(routes) != 1 || routes[0].Name != "shop/by-number/0" || routes[0].Backends[0].Host != s.Host || routes[0].Backends[1].Host != "" {
				t.Errorf("routes: %+v", routes)
			}
			if got := s.PortPolicy(53); got == nil || got.From != "p" {
				t.Errorf("policy: %+v", got)
			}
			if got := m.ByName("shop", "only-udp").Port(53); got != nil {
				t.Errorf("a port of TCP that there is not: %+v", got)
			}
		})
	}
}
