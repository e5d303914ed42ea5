package build

import (
	"maps"
	"slices"

	"outrider.dev/internal/core/mesh"
)

// maxMembersOfNamespace is the maximum number of endpoints of a namespace's services, each multiplied by the
// ports of its slice. A slice of 100 KB may have 100,000, which take 500 bytes of memory each. If the
// namespace has more, services get their endpoints in the order of their names, as long as these fit.
// Kubernetes is tested with at most 10,000 pods in a namespace.
const maxMembersOfNamespace = 50_000

// sizes counts the endpoints in the slices of services, each multiplied by the ports of its slice.
type sizes struct {
	of    map[string]*namespaceSize // counts by namespace
	stale set[string]               // namespaces to be computed again
}

type namespaceSize struct {
	all  int
	of   map[string]int // endpoints by service
	left set[string]    // services without endpoints, because the limit is exceeded
}

// set adds a slice to the counts, or subtracts it.
func (s *sizes) set(p *mesh.SliceSpec, present bool) {
	size := 0
	for i := range p.Endpoints {
		size += len(p.Endpoints[i].Addresses) * len(p.Ports)
	}
	if !present {
		size = -size
	}
	of := s.of[p.Namespace]
	if of == nil {
		of = &namespaceSize{of: map[string]int{}}
		s.of[p.Namespace] = of
	}
	of.all += size
	if of.of[p.Service] += size; of.of[p.Service] == 0 {
		delete(of.of, p.Service)
	}
	s.stale.add(p.Namespace)
}

// update decides which services do not fit. It returns those that do not fit now or did not before.
func (s *sizes) update() set[mesh.Key] {
	var out set[mesh.Key]
	for namespace := range s.stale.take() {
		of := s.of[namespace]
		before := of.left
		of.choose()
		for _, left := range []set[string]{before, of.left} {
			for service := range left { // any order: the result is a set
				out.add(mesh.Key{Kind: mesh.KindService, Namespace: namespace, Name: service})
			}
		}
		if len(of.of) == 0 {
			delete(s.of, namespace)
		}
	}
	return out
}

func (of *namespaceSize) choose() {
	of.left = nil
	if room := maxMembersOfNamespace; of.all > room {
		for _, service := range slices.Sorted(maps.Keys(of.of)) {
			if of.of[service] > room {
				of.left.add(service)
			} else {
				room -= of.of[service]
			}
		}
	}
}

// fits reports whether a service gets its members, because they are within the limit of its namespace.
func (s *sizes) fits(n mesh.Key) bool {
	of := s.of[n.Namespace]
	if of == nil {
		return true
	}
	_, left := of.left[n.Name]
	return !left
}
