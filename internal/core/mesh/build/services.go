package build

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// A service is the state of the builder for one service.
type service struct {
	spec          *mesh.ServiceSpec
	slices        set[*mesh.SliceSpec]
	members       []member
	proxyPorts    []member                    // endpoints at ports of proxies, which are excluded from the members
	workloadPorts map[mesh.Key][]mesh.AppPort // ports of its members' workloads, without their TLS modes
	routes        *routeSet                   // nil: to be computed again
	policies      *policySet                  // nil: to be computed again
	current       *mesh.Service
}

// sortedSlices returns the slices, sorted by name. If an endpoint is in two of them, the one that is used
// must not depend on the order of a map.
func (s *service) sortedSlices() []*mesh.SliceSpec {
	return slices.SortedFunc(maps.Keys(s.slices), func(a, b *mesh.SliceSpec) int { return cmp.Compare(a.Name, b.Name) })
}

// sliced reports whether a service has its endpoints from slices.
func (s *service) sliced() bool {
	for p := range s.slices { // any order: one suffices
		if !p.Names {
			return true
		}
	}
	return false
}

// services contains the services that exist, and the names to which other objects refer, with indexes for
// their dependencies.
type services struct {
	byName         map[mesh.Key]*service
	bySelector     multimap[label, mesh.Key]      // services by one label in their selector
	bySliceAddress multimap[netip.Addr, mesh.Key] // services with the address in a slice
	bySlicePod     multimap[mesh.Key, mesh.Key]   // services with the pod in a slice
	conflicts      map[mesh.Key][]Conflict        // also contains names without a Service that policies target
	stale          set[mesh.Key]
	table          persistent.Table[string, *mesh.Service] // services by host
}

// touch marks a service and returns its state. If the service has no state yet, touch creates it.
func (s *services) touch(n mesh.Key) *service {
	of, ok := s.byName[n]
	if !ok {
		of = &service{}
		s.byName[n] = of
	}
	s.stale.add(n)
	return of
}

// spec returns the Service with a name, or nil.
func (s *services) spec(n mesh.Key) *mesh.ServiceSpec {
	if of := s.byName[n]; of != nil {
		return of.spec
	}
	return nil
}

func (s *services) set(p *mesh.ServiceSpec, present bool) {
	of := s.touch(p.Key())
	of.spec, of.routes, of.policies = nil, nil, nil
	if present {
		of.spec = p
	}
	if len(p.Selector) > 0 {
		s.bySelector.set(selectorKey(p.Namespace, p.Selector), p.Key(), present)
	}
}

func (s *services) setSlice(p *mesh.SliceSpec, present bool) {
	n := mesh.Key{Kind: mesh.KindService, Namespace: p.Namespace, Name: p.Service}
	of := s.touch(n)
	if present {
		of.slices.add(p)
	} else {
		delete(of.slices, p)
	}
	for _, e := range p.Endpoints {
		if e.Pod != "" {
			s.bySlicePod.set(mesh.Key{Kind: mesh.KindPod, Namespace: p.Namespace, Name: e.Pod}, n, present)
		}
		for _, a := range e.Addresses {
			s.bySliceAddress.set(a, n, present)
		}
	}
	if !present {
		for left := range of.slices { // other slices may contain the same endpoints
			s.setSlice(left, true)
		}
	}
}

// markAll marks the services with the given names that exist.
func (s *services) markAll(names set[mesh.Key]) {
	for n := range names { // any order: marks are a set
		if s.byName[n] != nil {
			s.stale.add(n)
		}
	}
}

// markOf marks the services that a change of p affects: those in the set has, of which p is already a member,
// and those of which it may be a member now.
func (s *services) markOf(p *mesh.WorkloadSpec, has set[mesh.Key]) {
	s.stale.addAll(has)
	for _, a := range p.Addresses {
		s.stale.addAll(s.bySliceAddress[a])
	}
	s.stale.addAll(s.bySlicePod[p.Key()])
	for k, v := range p.Labels {
		for n := range s.bySelector[label{p.Namespace, k, v}] {
			if of := s.byName[n]; !of.sliced() && mesh.Selects(of.spec.Selector, p.Labels) {
				s.stale.add(n)
			}
		}
	}
}

// attachAgain marks the parents of these routes, so that the routes of the parents are computed again.
func (s *services) attachAgain(routes set[*mesh.RouteSpec]) {
	for r := range routes { // any order: marks are a set
		for _, p := range r.Parents {
			if n := p.Service(); s.byName[n] != nil {
				s.touch(n).routes = nil
			}
		}
	}
}

// chooseAgain marks a service, so that its policies are computed again.
func (s *services) chooseAgain(n mesh.Key) { s.touch(n).policies = nil }

// forget removes the state of a service that has no Service any more, unless it has slices.
func (s *services) forget(n mesh.Key) {
	if len(s.byName[n].slices) == 0 {
		delete(s.byName, n)
	}
}

// report replaces the reported conflicts of a service.
func (s *services) report(n mesh.Key, conflicts []Conflict) {
	delete(s.conflicts, n)
	if len(conflicts) > 0 {
		s.conflicts[n] = conflicts
	}
}
