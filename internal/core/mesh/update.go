package mesh

import (
	"reflect"
	"slices"
)

// updateWorkload computes a workload again. If it changed, it marks the services that have
// it as an endpoint.
func (b *Builder) updateWorkload(id workloadID, e *edit[workloadID, *Workload], authorization *edit[workloadID, *Authorization]) {
	w := b.workloads[id]
	if w.spec == nil {
		delete(b.workloads, id)
		b.forgetAuthorization(id, authorization)
		if w.current != nil {
			e.delete(id)
		}
		return
	}
	next := w.spec.Workload
	next.Ports = nil
	for _, n := range b.servicesOf(id) {
		for _, p := range b.services[n].workloadPorts[id] {
			next.Ports = addPort(next.Ports, p.Number, p.Protocol)
		}
	}
	b.applyPolicies(&next)
	b.authorize(id, &next, authorization).requireIdentity(&next)
	if w.current != nil && reflect.DeepEqual(*w.current, next) {
		return
	}
	w.current = &next
	e.set(id, &next)
	for n := range w.services {
		b.staleServices.add(n)
	}
}

// updateService computes a service again, from its members and the current workloads.
func (b *Builder) updateService(n name, e *edit[string, *Service]) {
	s := b.services[n]
	if s.spec != nil && s.routes == nil {
		s.routes = b.routes(n, s.spec)
	}
	if s.policies == nil {
		s.policies = b.backendPolicies(n, s.spec)
	}
	b.updateConflicts(n, s)
	if s.spec == nil {
		if s.current != nil {
			e.delete(s.current.Host)
			s.current = nil
		}
		if len(s.slices) == 0 {
			delete(b.services, n)
		}
		return
	}
	next := &Service{
		Name: n.name, Namespace: n.namespace, Host: b.config.host(n.namespace, n.name),
		Addresses: b.addresses(n, s.spec), External: s.spec.External, Headless: s.spec.Headless, ExportTo: s.spec.ExportTo, Traffic: s.spec.Traffic,
		Ports: s.spec.ports(), Endpoints: b.endpoints(s), Policies: s.policies.ports, Routes: s.routes.routes, RoutesLeftOut: s.routes.excess,
	}
	next.Topological = next.Traffic != AnyTraffic || slices.ContainsFunc(next.Endpoints, func(e Endpoint) bool { return e.ForZones != "" || e.ForNodes != "" })
	if s.current != nil && same(s.current, next) {
		return
	}
	s.current = next
	e.set(next.Host, next)
}

func (s *ServiceSpec) ports() []Port {
	if len(s.Ports) == 0 {
		return nil
	}
	out := make([]Port, len(s.Ports))
	for i, p := range s.Ports {
		out[i] = p.Port
	}
	slices.SortStableFunc(out, func(a, b Port) int { return int(a.Number) - int(b.Number) })
	return out
}

func (b *Builder) endpoints(s *service) []Endpoint {
	if len(s.members) == 0 {
		return nil
	}
	out := make([]Endpoint, len(s.members))
	for i, m := range s.members {
		out[i] = m.Endpoint
		if w := b.workloads[m.workload]; w != nil {
			out[i].Workload = w.current
		}
	}
	return out
}

// same compares endpoints first, by their pointers: they are the largest part of a service,
// and change most often.
func same(a, b *Service) bool {
	if !slices.Equal(a.Endpoints, b.Endpoints) {
		return false
	}
	x, y := *a, *b
	x.Endpoints, y.Endpoints = nil, nil
	return reflect.DeepEqual(x, y)
}
