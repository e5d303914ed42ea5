package resource_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// types are the types whose resources have names.
var types = []string{xds.ClusterType, xds.EndpointType, xds.VirtualHostType, xds.RouteType, xds.ListenerType}

// A resource has only one name: a caller could make up any number of aliases, and each would be cached
// for the next proxy.
func TestNameHasOneSpelling(t *testing.T) {
	v := snapshot(t, append(parts(), service("first", "db", "fd96::6 10.96.0.9", port(80, mesh.ServerFirst)))...)
	aliases := map[string][]string{
		"http|10.96.0.1:80": {"http|10.96.0.1:080", "http|10.96.0.1:+80", "http|010.96.0.1:80", "HTTP|10.96.0.1:80", "http|10.96.0.1:80 ", "http|[::ffff:10.96.0.1]:80", "http|[::ffff:10.96.0.1%a]:80"},
		"raw|10.9.9.9:99":   {"raw|10.9.9.9:099", "raw|10.9.9.9"},
		"tcp|10.9.9.9:99":   {"tcp|10.9.9.9:099", "tcp|[::ffff:10.9.9.9]:99"},
		"http|[fd96::5]:80": {"http|[FD96::5]:80", "http|[fd96:0::5]:80", "http|[fd96::5%zone]:80", "http|[fd96::5]:080"},
		"tcp|[fd00::9]:1":   {"tcp|[fd00::9%eth0]:1", "tcp|[fd00::09]:1"},
		web80:               {"outbound|080||web.shop.svc.cluster.local", "outbound|+80||web.shop.svc.cluster.local", "outbound|80||WEB.shop.svc.cluster.local"},
		old80v4:             {"outbound|80|ipv4|old.shop.svc.cluster.local", "outbound|80|IPV4|old.shop.svc.cluster.local"},
		"outbound_80":       {"outbound_080", "outbound_+80"},
		"web:81":            {"web:081"},

		"outbound_[fd96__6]_80":                        {"outbound_[FD96__6]_80", "outbound_[fd96::6]_80", "outbound_[fd96__6%a]_80"},
		"outbound_10.96.0.9_80":                        {"outbound_10.96.0.9:80", "outbound_10.96.0.9_080", "outbound_[__ffff_10.96.0.9]_80", "outbound_[__ffff_10.96.0.9%a]_80"},
		"routed/80.routed.shop.svc.cluster.local":      {"routed/080.routed.shop.svc.cluster.local", "routed/80-.routed.shop.svc.cluster.local", "routed/80-IPv4.routed.shop.svc.cluster.local"},
		"routed/80-ipv6.routed.shop.svc.cluster.local": {"routed/80-IPv6.routed.shop.svc.cluster.local", "routed/80-ipv6-.routed.shop.svc.cluster.local"},
	}
	found := func(name string) bool {
		var r *xds.Resource
		for _, typeURL := range types {
			// Endpoints that no proxy may see are an empty list.
			if one := v.Named(client(), typeURL, name).Resource; one != nil && (typeURL != xds.EndpointType || name == web80) {
				r = one
			}
		}
		if r != nil && r.Name != name {
			t.Errorf("%s is the name of %s", name, r.Name)
		}
		return r != nil
	}
	for name, others := range aliases {
		if !found(name) {
			t.Errorf("%s is not found", name)
		}
		for _, other := range others {
			if found(other) {
				t.Errorf("%s is found, as an alias of %s", other, name)
			}
		}
	}
}

// The control plane stores nothing for a proxy that tries every name.
func TestNamesThatAreTriedAreNotKept(t *testing.T) {
	v := snapshot(t, parts()...)
	try := func(from, to int) {
		for _, p := range []*xds.Proxy{client(withAgent), client()} {
			for n := from; n < to; n++ {
				for _, name := range []string{
					"tcp|10.244.0.4:" + strconv.Itoa(n), "http|10.244.0.4:" + strconv.Itoa(n), // undeclared ports of a pod
					"tcp|10.244.9.9:" + strconv.Itoa(n), "http|10.96.0.1:" + strings.Repeat("0", n%500) + "80",
					"outbound|80||" + strings.Repeat("x", n%200) + strconv.Itoa(n) + ".shop.svc.cluster.local",
				} {
					for _, typeURL := range types {
						v.Named(p, typeURL, name)
					}
				}
			}
		}
	}
	try(1, 200)
	before := live()
	try(200, 1000)
	if kept := live() - before; kept > 128<<10 {
		t.Errorf("%d bytes are kept after 800 names of each kind; want none", kept)
	}
	runtime.KeepAlive(v)
}

// live returns the size of the heap after a garbage collection.
func live() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// FuzzNames: no name causes a panic, and a resource that is found for a name has that name.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"http|10.96.0.1:80", "tcp|[fd96::5%x]:080", "raw|10.96.0.1:80", "late", web80, old80v6, "routed/80-ipv6.routed.shop.svc.cluster.local", "80", "outbound_080", "web.shop:81", "routed", "virtualInbound", "", "|:", "outbound|||"} {
		f.Add(name)
	}
	v := snapshot(f, parts()...)
	clients := []*xds.Proxy{client(withAgent), client(), client(func(p *xds.Proxy) { p.GRPC = true })}
	f.Fuzz(func(t *testing.T, name string) {
		for _, p := range clients {
			v.Notes(p, []string{name}, []string{name})
			for _, typeURL := range types {
				if r := v.Named(p, typeURL, name).Resource; r != nil && r.Name != name {
					t.Errorf("%s %q: found as %q", typeURL, name, r.Name)
				}
			}
		}
	})
}
