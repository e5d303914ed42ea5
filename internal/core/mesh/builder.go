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
// It works in two steps. Set and Delete keep the parts, and mark the services and workloads
// that may change. Mesh computes those again: first the members of the services, then the
// workloads, because their ports depend on their services, then the services, because
// their endpoints point to workloads. An object that did not change keeps its pointer.
type Builder struct {
	// OnlyMesh: the source has objects for this mesh alone. Otherwise they may be for another
	// mesh of the cluster, and those that are ignored are reported if they are for a workload
	// with Outrider's proxy.
	OnlyMesh bool

	config Config
	parts  map[Key]Part

	services  map[name]*service
	workloads map[workloadID]*workload
	policies  multimap[string, *PolicySpec] // by namespace

	// Which objects depend on what.
	bySelector     multimap[label, name]       // services, by one label of their selector
	byLabel        multimap[label, workloadID] // workloads, by each of their labels
	byNamespace    multimap[string, workloadID]
	hosts          set[workloadID]
	byAddress      residents                  // pods with an address of their own, and Hosts
	bySliceAddress multimap[netip.Addr, name] // services with the address in a slice
	bySlicePod     multimap[name, name]       // services with the pod in a slice
	byVIP          multimap[netip.Addr, name]
	routesOf       multimap[name, *RouteSpec]  // by parent
	routesTo       multimap[name, *RouteSpec]  // by backend
	routesInto     multimap[grant, *RouteSpec] // by the grant for all services of a backend's namespace
	grants         multimap[grant, *GrantSpec]
	policiesTo     multimap[name, *BackendPolicySpec] // by target
	ignored        multimap[string, *IgnoredSpec]     // by namespace
	authorization  authorizationIndex
	sizes          sizes
	zonesOf        map[string]map[spokenZone]int // by node, with the number of endpoints of slices that say so

	staleServices  set[name]
	staleWorkloads set[workloadID]
	staleVIPs      set[netip.Addr]
	staleAddresses set[location]
	staleIgnored   set[string] // namespaces
	staleNodes     set[string]
	staleSizes     set[string] // namespaces
	staleRoutes    set[Key]
	staleGrants    set[grant]

	conflicts map[name][]Conflict // by service
	current   *Mesh
}

// A service is the state of a builder about one.
type service struct {
	spec          *ServiceSpec
	slices        set[*SliceSpec]
	members       []member
	proxyPorts    []member                 // endpoints at ports of proxies, which are not members
	workloadPorts map[workloadID][]AppPort // of its members; without TLS
	routes        *routeSet                // nil: they may have changed
	policies      *policySet               // nil: they may have changed
	current       *Service
}

// A workload is the state of a builder about one.
type workload struct {
	spec     *WorkloadSpec
	services set[name] // those that have it as a member
	current  *Workload
}

// NewBuilder returns a builder of an empty mesh.
func NewBuilder(config Config) *Builder {
	config = config.complete()
	return &Builder{
		config: config,
		parts:  map[Key]Part{}, services: map[name]*service{}, workloads: map[workloadID]*workload{}, policies: multimap[string, *PolicySpec]{},
		bySelector: multimap[label, name]{}, byLabel: multimap[label, workloadID]{}, byNamespace: multimap[string, workloadID]{},
		byAddress: residents{}, hosts: set[workloadID]{}, bySliceAddress: multimap[netip.Addr, name]{}, bySlicePod: multimap[name, name]{},
		byVIP: multimap[netip.Addr, name]{}, routesOf: multimap[name, *RouteSpec]{}, routesTo: multimap[name, *RouteSpec]{},
		routesInto: multimap[grant, *RouteSpec]{}, grants: multimap[grant, *GrantSpec]{}, staleRoutes: set[Key]{}, staleGrants: set[grant]{},
		policiesTo: multimap[name, *BackendPolicySpec]{}, ignored: multimap[string, *IgnoredSpec]{}, staleIgnored: set[string]{}, authorization: newAuthorizationIndex(),
		sizes: sizes{}, zonesOf: map[string]map[spokenZone]int{}, staleNodes: set[string]{}, staleSizes: set[string]{},
		staleServices: set[name]{}, staleWorkloads: set[workloadID]{}, staleVIPs: set[netip.Addr]{}, staleAddresses: set[location]{},
		conflicts: map[name][]Conflict{},
		current:   &Mesh{Config: config},
	}
}

// Set adds parts, or replaces those with the same keys.
func (b *Builder) Set(parts ...Part) {
	for _, p := range parts {
		k := p.Key()
		if old, ok := b.parts[k]; ok {
			b.index(old, false)
		}
		b.parts[k] = p
		b.index(p, true)
	}
}

// Delete removes parts. Keys that are not there are ignored.
func (b *Builder) Delete(keys ...Key) {
	for _, k := range keys {
		if old, ok := b.parts[k]; ok {
			delete(b.parts, k)
			b.index(old, false)
		}
	}
}

// index adds a part to the indexes, or removes it, and marks what may change.
func (b *Builder) index(p Part, present bool) {
	switch p := p.(type) {
	case *ServiceSpec:
		b.indexService(p, present)
	case *SliceSpec:
		b.indexNodes(p, present)
		b.indexSlice(p, present)
		b.resize(p, present)
	case *WorkloadSpec:
		b.indexWorkload(p, present)
	case *PolicySpec:
		b.policies.set(p.Namespace, p, present)
		b.markPolicy(p)
	case *AuthorizationSpec:
		b.indexAuthorization(p, present)
	case *RouteSpec:
		b.indexRoute(p, present)
	case *GrantSpec:
		b.indexGrant(p, present)
	case *BackendPolicySpec:
		b.indexBackendPolicy(p, present)
	case *IgnoredSpec:
		b.indexIgnored(p, present)
	}
}

// Mesh returns a snapshot of the parts: the last one, if nothing has changed.
func (b *Builder) Mesh() *Mesh {
	var (
		old        = b.current
		services   = edit[string, *Service]{old: old.services}
		workloads  = edit[workloadID, *Workload]{old: old.workloads}
		servicesOf = edit[workloadID, *[]string]{old: old.servicesOf}
		vips       = edit[netip.Addr, string]{old: old.vips}
		addresses  = edit[location, workloadID]{old: old.addresses}
		ignored    = edit[string, *ignoredList]{old: old.ignored}
		nodes      = edit[string, string]{old: old.nodes}
		routes     = edit[Key, *RouteSpec]{old: old.routes}
		grants     = edit[grant, bool]{old: old.grants}

		authorization = edit[workloadID, *Authorization]{old: old.authorization}
		guarded       = edit[string, bool]{old: old.guarded}
	)
	b.markVIPs()
	for namespace := range b.staleSizes {
		b.updateSizes(namespace)
	}
	staleServicesOf := set[workloadID]{}
	for n := range b.staleServices {
		b.updateMembers(n, staleServicesOf)
	}
	for id := range staleServicesOf { // once for each, however many services it has
		b.updateServicesOf(id, &servicesOf)
	}
	for id := range b.staleWorkloads {
		b.updateWorkload(id, &workloads, &authorization)
	}
	for n := range b.staleServices {
		b.updateService(n, &services)
	}
	for addr := range b.staleVIPs {
		updateAddress(&vips, addr, b.vipOwner(addr), func(n name) string { return b.config.host(n.namespace, n.name) })
	}
	for at := range b.staleAddresses {
		updateAddress(&addresses, at, b.resident(at), func(id workloadID) workloadID { return id })
	}
	for namespace := range b.staleIgnored {
		b.updateIgnored(namespace, &ignored)
	}
	for node := range b.staleNodes {
		b.updateNode(node, &nodes)
	}
	for k := range b.staleRoutes {
		b.updateRoute(k, &routes)
	}
	for k := range b.staleGrants {
		b.updateGrant(k, &grants)
	}
	for namespace := range b.authorization.stale {
		b.updateGuarded(namespace, &guarded)
	}
	b.clearStale()

	next := &Mesh{
		Config: b.config, services: services.done(), workloads: workloads.done(),
		servicesOf: servicesOf.done(), vips: vips.done(), addresses: addresses.done(),
		ignored: ignored.done(), nodes: nodes.done(), authorization: authorization.done(), guarded: guarded.done(),
		routes: routes.done(), grants: grants.done(),
	}
	if next.services == old.services && next.workloads == old.workloads && next.servicesOf == old.servicesOf &&
		next.vips == old.vips && next.addresses == old.addresses && next.ignored == old.ignored && next.nodes == old.nodes &&
		next.routes == old.routes && next.grants == old.grants && next.SameAuthorization(old) {
		return old
	}
	b.current = next
	return next
}

func (b *Builder) clearStale() {
	// Maps do not shrink: after the first load these are large.
	b.staleServices, b.staleWorkloads = set[name]{}, set[workloadID]{}
	b.staleVIPs, b.staleAddresses = set[netip.Addr]{}, set[location]{}
	b.staleIgnored, b.staleNodes, b.staleSizes, b.authorization.stale = set[string]{}, set[string]{}, set[string]{}, set[string]{}
	b.staleRoutes, b.staleGrants = set[Key]{}, set[grant]{}
}

// updateAddress writes the owner of an address, if it changed.
func updateAddress[A, K, V comparable](e *edit[A, V], addr A, owner *K, value func(K) V) {
	var none V
	was := e.old.get(addr)
	switch {
	case owner != nil && value(*owner) != was:
		e.set(addr, value(*owner))
	case owner == nil && was != none:
		e.delete(addr)
	}
}

// smallest makes a choice that does not depend on the order of arrival.
func smallest[K comparable](s set[K], compare func(a, b K) int) *K {
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

// service returns the state of a service, new if need be, and marks it.
func (b *Builder) service(n name) *service {
	s, ok := b.services[n]
	if !ok {
		s = &service{slices: set[*SliceSpec]{}}
		b.services[n] = s
	}
	b.staleServices.add(n)
	return s
}

func (b *Builder) indexService(p *ServiceSpec, present bool) {
	n := name{p.Namespace, p.Name}
	s := b.service(n)
	s.spec, s.routes, s.policies = nil, nil, nil
	if present {
		s.spec = p
	}
	b.markService(p)
	if len(p.Selector) > 0 {
		b.bySelector.set(selectorKey(p.Namespace, p.Selector), n, present)
	}
	for _, a := range p.Addresses {
		b.byVIP.set(a, n, present)
	}
}

func (b *Builder) markService(p *ServiceSpec) {
	for _, a := range p.Addresses {
		b.staleVIPs.add(a)
	}
	for r := range b.routesTo[name{p.Namespace, p.Name}] {
		b.markParents(r)
	}
}

func (b *Builder) indexSlice(p *SliceSpec, present bool) {
	n := name{p.Namespace, p.Service}
	s := b.service(n)
	if present {
		s.slices.add(p)
	} else {
		delete(s.slices, p)
	}
	for _, e := range p.Endpoints {
		if e.Pod != "" {
			b.bySlicePod.set(name{p.Namespace, e.Pod}, n, present)
		}
		for _, a := range e.Addresses {
			b.bySliceAddress.set(a, n, present)
		}
	}
	if !present {
		for left := range s.slices { // which may have the same ones
			b.indexSlice(left, true)
		}
	}
}

// workload returns the state of a workload, new if need be, and marks it.
func (b *Builder) workload(id workloadID) *workload {
	w, ok := b.workloads[id]
	if !ok {
		w = &workload{services: set[name]{}}
		b.workloads[id] = w
	}
	b.staleWorkloads.add(id)
	return w
}

func (b *Builder) indexWorkload(p *WorkloadSpec, present bool) {
	id := p.id()
	w := b.workload(id)
	w.spec = nil
	if present {
		w.spec = p
	}
	b.byNamespace.set(id.namespace, id, present)
	if delete(b.hosts, id); p.Host && present {
		b.hosts.add(id)
	}
	for k, v := range p.Labels {
		b.byLabel.set(label{id.namespace, k, v}, id, present)
	}
	if !p.HostNetwork {
		for _, a := range p.Addresses {
			b.byAddress.set(p.location(a), id, present)
		}
	}
	b.markWorkload(p)
	b.markIgnored(p)
}

// markWorkload marks the services that have p as a member, or may have it now.
func (b *Builder) markWorkload(p *WorkloadSpec) {
	id := p.id()
	maps.Copy(b.staleServices, b.workloads[id].services)
	for _, a := range p.Addresses {
		b.staleAddresses.add(p.location(a))
		maps.Copy(b.staleServices, b.bySliceAddress[a])
	}
	if !p.Host {
		maps.Copy(b.staleServices, b.bySlicePod[name{id.namespace, id.name}])
	}
	for k, v := range p.Labels {
		for n := range b.bySelector[label{id.namespace, k, v}] {
			if s := b.services[n]; len(s.slices) == 0 && selects(s.spec.Selector, p.Labels) {
				b.staleServices.add(n)
			}
		}
	}
}

// sortedSlices returns the slices by name: which of two duplicates counts must not depend on
// the order of a map.
func (s *service) sortedSlices() []*SliceSpec {
	return slices.SortedFunc(maps.Keys(s.slices), func(a, b *SliceSpec) int { return cmp.Compare(a.Name, b.Name) })
}
