package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// A Builder keeps the parts of a mesh and makes snapshots of it. Parts may come in any
// order, and may name what is not there yet. It is for one goroutine.
//
// It works in two steps. Set and Delete keep the parts, and note which services and
// workloads they may concern. Mesh computes those again: first what the services' members
// are, then the workloads, because their ports depend on the services in front of them,
// then the services, because their endpoints point to workloads. What turns out to be
// the same keeps its pointer.
type Builder struct {
	config Config
	parts  map[Key]Part

	services  map[name]*service
	workloads map[workloadID]*workload
	policies  multimap[string, *PolicySpec] // by namespace

	// Who is concerned by what.
	bySelector multimap[label, name]       // services, by the handle of their selector
	byLabel    multimap[label, workloadID] // workloads, by each of their labels
	inSpace    multimap[string, workloadID]
	atAddress  multimap[netip.Addr, workloadID] // who has an address of its own
	wantAddr   multimap[netip.Addr, name]       // services with an address in a slice
	wantPod    multimap[name, name]             // services with a pod in a slice
	atVIP      multimap[netip.Addr, name]
	routesOf   multimap[name, *RouteSpec] // by parent
	routesTo   multimap[name, *RouteSpec] // by backend

	staleServices  set[name]
	staleWorkloads set[workloadID]
	staleVIPs      set[netip.Addr]
	staleAddresses set[netip.Addr]

	conflicts map[name][]Conflict // by the service that has them
	current   *Mesh
}

// A service is what the builder knows about one.
type service struct {
	spec    *ServiceSpec
	slices  set[*SliceSpec]
	members []member
	misled  []member                 // at ports of proxies: none of the members
	sends   map[workloadID][]AppPort // to whom; without TLS
	current *Service
}

// A workload is what the builder knows about one.
type workload struct {
	spec    *WorkloadSpec
	behind  set[name] // services that have it as a member
	current *Workload
}

// NewBuilder returns a builder of an empty mesh.
func NewBuilder(config Config) *Builder {
	config = config.complete()
	return &Builder{
		config: config,
		parts:  map[Key]Part{}, services: map[name]*service{}, workloads: map[workloadID]*workload{}, policies: multimap[string, *PolicySpec]{},
		bySelector: multimap[label, name]{}, byLabel: multimap[label, workloadID]{}, inSpace: multimap[string, workloadID]{},
		atAddress: multimap[netip.Addr, workloadID]{}, wantAddr: multimap[netip.Addr, name]{}, wantPod: multimap[name, name]{},
		atVIP: multimap[netip.Addr, name]{}, routesOf: multimap[name, *RouteSpec]{}, routesTo: multimap[name, *RouteSpec]{},
		staleServices: set[name]{}, staleWorkloads: set[workloadID]{}, staleVIPs: set[netip.Addr]{}, staleAddresses: set[netip.Addr]{},
		conflicts: map[name][]Conflict{},
		current:   &Mesh{Config: config},
	}
}

// Set adds parts, or replaces those with the same keys.
func (b *Builder) Set(parts ...Part) {
	for _, p := range parts {
		k := p.Key()
		if old, ok := b.parts[k]; ok {
			b.take(old)
		}
		b.parts[k] = p
		b.put(p)
	}
}

// Delete removes parts. Keys that are not there are ignored.
func (b *Builder) Delete(keys ...Key) {
	for _, k := range keys {
		if old, ok := b.parts[k]; ok {
			delete(b.parts, k)
			b.take(old)
		}
	}
}

func (b *Builder) put(p Part) {
	switch p := p.(type) {
	case *ServiceSpec:
		b.putService(p)
	case *SliceSpec:
		b.putSlice(p)
	case *WorkloadSpec:
		b.putWorkload(p)
	case *PolicySpec:
		b.putPolicy(p)
	case *RouteSpec:
		b.putRoute(p)
	}
}

// take undoes put.
func (b *Builder) take(p Part) {
	switch p := p.(type) {
	case *ServiceSpec:
		b.takeService(p)
	case *SliceSpec:
		b.takeSlice(p)
	case *WorkloadSpec:
		b.takeWorkload(p)
	case *PolicySpec:
		b.takePolicy(p)
	case *RouteSpec:
		b.takeRoute(p)
	}
}

// Mesh returns a snapshot of the parts: the last one, if nothing changed since.
func (b *Builder) Mesh() *Mesh {
	var (
		old       = b.current
		services  = edit[string, *Service]{old: old.services}
		workloads = edit[workloadID, *Workload]{old: old.workloads}
		behind    = edit[workloadID, *[]string]{old: old.behind}
		vips      = edit[netip.Addr, string]{old: old.vips}
		addresses = edit[netip.Addr, workloadID]{old: old.addresses}
	)
	b.touchHolders()
	staleBehind := set[workloadID]{}
	for n := range b.staleServices {
		b.gather(n, staleBehind)
	}
	for id := range staleBehind { // once for each, however many services stand before it
		b.renewBehind(id, &behind)
	}
	for id := range b.staleWorkloads {
		b.renewWorkload(id, &workloads)
	}
	for n := range b.staleServices {
		b.renewService(n, &services)
	}
	for addr := range b.staleVIPs {
		renew(&vips, addr, b.holder(addr), func(n name) string { return b.config.host(n.namespace, n.name) })
	}
	for addr := range b.staleAddresses {
		renew(&addresses, addr, least(b.atAddress[addr], workloadID.compare), func(id workloadID) workloadID { return id })
	}
	b.forgetStale()

	next := &Mesh{
		Config: b.config, services: services.done(), workloads: workloads.done(),
		behind: behind.done(), vips: vips.done(), addresses: addresses.done(),
	}
	if next.services == old.services && next.workloads == old.workloads && next.behind == old.behind &&
		next.vips == old.vips && next.addresses == old.addresses {
		return old
	}
	b.current = next
	return next
}

func (b *Builder) forgetStale() {
	// Maps keep the room of their largest day: after a first load that is not small.
	b.staleServices, b.staleWorkloads = set[name]{}, set[workloadID]{}
	b.staleVIPs, b.staleAddresses = set[netip.Addr]{}, set[netip.Addr]{}
}

// renew writes who has an address, if that is somebody else now.
func renew[K comparable, V comparable](e *edit[netip.Addr, V], addr netip.Addr, owner *K, value func(K) V) {
	var none V
	was := e.old.get(addr)
	switch {
	case owner != nil && value(*owner) != was:
		e.set(addr, value(*owner))
	case owner == nil && was != none:
		e.delete(addr)
	}
}

// least makes a choice that does not depend on who came first.
func least[K comparable](s set[K], compare func(a, b K) int) *K {
	var out *K
	for k := range s {
		if out == nil || compare(k, *out) < 0 {
			out = &k
		}
	}
	return out
}

func compareNames(a, b name) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// service returns what is known about one, which may be nothing yet.
func (b *Builder) service(n name) *service {
	s, ok := b.services[n]
	if !ok {
		s = &service{slices: set[*SliceSpec]{}}
		b.services[n] = s
	}
	b.staleServices.add(n)
	return s
}

func (b *Builder) putService(p *ServiceSpec) {
	n := name{p.Namespace, p.Name}
	b.service(n).spec = p
	b.touchService(p)
	if len(p.Selector) > 0 {
		b.bySelector.add(handle(p.Namespace, p.Selector), n)
	}
	for _, a := range p.Addresses {
		b.atVIP.add(a, n)
	}
}

func (b *Builder) takeService(p *ServiceSpec) {
	n := name{p.Namespace, p.Name}
	b.service(n).spec = nil
	b.touchService(p)
	if len(p.Selector) > 0 {
		b.bySelector.remove(handle(p.Namespace, p.Selector), n)
	}
	for _, a := range p.Addresses {
		b.atVIP.remove(a, n)
	}
}

func (b *Builder) touchService(p *ServiceSpec) {
	for _, a := range p.Addresses {
		b.staleVIPs.add(a)
	}
	for r := range b.routesTo[name{p.Namespace, p.Name}] {
		b.touchParents(r)
	}
}

func (b *Builder) putSlice(p *SliceSpec) {
	n := name{p.Namespace, p.Service}
	b.service(n).slices.add(p)
	for _, e := range p.Endpoints {
		if e.Pod != "" {
			b.wantPod.add(name{p.Namespace, e.Pod}, n)
		}
		for _, a := range e.Addresses {
			b.wantAddr.add(a, n)
		}
	}
}

func (b *Builder) takeSlice(p *SliceSpec) {
	n := name{p.Namespace, p.Service}
	s := b.service(n)
	delete(s.slices, p)
	for _, e := range p.Endpoints {
		b.wantPod.remove(name{p.Namespace, e.Pod}, n)
		for _, a := range e.Addresses {
			b.wantAddr.remove(a, n)
		}
	}
	for left := range s.slices { // which may want the same
		b.putSlice(left)
	}
}

// workload returns what is known about one, which may be nothing yet.
func (b *Builder) workload(id workloadID) *workload {
	w, ok := b.workloads[id]
	if !ok {
		w = &workload{behind: set[name]{}}
		b.workloads[id] = w
	}
	b.staleWorkloads.add(id)
	return w
}

func (b *Builder) putWorkload(p *WorkloadSpec) {
	id := p.id()
	b.workload(id).spec = p
	b.inSpace.add(id.namespace, id)
	for k, v := range p.Labels {
		b.byLabel.add(label{id.namespace, k, v}, id)
	}
	if !p.HostNetwork {
		for _, a := range p.Addresses {
			b.atAddress.add(a, id)
		}
	}
	b.touchWorkload(p)
}

func (b *Builder) takeWorkload(p *WorkloadSpec) {
	id := p.id()
	b.workload(id).spec = nil
	b.inSpace.remove(id.namespace, id)
	for k, v := range p.Labels {
		b.byLabel.remove(label{id.namespace, k, v}, id)
	}
	for _, a := range p.Addresses {
		b.atAddress.remove(a, id)
	}
	b.touchWorkload(p)
}

// touchWorkload notes the services that have p as a member, or may have it now.
func (b *Builder) touchWorkload(p *WorkloadSpec) {
	id := p.id()
	maps.Copy(b.staleServices, b.workloads[id].behind)
	for _, a := range p.Addresses {
		b.staleAddresses.add(a)
		maps.Copy(b.staleServices, b.wantAddr[a])
	}
	if !p.Host {
		maps.Copy(b.staleServices, b.wantPod[name{id.namespace, id.name}])
	}
	for k, v := range p.Labels {
		for n := range b.bySelector[label{id.namespace, k, v}] {
			if s := b.services[n]; len(s.slices) == 0 && selects(s.spec.Selector, p.Labels) {
				b.staleServices.add(n)
			}
		}
	}
}

// sortedSlices are in an order of their own: which of two says something first must
// not depend on a map.
func (s *service) sortedSlices() []*SliceSpec {
	return slices.SortedFunc(maps.Keys(s.slices), func(a, b *SliceSpec) int { return cmp.Compare(a.Name, b.Name) })
}
