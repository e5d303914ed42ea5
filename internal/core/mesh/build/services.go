package build

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// A service is the state of a builder about one.
type service struct {
	spec          *mesh.ServiceSpec
	slices        set[*mesh.SliceSpec]
	members       []member
	proxyPorts    []member                    // endpoints at ports of proxies, which are not members
	workloadPorts map[mesh.Key][]mesh.AppPort // of its members; without TLS
	routes        *routeSet                   // nil: they may have changed
	policies      *policySet                  // nil: they may have changed
	current       *mesh.Service
}

// sortedSlices returns the slices by name: which of two duplicates counts must not depend on
// the order of a map.
func (s *service) sortedSlices() []*mesh.SliceSpec {
	return slices.SortedFunc(maps.Keys(s.slices), func(a, b *mesh.SliceSpec) int { return cmp.Compare(a.Name, b.Name) })
}

// services that there are, or that an object names, and which of them depend on what.
type services struct {
	byName         map[mesh.Key]*service
	bySelector     multimap[label, mesh.Key]      // by one label of their selector
	bySliceAddress multimap[netip.Addr, mesh.Key] // with the address in a slice
	bySlicePod     multimap[mesh.Key, mesh.Key]   // with the pod in a slice
	conflicts      map[mesh.Key][]Conflict        // also of names without a Service, to which policies are attached
	stale          set[mesh.Key]
	table          persistent.Table[string, *mesh.Service] // by host
}

// touch returns the state of a service, new if need be, and marks it.
func (s *services) touch(n mesh.Key) *service {
	of, ok := s.byName[n]
	if !ok {
		of = &service{}
		s.byName[n] = of
	}
	s.stale.add(n)
	return of
}

// spec returns the Service of a name, or nil.
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
		for left := range of.slices { // which may have the same ones
			s.setSlice(left, true)
		}
	}
}

// markAll marks those of some names that there are.
func (s *services) markAll(names set[mesh.Key]) {
	for n := range names { // any order: a set
		if s.byName[n] != nil {
			s.stale.add(n)
		}
	}
}

// markOf marks the services that have p as a member, which has has, or may have it now.
func (s *services) markOf(p *mesh.WorkloadSpec, has set[mesh.Key]) {
	s.stale.addAll(has)
	for _, a := range p.Addresses {
		s.stale.addAll(s.bySliceAddress[a])
	}
	s.stale.addAll(s.bySlicePod[p.Key()])
	for k, v := range p.Labels {
		for n := range s.bySelector[label{p.Namespace, k, v}] {
			if of := s.byName[n]; len(of.slices) == 0 && mesh.Selects(of.spec.Selector, p.Labels) {
				s.stale.add(n)
			}
		}
	}
}

// attachAgain has the routes of the parents of some routes computed again.
func (s *services) attachAgain(routes set[*mesh.RouteSpec]) {
	for r := range routes { // any order: a set
		for _, p := range r.Parents {
			if n := p.Service(); s.byName[n] != nil {
				s.touch(n).routes = nil
			}
		}
	}
}

// chooseAgain has the policies of a service computed again.
func (s *services) chooseAgain(n mesh.Key) { s.touch(n).policies = nil }

// forget removes a service of which nothing is left.
func (s *services) forget(n mesh.Key) {
	if len(s.byName[n].slices) == 0 {
		delete(s.byName, n)
	}
}

// report replaces the conflicts of a service.
func (s *services) report(n mesh.Key, conflicts []Conflict) {
	delete(s.conflicts, n)
	if len(conflicts) > 0 {
		s.conflicts[n] = conflicts
	}
}
