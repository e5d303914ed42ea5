package resource

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// Diff derives the changes from those of the mesh, not from the resources.
func (v *snapshot) Diff(old xds.Snapshot) (map[string]xds.Change, bool) {
	o, ok := old.(*snapshot)
	if !ok {
		return nil, false
	}
	services, workloads := mesh.Changed(o.mesh, v.mesh)
	frontend := slices.ContainsFunc(services, func(c mesh.Change[mesh.Service]) bool { return !sameFrontend(c.Old, c.New) })
	d := &diff{addresses: v.addresses, types: map[string]*xds.Change{}}
	for _, t := range []string{xds.ListenerType, xds.ClusterType, xds.EndpointType, xds.RouteType, xds.VirtualHostType} {
		d.types[t] = &xds.Change{Wildcard: frontend, Names: map[string]struct{}{}}
	}
	for _, c := range services {
		d.service(c.Old)
		d.service(c.New)
		if !sameFrontend(c.Old, c.New) || !sameRoutes(c.Old, c.New) {
			d.routes(c.Old)
			d.routes(c.New)
		}
		if !sameForRoutes(c.Old, c.New) {
			// Routes of other services may lead there.
			d.types[xds.VirtualHostType].AllNames, d.types[xds.RouteType].AllNames = true, true
		}
	}
	for _, c := range workloads {
		d.workload(c.Old)
		d.workload(c.New)
	}
	if len(workloads) > 0 { // a proxy's listeners depend on its workload
		d.types[xds.ListenerType].Wildcard, d.types[xds.ListenerType].AllNames = true, true
	}
	d.types[xds.ListenerType].AllNames = d.types[xds.ListenerType].AllNames || frontend
	out := map[string]xds.Change{}
	for t, c := range d.types {
		if c.Wildcard || c.AllNames || len(c.Names) > 0 {
			out[t] = *c
		}
	}
	return out, true
}

// A diff collects the resources that may differ.
type diff struct {
	addresses *addressNames
	types     map[string]*xds.Change
}

func (d *diff) name(typeURL, name string) { d.types[typeURL].Names[name] = struct{}{} }

func (d *diff) service(s *mesh.Service) {
	if s == nil {
		return
	}
	for _, p := range s.Ports {
		for _, f := range allFamilies {
			name := serviceName(s, p.Number, f)
			d.name(xds.ClusterType, name)
			d.name(xds.EndpointType, name)
		}
		for _, a := range s.Addresses {
			to := netip.AddrPortFrom(a.Unmap(), p.Number)
			d.name(xds.ClusterType, address{true, to}.String())
			d.name(xds.ClusterType, address{false, to}.String())
		}
	}
	for _, e := range s.Endpoints { // see mayIdentify
		d.address(e.Addr)
	}
}

// routes adds the resources that route a service's requests.
func (d *diff) routes(s *mesh.Service) {
	if s == nil {
		return
	}
	for i := range s.Ports {
		number := s.Ports[i].Number
		d.name(xds.RouteType, serviceName(s, number, primary))
		d.name(xds.RouteType, strconv.Itoa(int(number)))
		for _, f := range allFamilies {
			d.name(xds.VirtualHostType, target{s, &s.Ports[i], f}.virtualHost())
		}
	}
}

func (d *diff) workload(w *mesh.Workload) {
	if w == nil {
		return
	}
	for _, a := range w.Addresses {
		d.address(a)
	}
}

func (d *diff) address(a netip.Addr) {
	names, all := d.addresses.at(a.Unmap())
	if !all {
		d.types[xds.ClusterType].AllNames = true
	}
	for _, name := range names {
		d.name(xds.ClusterType, name)
	}
}

// sameForRoutes reports whether a service is unchanged for routes that lead to it.
func sameForRoutes(a, b *mesh.Service) bool {
	return a != nil && b != nil && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.ExportTo, b.ExportTo) &&
		a.External == b.External && primaryOf(a) == primaryOf(b)
}

// sameFrontend reports whether at most the endpoints and routes of a service differ, as in
// nearly every change. The sets of listeners and clusters do not depend on these; to
// compare the sets for each proxy costs more than to send the endpoints.
func sameFrontend(a, b *mesh.Service) bool {
	return sameForRoutes(a, b) && slices.Equal(a.Addresses, b.Addresses) && a.Headless == b.Headless
}

func sameRoutes(a, b *mesh.Service) bool { return reflect.DeepEqual(a.Routes, b.Routes) }

// addressNames has the subscribed names of addresses that belong to no service. A change of
// a pod affects them, and they may have any port.
type addressNames struct {
	mu    sync.Mutex
	names map[netip.Addr]map[string]struct{}
	n     int
}

// maxAddressNames bounds them. Beyond it any name may be subscribed.
const maxAddressNames = 100_000

func (a *addressNames) add(addr netip.Addr, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n > maxAddressNames {
		return
	}
	if a.names == nil {
		a.names = map[netip.Addr]map[string]struct{}{}
	}
	at := a.names[addr]
	if at == nil {
		at = map[string]struct{}{}
		a.names[addr] = at
	}
	if _, ok := at[name]; !ok {
		at[name] = struct{}{}
		a.n++
	}
}

// at returns the names of an address, and whether they are complete.
func (a *addressNames) at(addr netip.Addr) ([]string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	// any order: the names become a set.
	for name := range a.names[addr] {
		out = append(out, name)
	}
	return out, a.n <= maxAddressNames
}
