package resource_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

var endpointAddress = regexp.MustCompile(`address: (10\.244[.0-9]+|fd44[:0-9a-f]+)\n`)

// A connection by a family goes to endpoints of that family: by address, through routes, and for a client with
// one family that does not subscribe by address. If the family has no endpoints, those of the other family are
// used.
func TestFamilies(t *testing.T) {
	h := newTestMesh(
		service("dual", "dual", "10.96.0.1 fd96::1", port(80, mesh.HTTP), port(90, mesh.TCP)),
		service("six-first", "dual", "fd96::2 10.96.0.2", port(80, mesh.HTTP)),
		service("four", "four", "10.96.0.3", port(80, mesh.HTTP)),
		service("only-six", "six", "10.96.0.4", port(80, mesh.HTTP)),
		service("routed", "dual", "10.96.0.5 fd96::5", port(80, mesh.HTTP)),
		service("pods", "dual", "", port(80, mesh.HTTP)),
		pod("dual-1", "dual", "10.244.0.1 fd44::1"), pod("dual-2", "dual", "10.244.0.2 fd44::2"),
		pod("four-1", "four", "10.244.0.3 fd44::3"),
		&mesh.SliceSpec{Name: "x", Namespace: "shop", Service: "only-six", Ports: []mesh.SlicePort{{Name: "p80", Number: 80}},
			Endpoints: []mesh.SliceEndpoint{{Addresses: addresses("fd44::9"), Ready: true}}},
		// This service has one family, but slices of both.
		&mesh.SliceSpec{Name: "y", Namespace: "shop", Service: "four", Ports: []mesh.SlicePort{{Name: "p80", Number: 80}},
			Endpoints: []mesh.SliceEndpoint{{Addresses: addresses("10.244.0.3"), Ready: true}, {Addresses: addresses("fd44::3"), Ready: true}}},
		&mesh.RouteSpec{Name: "r", Namespace: "shop", Parents: []mesh.Parent{{Namespace: "shop", Name: "routed"}}, Rules: []mesh.Route{{
			Backends: []mesh.Backend{{Namespace: "shop", Name: "dual", Port: 80, Weight: 1}, {Namespace: "shop", Name: "six-first", Port: 80, Weight: 1}},
		}}},
	)
	v, _ := resource.New(h).Current()
	four, six := client(), client(func(p *xds.Proxy) { p.Addresses = addresses("fd44::77") })
	both := client(func(p *xds.Proxy) { p.Addresses = addresses("10.244.0.77 fd44::77") })
	rpc := func(p *xds.Proxy) *xds.Proxy {
		q := *p
		q.GRPC = true
		return &q
	}
	v4, v6 := []string{"10.244.0.1", "10.244.0.2"}, []string{"fd44::1", "fd44::2"}
	tests := map[string]struct {
		client *xds.Proxy
		name   string
		want   []string
	}{
		"by IPv4":                                {both, "http|10.96.0.1:80", v4},
		"by IPv6":                                {both, "http|[fd96::1]:80", v6},
		"bytes by IPv4":                          {both, "tcp|10.96.0.1:90", v4},
		"bytes by IPv6":                          {both, "tcp|[fd96::1]:90", v6},
		"by IPv4, IPv6 comes first":              {both, "http|10.96.0.2:80", v4},
		"by IPv6, which comes first":             {both, "http|[fd96::2]:80", v6},
		"slices of both, an address of one":      {both, "http|10.96.0.3:80", []string{"10.244.0.3"}},
		"no endpoint of the family":              {both, "http|10.96.0.4:80", []string{"fd44::9"}},
		"a route by IPv4":                        {both, "http|10.96.0.5:80", slices.Concat(v4, v4)},
		"a route by IPv6":                        {both, "http|[fd96::5]:80", slices.Concat(v6, v6)},
		"gRPC, with IPv4":                        {rpc(four), "outbound|80||dual.shop.svc.cluster.local", v4},
		"gRPC, with IPv6":                        {rpc(six), "outbound|80||dual.shop.svc.cluster.local", v6},
		"gRPC, with both":                        {rpc(both), "outbound|80||dual.shop.svc.cluster.local", v4},
		"gRPC, IPv4 only, six first":             {rpc(four), "outbound|80||six-first.shop.svc.cluster.local", v4},
		"gRPC, IPv6 only, headless":              {rpc(six), "outbound|80||pods.shop.svc.cluster.local", v6},
		"gRPC, bytes to IPv6":                    {rpc(both), "outbound|90|IPv6|dual.shop.svc.cluster.local", v6},
		"a name from when another family led":    {both, "outbound|80|IPv4|dual.shop.svc.cluster.local", v4},
		"a family in the name of another's head": {both, "outbound|80|IPv4|six-first.shop.svc.cluster.local", v4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// The server looks up dependencies of dependencies.
			var got []string
			seen := map[string]bool{}
			var follow func(a xds.Bundle)
			follow = func(a xds.Bundle) {
				for _, n := range a.Before {
					if n.Type == xds.ClusterType && strings.HasPrefix(n.Resource.Name, "outbound|") {
						follow(v.Named(tt.client, n.Type, n.Resource.Name))
					}
				}
				for _, n := range a.After {
					if !seen[n.Resource.Name] {
						seen[n.Resource.Name] = true
						for _, m := range endpointAddress.FindAllStringSubmatch(text(t, []xds.Dependency{n}), -1) {
							got = append(got, m[1])
						}
					}
				}
			}
			follow(v.Named(tt.client, xds.ClusterType, tt.name))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
		})
	}
	// A resource has the name that was subscribed to, whichever family is the primary one now.
	for _, name := range []string{"outbound|80|IPv4|dual.shop.svc.cluster.local", "outbound|80|IPv6|dual.shop.svc.cluster.local", "outbound|80||dual.shop.svc.cluster.local"} {
		if r := v.Named(both, xds.EndpointType, name).Resource; r.Name != name || !strings.Contains(text(t, []xds.Dependency{{Type: xds.EndpointType, Resource: r}}), "cluster_name: "+name) {
			t.Errorf("%s is served by %s", name, r.Name)
		}
	}
	for _, name := range []string{"outbound|80|IPv5|dual.shop.svc.cluster.local", "outbound|80|dual.shop.svc.cluster.local", "outbound|80"} {
		if r := v.Named(both, xds.ClusterType, name).Resource; r != nil {
			t.Errorf("%s has a resource", name)
		}
	}
}
