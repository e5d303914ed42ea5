package resource_test

import (
	"fmt"
	"strings"
	"testing"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

// Endpoints near the client have the highest priority. The clients in a zone share the resource; if no endpoint
// is near, all clients share it.
func TestPrioritiesOfZones(t *testing.T) {
	web := service("web", "web", "10.96.0.1", port(80, mesh.HTTP))
	web.Traffic = mesh.SameZone
	in := func(zone string) func(*mesh.WorkloadSpec) { return func(s *mesh.WorkloadSpec) { s.Zone = zone } }
	h := newTestMesh(web, pod("web-a", "web", "10.244.0.1", in("a")), pod("web-b", "web", "10.244.0.2", in("b")),
		pod("c-a", "c", "10.244.1.1", in("a")), pod("c-a2", "c", "10.244.1.2", in("a")), pod("c-b", "c", "10.244.1.3", in("b")),
		pod("c-y", "c", "10.244.1.4", in("y")), pod("c-z", "c", "10.244.1.5", in("z")))
	source := resource.New(h)
	v, _ := source.Current()
	of := func(v xds.Snapshot, name string) *xds.Resource {
		p := client(withAgent, func(p *xds.Proxy) { p.ID, p.ServiceAccount, p.Addresses = "sidecar~10.9.9.9~"+name+".shop~x", "c", nil })
		return v.Named(p, xds.EndpointType, web80).Resource
	}
	order := func(r *xds.Resource) string {
		var out []string
		for _, l := range message(t, r).(*endpoint.ClusterLoadAssignment).Endpoints {
			out = append(out, fmt.Sprintf("%d:%s", l.Priority, l.Locality.Zone))
		}
		return strings.Join(out, " ")
	}
	for name, want := range map[string]string{"c-a": "0:a 1:b", "c-b": "0:b 1:a", "c-z": "0:a 0:b", "unknown": "0:a 0:b"} {
		if got := order(of(v, name)); got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
	if of(v, "c-a") != of(v, "c-a2") || of(v, "c-y") != of(v, "c-z") {
		t.Error("built for each client")
	}
	h.builder.Set(pod("c-z", "c", "10.244.1.5", in("b")))
	now, _ := source.Current()
	if changes, ok := now.Diff(v); !ok || !changes[xds.EndpointType].AllNames || order(of(now, "c-z")) != "0:b 1:a" {
		t.Errorf("a client moved: %+v, %s", changes[xds.EndpointType], order(of(now, "c-z")))
	}
}
