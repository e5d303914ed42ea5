package build_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

// Fields of a service and of its slices that are ignored are reported as warnings of the object that has them, until
// it changes.
func TestIgnoredFields(t *testing.T) {
	ignored := func(field string) []mesh.IgnoredField {
		return []mesh.IgnoredField{{Field: field, Why: "why", Instead: "instead"}}
	}
	service := &mesh.ServiceSpec{Name: "web", Namespace: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ignored: ignored("spec.a")}
	service.Selector, service.Ports = map[string]string{"app": "web"}, []mesh.PortSpec{{Port: mesh.Port{Number: 80}}}
	slice := &mesh.SliceSpec{Name: "web-1", Namespace: "shop", Service: "web", Names: true, Ignored: ignored("ports[0].port")}
	b := build.New(mesh.Config{})
	b.Set(service, slice)
	b.Mesh()
	b.Set(&mesh.WorkloadSpec{Workload: mesh.Workload{Name: "web-1", Namespace: "shop", Labels: service.Selector, Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.1")}}})
	if got := b.Mesh().ByName("shop", "web").Endpoints; len(got) != 1 {
		t.Errorf("a slice of names: endpoints %+v; want the one that the selector matches", got)
	}
	var got []string
	for _, c := range b.Conflicts() {
		got = append(got, fmt.Sprint(c.Severity, c.Object, ": ", c.Field, ": ", c.Message))
	}
	if want := []string{"warning: Service shop/web: spec.a: why; instead", "warning: EndpointSlice shop/web-1: ports[0].port: why; instead"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	plain := *service
	plain.Ignored = nil
	b.Set(&plain)
	b.Delete(slice.Key())
	b.Mesh()
	if got := b.Conflicts(); got != nil {
		t.Errorf("still reported: %+v", got)
	}
}
