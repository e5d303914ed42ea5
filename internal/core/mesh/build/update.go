package build

import (
	"reflect"
	"slices"

	"outrider.dev/internal/core/mesh"
)

// updateMembers computes the members of a service. It marks the workloads whose ports have changed. It adds
// the workloads that joined or left the service to the set changed.
func (b *Builder) updateMembers(n mesh.Key, changed *set[mesh.Key]) {
	s := b.services.byName[n]
	s.members, s.proxyPorts = b.members(n, s)
	old, next := s.workloadPorts, s.portsByWorkload()
	for id := range old {
		if _, still := next[id]; !still {
			b.workloads.leave(id, n)
			changed.add(id)
		}
	}
	for id, ports := range next {
		was, had := old[id]
		if had && slices.Equal(ports, was) {
			continue
		}
		b.workloads.join(id, n)
		if !had {
			changed.add(id)
		}
	}
	s.workloadPorts = next
}

// updateWorkload computes a workload again. If it has changed, it marks the services that have it as an
// endpoint.
func (b *Builder) updateWorkload(id mesh.Key) {
	w := b.workloads.byID[id]
	if w.spec == nil {
		b.workloads.update(id, nil)
		b.authorizations.forget(id)
		b.workloads.table.Put(id, nil)
		return
	}
	next := w.spec.Workload
	next.Ports = nil
	for _, n := range b.servicesOf(id) {
		for _, p := range b.services.byName[n].workloadPorts[id] {
			next.Ports = addPort(next.Ports, p.Number, p.Protocol)
		}
	}
	b.peerAuthentications.apply(&next, b.config.RootNamespace)
	requireIdentity(b.authorizations.authorize(id, &next), &next)
	if w.current != nil && reflect.DeepEqual(*w.current, next) {
		return
	}
	b.workloads.update(id, &next)
	b.workloads.table.Put(id, &next)
	b.services.markAll(w.services)
}

// updateService computes a service again, from its members and the current workloads.
func (b *Builder) updateService(n mesh.Key) {
	s := b.services.byName[n]
	if s.spec != nil && s.routes == nil {
		s.routes = b.routesOf(s.spec)
	}
	if s.policies == nil {
		s.policies = b.backendPolicies.of(n, s.spec)
	}
	b.services.report(n, slices.Concat(s.policies.conflicts, b.ignoredParts(n, s)))
	host := b.config.Host(n.Namespace, n.Name)
	if s.spec == nil {
		b.services.table.Put(host, nil)
		s.current = nil
		b.services.forget(n)
		return
	}
	next := &mesh.Service{
		Name: n.Name, Namespace: n.Namespace, Host: host,
		Addresses: b.addresses.of(s.spec), External: s.spec.External, Headless: s.spec.Headless, ExportTo: s.spec.ExportTo, Traffic: s.spec.Traffic, Affinity: s.spec.Affinity,
		Ports: s.spec.ServicePorts(), Endpoints: b.endpoints(s), Policies: s.policies.ports, Routes: s.routes.routes, RoutesLeftOut: s.routes.excess,
	}
	next.Topological = next.Traffic != mesh.AnyTraffic || slices.ContainsFunc(next.Endpoints, func(e mesh.Endpoint) bool { return e.ForZones != "" || e.ForNodes != "" })
	if next.Traffic == mesh.OnlyNode {
		next.OnNode = mesh.ByNode(next.Endpoints)
	}
	if s.current != nil && same(s.current, next) {
		return
	}
	s.current = next
	b.services.table.Put(host, next)
}

func (b *Builder) endpoints(s *service) []mesh.Endpoint {
	if len(s.members) == 0 {
		return nil
	}
	out := make([]mesh.Endpoint, len(s.members))
	for i, m := range s.members {
		out[i] = m.Endpoint
		if w := b.workloads.byID[m.workload]; w != nil {
			out[i].Workload = w.current
		}
	}
	return out
}

// same reports whether two versions of a service are equal. It compares the endpoints first, by their fields
// and the pointers to workloads, because they are the largest part of a service and change most often.
func same(a, b *mesh.Service) bool {
	if !slices.Equal(a.Endpoints, b.Endpoints) {
		return false
	}
	x, y := *a, *b
	x.Endpoints, y.Endpoints, x.OnNode, y.OnNode = nil, nil, nil, nil
	return reflect.DeepEqual(x, y)
}
