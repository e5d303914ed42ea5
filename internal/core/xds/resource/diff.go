package resource

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/names"
)

// Diff derives the changes of resources from the changes of the mesh, without comparing resources. The table
// contains the rules; TestDiffOfAnyHistory compares them with the resources that are built:
//
//	what changed                           what may differ
//	a service                              its clusters and endpoints, and the clusters of its endpoints' addresses (mayIdentify)
//	- its routes or frontend               its route configurations and virtual hosts
//	- its faults, ports or visibility      all of these: routes of other services may lead there
//	- its frontend (sameFrontend)          the set of listeners, all listeners, the set of clusters (prewarmNames)
//	- and so the networks of services      all clusters: those of addresses without a service
//	- where requests are counted           all listeners: an inbound one has the services of its ports
//	- where requests are traced            the collector's cluster
//	a workload                             the clusters of its addresses, the set of listeners, all listeners
//	- its place                            all clusters and endpoints of its proxy: which are near
//	the zone of a node                     all endpoints: which are near
//	an authorization policy                all listeners
func (v *snapshot) Diff(old xds.Snapshot) (map[string]xds.Change, bool) {
	o, ok := old.(*snapshot)
	if !ok {
		return nil, false
	}
	services, workloads := mesh.Changed(o.mesh, v.mesh)
	frontend := slices.ContainsFunc(services, func(c mesh.Change[mesh.Service]) bool { return !sameFrontend(c.Old, c.New) })
	d := &diff{addresses: addresses{}, types: map[string]*xds.Change{}}
	for _, t := range []string{xds.ListenerType, xds.ClusterType, xds.EndpointType, xds.RouteType, xds.VirtualHostType} {
		d.types[t] = &xds.Change{Names: map[string]struct{}{}}
	}
	for _, c := range services {
		d.service(c.Old)
		d.service(c.New)
		if !sameFrontend(c.Old, c.New) || !sameRoutes(c.Old, c.New) {
			d.routes(c.Old)
			d.routes(c.New)
		}
		if !mesh.SameFaults(c.Old, c.New) || !sameForRoutes(c.Old, c.New) {
			d.types[xds.VirtualHostType].AllNames, d.types[xds.RouteType].AllNames = true, true
		}
	}
	for _, c := range workloads {
		d.workload(c.Old)
		d.workload(c.New)
	}
	t := v.config.Telemetry
	listeners := frontend || len(workloads) > 0 || len(services) > 0 && t.Metrics || !v.mesh.SameAuthorization(o.mesh)
	d.types[xds.ListenerType].Wildcard, d.types[xds.ListenerType].AllNames = listeners, listeners
	clusters, endpoints := d.types[xds.ClusterType], d.types[xds.EndpointType]
	endpoints.AllNames = !v.mesh.SameNodes(o.mesh)
	clusters.For = v.moved(o, workloads)
	endpoints.For = clusters.For
	clusters.Wildcard = frontend
	clusters.AllNames = frontend && !o.serviceNetworks().Equal(v.serviceNetworks()) // rare, because a network only grows
	if len(services) > 0 && t.Tracing.On() {
		d.name(xds.ClusterType, names.Tracing)
	}
	if len(d.addresses) > 0 {
		clusters.Match = d.addresses.match
	}
	out := map[string]xds.Change{}
	for t, c := range d.types {
		if c.Wildcard || c.AllNames || len(c.Names) > 0 || c.Match != nil || c.For != nil {
			out[t] = *c
		}
	}
	return out, true
}

// moved returns a function that reports whether the place of a proxy differs in an older snapshot; nil if no place
// does. A proxy may connect before its pod, or the pod's node, is known here; until then it has no endpoint of a
// service with internalTrafficPolicy: Local. The endpoints of other proxies are not compared, because pods appear
// all the time.
func (v *snapshot) moved(old *snapshot, workloads []mesh.Change[mesh.Workload]) func(*xds.Proxy) bool {
	if len(workloads) == 0 {
		return nil
	}
	type account struct{ namespace, name string }
	accounts := map[account]bool{}
	for _, c := range workloads {
		for _, w := range []*mesh.Workload{c.Old, c.New} {
			if w != nil {
				accounts[account{w.Namespace, w.ServiceAccount}] = true
			}
		}
	}
	return func(p *xds.Proxy) bool {
		return accounts[account{p.Namespace, p.ServiceAccount}] && v.placeOf(p) != old.placeOf(p)
	}
}

// A diff collects the resources that may differ.
type diff struct {
	addresses addresses
	types     map[string]*xds.Change
}

func (d *diff) name(typeURL, name string) { d.types[typeURL].Names[name] = struct{}{} }

func (d *diff) service(s *mesh.Service) {
	if s == nil {
		return
	}
	for _, p := range s.Ports {
		for _, f := range names.Families {
			name := names.Service(s, p.Number, f)
			d.name(xds.ClusterType, name)
			d.name(xds.EndpointType, name)
		}
		for _, a := range s.Addresses {
			to := netip.AddrPortFrom(a.Unmap(), p.Number)
			for _, prefix := range []string{names.HTTP, names.TCP, names.Raw} {
				d.name(xds.ClusterType, names.Address{Prefix: prefix, To: to}.String())
			}
		}
	}
	for _, e := range s.Endpoints { // see mayIdentify
		d.addresses.add(e.Addr)
	}
}

// routes adds the resources that route a service's requests.
func (d *diff) routes(s *mesh.Service) {
	if s == nil {
		return
	}
	for i := range s.Ports {
		d.name(xds.RouteType, names.Service(s, s.Ports[i].Number, names.Primary))
		for _, f := range names.Families {
			d.name(xds.VirtualHostType, names.Target{Service: s, Port: &s.Ports[i], Family: f}.VirtualHost())
		}
	}
}

func (d *diff) workload(w *mesh.Workload) {
	if w == nil {
		return
	}
	for _, a := range w.Addresses {
		d.addresses.add(a)
	}
}

// sameForRoutes reports whether a service is unchanged for routes that lead to it.
func sameForRoutes(a, b *mesh.Service) bool {
	return a != nil && b != nil && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.ExportTo, b.ExportTo) &&
		a.External == b.External && names.PrimaryOf(a) == names.PrimaryOf(b)
}

// sameFrontend reports whether nothing but the endpoints and routes of a service differs, as in nearly
// every change. The sets of listeners and clusters do not depend on these, so they are not compared for
// each proxy, which would cost more than sending the endpoints.
func sameFrontend(a, b *mesh.Service) bool {
	return sameForRoutes(a, b) && slices.Equal(a.Addresses, b.Addresses)
}

func sameRoutes(a, b *mesh.Service) bool { return reflect.DeepEqual(a.Routes, b.Routes) }

// addresses are the addresses of changed pods, as written in names. The clusters of an address without
// a service depend on its pod, and may have any port.
type addresses map[string]struct{}

func (a addresses) add(addr netip.Addr) {
	name := netip.AddrPortFrom(addr.Unmap(), 0).String()
	a[strings.TrimSuffix(name, ":0")] = struct{}{}
}

// match reports whether a name is the name of a cluster of one of the addresses. It is called for each
// name of each proxy, and therefore does not parse names.
func (a addresses) match(name string) bool {
	_, to, _ := strings.Cut(name, "|")
	end := strings.LastIndexByte(to, ':')
	if end < 0 {
		return false
	}
	_, ok := a[to[:end]]
	return ok
}
