package resource

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

// A namespace gets listeners for a limited number of ports, and none for Envoy's own ports; ports of
// other namespaces are not affected. Updating the counts gives the same result as counting again.
func TestPortsOfOneNamespace(t *testing.T) {
	service := func(namespace, name string, numbers ...uint16) *mesh.Service {
		s := &mesh.Service{Namespace: namespace, Name: name}
		for _, n := range numbers {
			s.Ports = append(s.Ports, mesh.Port{Number: n, Protocol: mesh.HTTP})
		}
		return s
	}
	var many []uint16
	for n := range uint16(5000) {
		many = append(many, 1000+n)
	}
	shop := service("shop", "web", 80, 5999)
	evil := service("evil", "ports", append(many, contract.PrometheusPort)...)
	want := slices.Concat([]uint16{80}, many[:maxSniffedOfNamespace], []uint16{5999})
	both := countPorts([]*mesh.Service{shop, evil})
	if d := cmp.Diff(want, both.sniffed); d != "" {
		t.Errorf("numbers with a listener (-want +got):\n%s", d)
	}
	alone := countPorts([]*mesh.Service{shop})
	if d := cmp.Diff(both.sniffed, alone.after([]mesh.Change[mesh.Service]{{New: evil}}).sniffed); d != "" {
		t.Errorf("when it comes (-at once +after):\n%s", d)
	}
	if d := cmp.Diff(alone.sniffed, both.after([]mesh.Change[mesh.Service]{{Old: evil}}).sniffed); d != "" {
		t.Errorf("when it goes (-at once +after):\n%s", d)
	}
	other := service("shop", "web", 80, 5999)
	other.Endpoints = []mesh.Endpoint{{Port: 8080}}
	if both.after([]mesh.Change[mesh.Service]{{Old: shop, New: other}}) != both {
		t.Error("endpoints alone count all ports again")
	}
}
