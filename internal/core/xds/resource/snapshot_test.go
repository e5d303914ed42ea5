package resource_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

const (
	web80   = "outbound|80||web.shop.svc.cluster.local"
	old80   = "outbound|80||old.shop.svc.cluster.local"
	old80v4 = "outbound|80|IPv4|old.shop.svc.cluster.local"
	old80v6 = "outbound|80|IPv6|old.shop.svc.cluster.local"
)

// A resource stays in the cache while the object for which it was built does not change, and is shared by proxies
// with the same features.
func TestBuiltOnce(t *testing.T) {
	h := newTestMesh(parts()...)
	source := resource.New(h)
	before, _ := source.Current()
	if again, _ := source.Current(); again != before {
		t.Error("another snapshot of the same mesh")
	}
	one := client(withAgent)
	other := client(withAgent, func(p *xds.Proxy) { p.Namespace, p.ServiceAccount = "blog", "x" })
	names := map[string]string{web80: xds.EndpointType, "http|10.96.0.1:80": xds.ClusterType, "tcp|10.96.0.3:6379": xds.ClusterType,
		"routed/80.routed.shop.svc.cluster.local": xds.VirtualHostType, "virtualOutbound": xds.ListenerType, "tcp|10.244.0.4:6379": xds.ClusterType}
	first := map[string]*xds.Resource{}
	for name, typeURL := range names {
		first[name] = before.Named(one, typeURL, name).Resource
		if got := before.Named(other, typeURL, name).Resource; got != first[name] {
			t.Errorf("%s is built for each proxy", name)
		}
	}
	h.builder.Set(pod("web-3", "web", "10.244.0.9"))
	after, _ := source.Current()
	changed := []string{web80} // the cluster is unchanged: its endpoints are a separate resource
	for name, typeURL := range names {
		got := after.Named(one, typeURL, name).Resource
		switch {
		case slices.Contains(changed, name):
			if got.Version == first[name].Version {
				t.Errorf("%s has not changed", name)
			}
		case got.Version != first[name].Version:
			t.Errorf("%s has changed", name)
		case name != "http|10.96.0.1:80" && !strings.HasPrefix(name, "routed/") && got != first[name]:
			t.Errorf("%s was built again", name)
		}
	}
}

// Two control planes with the same mesh send identical bytes.
func TestDeterministic(t *testing.T) {
	a, b := goldenCases(t), goldenCases(t)
	for name := range a {
		for i, n := range a[name] {
			if n.Resource.Version != b[name][i].Resource.Version || n.Resource.Version == "" {
				t.Errorf("%s: %s has versions %q and %q", name, n.Resource.Name, n.Resource.Version, b[name][i].Resource.Version)
			}
		}
	}
}

// A proxy gets nothing about a service that it cannot see: neither endpoints nor their identities.
func TestVisibility(t *testing.T) {
	v := snapshot(t, parts()...)
	p := client()
	inside := client(func(p *xds.Proxy) { p.Namespace, p.ServiceAccount = "vault", "x" })
	for _, name := range []string{"http|10.96.0.66:80", "raw|10.96.0.66:80", "raw|10.244.0.66:80", "outbound|80||hidden.vault.svc.cluster.local"} {
		if got := text(t, flatten([]xds.Bundle{v.Named(p, xds.ClusterType, name)}, xds.ClusterType)); strings.Contains(got, "hidden") || strings.Contains(got, "spiffe") {
			t.Errorf("%s: %s", name, got)
		}
		if got := text(t, flatten([]xds.Bundle{v.Named(inside, xds.ClusterType, name)}, xds.ClusterType)); !strings.Contains(got, "spiffe://cluster.local/ns/vault/sa/hidden") {
			t.Errorf("%s, of the same namespace: %s", name, got)
		}
	}
	endpoints := v.Named(p, xds.EndpointType, "outbound|80||hidden.vault.svc.cluster.local").Resource
	if got := text(t, []xds.Dependency{{Type: xds.EndpointType, Resource: endpoints}}); strings.Contains(got, "10.244") {
		t.Errorf("endpoints: %s", got)
	}
	for _, typeURL := range types {
		if got := text(t, flatten(v.Wildcard(p, typeURL, nil), typeURL)); strings.Contains(got, "hidden") || strings.Contains(got, "10.96.0.66") {
			t.Errorf("%s: %s", typeURL, got)
		}
	}
}

// A proxy gets no listener for plain text if it claims to be another pod than its certificate says, or if its pod
// is not in the mesh (yet).
func TestListenersOfAnother(t *testing.T) {
	v := snapshot(t, parts()...)
	plain := func(p *xds.Proxy) bool {
		return strings.Contains(text(t, []xds.Dependency{{Type: xds.ListenerType, Resource: v.Named(p, xds.ListenerType, "virtualInbound").Resource}}), "name: app-8080\n")
	}
	if !plain(client()) {
		t.Error("the pod itself has no plain port")
	}
	for name, change := range map[string]func(*xds.Proxy){
		"another account":   func(p *xds.Proxy) { p.ServiceAccount = "db" },
		"another namespace": func(p *xds.Proxy) { p.Namespace = "vault" },
		"not known":         func(p *xds.Proxy) { p.ID, p.Addresses = "sidecar~10.9.9.9~new.shop~x", addresses("10.9.9.9") },
	} {
		if plain(client(change)) {
			t.Errorf("%s: plain connections to port 8080 are taken", name)
		}
	}
}

// The number of listeners depends on the port numbers in the mesh, not on its services.
func TestListenersOfManyServices(t *testing.T) {
	count := func(n int) int {
		var all []mesh.Part
		for i := range n {
			all = append(all, service(fmt.Sprintf("s%d", i), "web", fmt.Sprintf("10.100.%d.%d", i/250, i%250), port(80, mesh.HTTP), port(6379, mesh.TCP)))
		}
		size := 0
		v := snapshot(t, all...)
		for _, n := range flatten(v.Wildcard(client(), xds.ListenerType, nil), xds.ListenerType) {
			size += len(n.Resource.Body.Value)
		}
		if got := flatten(v.Wildcard(client(), xds.ClusterType, nil), xds.ClusterType); len(got) != 2 { // see fixedClusters
			t.Errorf("%d services: %d clusters", n, len(got))
		}
		return size
	}
	if few, many := count(1), count(1000); few != many {
		t.Errorf("%d bytes with one service, %d with 1000", few, many)
	}
}

// A resource that Wildcard returned is found by its name, so that a stream can look up its current
// state.
func TestNamedReturnsWhatWildcardReturns(t *testing.T) {
	shared := service("z-shares-an-address", "db", "10.96.0.3", port(7000, mesh.TCP))
	six := service("six", "db", "fd96::6 10.96.0.6", port(6379, mesh.TCP), port(contract.ReadinessPort, mesh.TCP))
	v := snapshot(t, append(parts(), shared, six)...)
	for name, change := range map[string]func(*xds.Proxy){
		"one family":    func(*xds.Proxy) {},
		"two families":  func(p *xds.Proxy) { p.Addresses = addresses("10.244.0.1 fd44::1") },
		"no HTTP there": func(p *xds.Proxy) { p.Namespace, p.ID = "bank", "x" },
	} {
		for _, typeURL := range types {
			p := client(withAgent, change)
			for _, b := range v.Wildcard(p, typeURL, nil) {
				if got := v.Named(p, typeURL, b.Resource.Name).Resource; got == nil || got.Version != b.Resource.Version {
					t.Errorf("%s: %s of %s is not the resource of that name: %v", name, b.Resource.Name, typeURL, got)
				}
			}
		}
	}
}

// slice returns an endpoint for a service's port 80, about which nothing else is known.
func slice(service, at string) *mesh.SliceSpec {
	return &mesh.SliceSpec{Name: service + "-1", Namespace: "shop", Service: service,
		Ports: []mesh.SlicePort{{Name: "p80", Number: 80}}, Endpoints: []mesh.SliceEndpoint{{Addresses: addresses(at), Ready: true}}}
}

// The first answer for an address in the services' network may be delayed until its service, or its
// port, is known; answers for other addresses are not.
func TestAddressesThatMayGetAService(t *testing.T) {
	v := snapshot(t, append(parts(), service("six", "db", "fd96::6", port(6379, mesh.TCP)))...)
	for name, held := range map[string]bool{
		"http|10.96.0.12:80": true, "tcp|10.96.0.12:6379": true, "raw|10.96.0.12:80": true, "tcp|[fd96::7]:1": true,
		"http|10.96.0.1:79":  true,  // the service is known, this port is not
		"http|10.96.0.66:80": false, // the proxy cannot see this service
		"http|10.96.0.1:80":  false, "tcp|10.244.0.4:1": false, "tcp|10.9.9.9:99": false, "tcp|10.97.0.1:80": false, "tcp|[fd97::7]:1": false,
	} {
		b := v.Named(client(), xds.ClusterType, name)
		if b.Resource == nil || b.Hold > 0 != held {
			t.Errorf("%s: held for %s", name, b.Hold)
		}
	}
}
