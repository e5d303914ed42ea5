package build

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
)

// The number of endpoints of a namespace is limited, regardless of the order in which they arrive. The
// services that get their endpoints are chosen by name. Other namespaces are not affected.
func TestEndpointsOfANamespaceAreBounded(t *testing.T) {
	part := func(namespace, service string, endpoints, ports int) []mesh.Part {
		s := svc(namespace, service, "10.0.0."+fmt.Sprint(len(namespace+service)))
		slice := slice(namespace, service+"-1", service, mesh.SlicePort{})
		slice.Ports = nil
		for i := range ports {
			name := fmt.Sprint("p", i)
			s.Ports = append(s.Ports, port(name, uint16(i+1)))
			slice.Ports = append(slice.Ports, mesh.SlicePort{Name: name, Number: uint16(i + 1)})
		}
		slice.Endpoints = nil
		for i := range endpoints {
			slice.Endpoints = append(slice.Endpoints, mesh.SliceEndpoint{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})}, Ready: true})
		}
		return []mesh.Part{s, slice}
	}
	parts := [][]mesh.Part{part("evil", "a", 300, 100), part("evil", "bb", 300, 100), part("evil", "ccc", 10, 10), part("market", "web", 3, 1)}
	counts := func(b *Builder) string {
		var out []string
		for _, n := range []mesh.Key{{Namespace: "evil", Name: "a"}, {Namespace: "evil", Name: "bb"}, {Namespace: "evil", Name: "ccc"}, {Namespace: "market", Name: "web"}} {
			if s := b.Mesh().ByName(n.Namespace, n.Name); s != nil {
				out = append(out, fmt.Sprint(n.Name, " ", len(s.Endpoints)))
			}
		}
		return strings.Join(out, ", ")
	}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}} {
		b := New(mesh.Config{})
		for _, i := range order {
			b.Set(parts[i]...)
			b.Mesh()
		}
		if got, want := counts(b), "a 30000, bb 0, ccc 100, web 3"; got != want {
			t.Errorf("%v: %s, want %s", order, got, want)
		}
		if c := b.Conflicts(); len(c) != 1 || c[0].Object != (mesh.Key{Kind: mesh.KindService, Namespace: "evil", Name: "bb"}) || !strings.Contains(c[0].Message, "are 60100") {
			t.Errorf("%v: conflicts %v", order, c)
		}
		b.Delete(parts[0][0].Key(), parts[0][1].Key())
		if got, want := counts(b), "bb 30000, ccc 100, web 3"; got != want || len(b.Conflicts()) > 0 {
			t.Errorf("%v: without the first %s, want %s", order, got, want)
		}
		b.Delete(parts[1][1].Key(), parts[2][1].Key())
		if counts(b); len(b.sizes.of) != 1 {
			t.Errorf("left: %v", b.sizes.of)
		}
	}
}
