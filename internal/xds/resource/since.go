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

// Since says what an older view answered otherwise. It looks at what changed in the
// mesh, not at what is built of it.
func (v *view) Diff(old xds.Snapshot) (map[string]xds.Change, bool) {
	o, ok := old.(*view)
	if !ok {
		return nil, false
	}
	services, workloads := mesh.Changed(o.mesh, v.mesh)
	front := slices.ContainsFunc(services, func(c mesh.Change[mesh.Service]) bool { return !sameFront(c.Old, c.New) })
	d := &difference{asked: v.asked, types: map[string]*xds.Change{}}
	for _, t := range []string{xds.ListenerType, xds.ClusterType, xds.EndpointType, xds.RouteType, xds.VirtualHostType} {
		d.types[t] = &xds.Change{Wildcard: front, Names: map[string]struct{}{}}
	}
	for _, c := range services {
		d.service(c.Old)
		d.service(c.New)
		if !sameFront(c.Old, c.New) || !sameRoutes(c.Old, c.New) {
			d.routes(c.Old)
			d.routes(c.New)
		}
		if !sameToOthers(c.Old, c.New) {
			// Routes of others may lead there.
			d.types[xds.VirtualHostType].AllNames, d.types[xds.RouteType].AllNames = true, true
		}
	}
	for _, c := range workloads {
		d.workload(c.Old)
		d.workload(c.New)
	}
	if len(workloads) > 0 { // each proxy has the listeners of its own
		d.types[xds.ListenerType].Wildcard, d.types[xds.ListenerType].AllNames = true, true
	}
	d.types[xds.ListenerType].AllNames = d.types[xds.ListenerType].AllNames || front
	out := map[string]xds.Change{}
	for t, c := range d.types {
		if c.Wildcard || c.AllNames || len(c.Names) > 0 {
			out[t] = *c
		}
	}
	return out, true
}

// A difference is what may be answered otherwise.
type difference struct {
	asked *asked
	types map[string]*xds.Change
}

func (d *difference) name(typeURL, name string) { d.types[typeURL].Names[name] = struct{}{} }

func (d *difference) service(s *mesh.Service) {
	if s == nil {
		return
	}
	for _, p := range s.Ports {
		for _, f := range written {
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
	for _, e := range s.Endpoints { // who may know them
		d.address(e.Addr)
	}
}

// routes are what says where a service's requests go.
func (d *difference) routes(s *mesh.Service) {
	if s == nil {
		return
	}
	for i := range s.Ports {
		number := s.Ports[i].Number
		d.name(xds.RouteType, serviceName(s, number, first))
		d.name(xds.RouteType, strconv.Itoa(int(number)))
		for _, f := range written {
			d.name(xds.VirtualHostType, target{s, &s.Ports[i], f}.virtualHost())
		}
	}
}

func (d *difference) workload(w *mesh.Workload) {
	if w == nil {
		return
	}
	for _, a := range w.Addresses {
		d.address(a)
	}
}

func (d *difference) address(a netip.Addr) {
	names, all := d.asked.at(a.Unmap())
	if !all {
		d.types[xds.ClusterType].AllNames = true
	}
	for _, name := range names {
		d.name(xds.ClusterType, name)
	}
}

// sameToOthers says whether a service is still the same for routes that lead to it.
func sameToOthers(a, b *mesh.Service) bool {
	return a != nil && b != nil && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.ExportTo, b.ExportTo) &&
		a.External == b.External && firstOf(a) == firstOf(b)
}

// sameFront says whether a service still looks the same from outside: nearly every change
// is one of endpoints. What is listened on, and which clusters there are, does not depend
// on these; to look at all of that for each proxy costs more than to tell the endpoints.
func sameFront(a, b *mesh.Service) bool {
	return sameToOthers(a, b) && slices.Equal(a.Addresses, b.Addresses) && a.Headless == b.Headless
}

func sameRoutes(a, b *mesh.Service) bool { return reflect.DeepEqual(a.Routes, b.Routes) }

// asked are the names by which proxies asked for addresses that are no service's: what a
// change of a pod touches cannot be told without them, as any port may be asked for.
type asked struct {
	mu    sync.Mutex
	names map[netip.Addr]map[string]struct{}
	n     int
}

// maxAsked bounds them. Beyond it, any name may have been asked for.
const maxAsked = 100_000

func (a *asked) add(addr netip.Addr, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n > maxAsked {
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

// at returns the names of an address, and whether these are all.
func (a *asked) at(addr netip.Addr) ([]string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for name := range a.names[addr] {
		out = append(out, name)
	}
	return out, a.n <= maxAsked
}
