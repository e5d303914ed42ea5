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

// as returns the proxy of a pod whose service account is c.
func as(name string) *xds.Proxy {
	return client(withAgent, func(p *xds.Proxy) { p.ID, p.ServiceAccount, p.Addresses = "sidecar~10.9.9.9~"+name+".shop~x", "c", nil })
}

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
		return v.Named(as(name), xds.EndpointType, web80).Resource
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
	if changes, ok := now.Diff(v); !ok || changes[xds.EndpointType].AllNames || !changes[xds.EndpointType].For(as("c-z")) || changes[xds.EndpointType].For(as("c-y")) || order(of(now, "c-z")) != "0:b 1:a" {
		t.Errorf("a client moved: %+v, %s", changes[xds.EndpointType], order(of(now, "c-z")))
	}
}

// A proxy may connect before its pod is known. It has no endpoint of a service with internalTrafficPolicy: Local
// until then, its first use waits for the pod for a moment, and its status says why calls fail.
func TestOnlyNodeOfALateClient(t *testing.T) {
	web := service("web", "web", "10.96.0.1", port(80, mesh.HTTP))
	web.Traffic = mesh.OnlyNode
	on := func(node string) func(*mesh.WorkloadSpec) { return func(s *mesh.WorkloadSpec) { s.Node = node } }
	h := newTestMesh(web, pod("web-1", "web", "10.244.0.1", on("n1")), pod("web-2", "web", "10.244.0.2", on("n2")), pod("c-1", "c", "10.244.1.1", on("n1")))
	source := resource.New(h)
	late := as("c-2")
	check := func(what, want, note string, p *xds.Proxy, holds bool) xds.Snapshot {
		t.Helper()
		v, _ := source.Current()
		b := v.Named(p, xds.ClusterType, "http|10.96.0.1:80")
		var got []string
		for _, l := range message(t, v.Named(p, xds.EndpointType, web80).Resource).(*endpoint.ClusterLoadAssignment).Endpoints {
			for _, e := range l.LbEndpoints {
				got = append(got, e.GetEndpoint().Address.GetSocketAddress().Address)
			}
		}
		notes := strings.Join(v.Notes(p, nil, []string{web80}), "\n")
		if strings.Join(got, " ") != want || b.Hold > 0 != holds || !strings.Contains(notes, note) || note == "" && notes != "" {
			t.Errorf("%s: endpoints %q, hold %s, notes %q; want %q, %t, %q", what, got, b.Hold, notes, want, holds, note)
		}
		return v
	}
	old := check("the pod is not known", "", "or its node, is not known", late, true)
	check("another pod", "10.244.0.1", "", as("c-1"), false)
	h.builder.Set(pod("c-2", "c", "", on("")))
	check("the pod has no node yet", "", "or its node, is not known", late, false)
	h.builder.Set(pod("c-2", "c", "", on("n2")))
	v := check("the pod has a node", "10.244.0.2", "", late, false)
	changes, _ := v.Diff(old)
	for _, typeURL := range []string{xds.ClusterType, xds.EndpointType} {
		if c := changes[typeURL]; c.AllNames || c.For == nil || !c.For(late) || c.For(as("c-1")) {
			t.Errorf("%s: %+v; want all names for the proxy alone", typeURL, c)
		}
	}
	h.builder.Delete(pod("web-2", "web", "").Key())
	check("the node's endpoint has gone", "", "no ready endpoint on the node n2", late, false)
	h.builder.Set(pod("web-3", "web", "10.244.0.3", on("")))
	check("another's node is not known", "", "on the node n2; an endpoint is on no node", late, false)
}
