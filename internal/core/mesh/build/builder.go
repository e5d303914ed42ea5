// Package build makes snapshots of a mesh from the objects of a source. The cost of a new snapshot depends on
// what has changed.
//
// A [Builder] stores the objects, which may arrive in any order and refer to objects that do not exist yet.
// Its state is divided among these types, and the fields of each type are written only by its own methods:
// services, workloads, addresses, sizes, zones, routes, grants, backendPolicies, authorizations,
// peerAuthentications and ignored. Methods also mark the services and workloads that must be computed again.
package build

import "outrider.dev/internal/core/mesh"

// A Builder stores the parts of a mesh and makes snapshots of it. It is not safe for concurrent use.
//
// It works in two steps. Set and Delete change the parts, and mark the services and workloads that may be
// affected. Mesh computes the marked ones again, in this order: the members of services; then workloads,
// because their ports depend on their services; then services, because their endpoints point to workloads. An
// unchanged object keeps its pointer.
type Builder struct {
	// OnlyMesh is set if all objects are for this mesh. Otherwise some may be for another mesh in the
	// cluster, and an ignored object is reported only if it applies to a workload with Outrider's proxy.
	OnlyMesh bool

	config  mesh.Config
	parts   map[mesh.Key]mesh.Part
	current *mesh.Mesh

	services            services
	workloads           workloads
	addresses           addresses
	sizes               sizes
	zones               zones
	routes              routes
	grants              grants
	backendPolicies     backendPolicies
	authorizations      authorizations
	peerAuthentications peerAuthentications
	ignored             ignored
}

// New returns a builder for an empty mesh.
func New(config mesh.Config) *Builder {
	config = config.Complete()
	return &Builder{
		config: config, parts: map[mesh.Key]mesh.Part{}, current: mesh.Of(config, mesh.Tables{}),
		services:       services{byName: map[mesh.Key]*service{}, conflicts: map[mesh.Key][]Conflict{}},
		workloads:      workloads{byID: map[mesh.Key]*workload{}},
		addresses:      addresses{residents: map[mesh.Location][]mesh.Key{}},
		sizes:          sizes{of: map[string]*namespaceSize{}},
		zones:          zones{of: map[string]map[namedZone]int{}},
		authorizations: authorizations{root: config.RootNamespace, digests: map[*mesh.AuthorizationSpec]string{}},
		ignored:        ignored{root: config.RootNamespace},
	}
}

// Mesh returns the mesh that consists of the given parts. If two parts have the same key, the later one is
// used.
func Mesh(config mesh.Config, parts ...mesh.Part) *mesh.Mesh {
	b := New(config)
	b.Set(parts...)
	return b.Mesh()
}

// Set adds parts, or replaces those with the same keys.
func (b *Builder) Set(parts ...mesh.Part) {
	for _, p := range parts {
		b.Delete(p.Key())
		b.parts[p.Key()] = p
		b.index(p, true)
	}
}

// Delete removes parts. It ignores keys without a part.
func (b *Builder) Delete(keys ...mesh.Key) {
	for _, k := range keys {
		if old, ok := b.parts[k]; ok {
			delete(b.parts, k)
			b.index(old, false)
		}
	}
}

// index adds a part to the tables, or removes it from them, and marks what depends on it.
func (b *Builder) index(p mesh.Part, present bool) {
	switch p := p.(type) {
	case *mesh.ServiceSpec:
		b.services.set(p, present)
		b.addresses.setService(p, present)
		b.services.attachAgain(b.routes.to(p.Key()))
	case *mesh.SliceSpec:
		b.zones.set(p, present)
		b.services.setSlice(p, present)
		b.sizes.set(p, present)
	case *mesh.WorkloadSpec:
		b.workloads.set(p, present)
		b.addresses.setWorkload(p, present)
		b.services.markOf(p, b.workloads.touch(p.Key()).services)
		b.ignored.markOf(p)
	case *mesh.PolicySpec:
		b.peerAuthentications.set(p, present)
		b.workloads.mark(p.Namespace, p.Namespace == b.config.RootNamespace, nil)
	case *mesh.AuthorizationSpec:
		b.authorizations.set(p, present)
		b.workloads.mark(p.Namespace, p.Namespace == b.config.RootNamespace, p.Selector)
		if s := p.Unenforced; s != nil && !(s.OtherRoot && b.config.RootNamespace == mesh.IstioRoot) {
			b.ignored.set(s, present)
		}
	case *mesh.RouteSpec:
		b.routes.set(p, present)
		b.services.attachAgain(set[*mesh.RouteSpec]{p: {}})
	case *mesh.GrantSpec:
		b.grants.set(p, present)
		for _, from := range p.From {
			b.services.attachAgain(b.routes.into(from, p.Namespace))
		}
	case *mesh.BackendPolicySpec:
		b.backendPolicies.set(p, present)
		for _, t := range p.Targets {
			b.services.chooseAgain(mesh.Key{Kind: mesh.KindService, Namespace: p.Namespace, Name: t.Name})
		}
	case *mesh.IgnoredSpec:
		b.ignored.set(p, present)
	}
}

// Mesh returns a snapshot of the current parts. If nothing has changed, it returns the previous snapshot.
func (b *Builder) Mesh() *mesh.Mesh {
	b.services.markAll(b.addresses.contested())
	b.services.markAll(b.sizes.update())
	var changed set[mesh.Key]
	for n := range b.services.stale {
		b.updateMembers(n, &changed)
	}
	for id := range changed { // computed once for each workload, however many of its services changed
		b.workloads.hosts.Put(id, b.hostsOf(id))
	}
	for id := range b.workloads.stale {
		b.updateWorkload(id)
	}
	for n := range b.services.stale {
		b.updateService(n)
	}
	b.services.stale.take()
	b.workloads.stale.take()
	b.addresses.update(b.config)
	b.ignored.update(func(s *mesh.IgnoredSpec) bool { return b.OnlyMesh || b.selectsOwn(s) })
	b.zones.update()
	b.grants.update()
	b.authorizations.update()
	for k := range b.routes.stale.take() {
		is, _ := b.parts[k].(*mesh.RouteSpec)
		b.routes.table.Put(k, is)
	}
	next := mesh.Tables{
		Services: b.services.table.Version(), VIPs: b.addresses.vips.Version(), Workloads: b.workloads.table.Version(), Addresses: b.addresses.table.Version(),
		ServicesOf: b.workloads.hosts.Version(), Ignored: b.ignored.table.Version(), Zones: b.zones.table.Version(), Routes: b.routes.table.Version(),
		Grants: b.grants.table.Version(), Authorizations: b.authorizations.table.Version(), Guarded: b.authorizations.guarded.Version(),
	}
	if next != b.current.Tables() {
		b.current = mesh.Of(b.config, next)
	}
	return b.current
}
