package build

import (
	"maps"
	"slices"

	"outrider.dev/internal/core/mesh"
)

// maxMembersOfNamespace bounds the endpoints of a namespace's services, each as often as its slice has
// ports: a slice of 100 KB may have 100,000, of 500 bytes each in memory. The first services by name
// that fit have theirs. Kubernetes is tried with 10,000 pods in a namespace at most.
const maxMembersOfNamespace = 50_000

// sizes are how many members the slices of services have.
type sizes struct {
	of    map[string]*namespaceSize // by namespace
	stale set[string]               // namespaces
}

type namespaceSize struct {
	all  int
	of   map[string]int // by service
	left set[string]    // services that are left out
}

// set counts a slice, or takes it away.
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

// update finds which services are left out, and returns those that are or were.
func (s *sizes) update() set[mesh.Key] {
	var out set[mesh.Key]
	for namespace := range s.stale.take() {
		of := s.of[namespace]
		before := of.left
		of.choose()
		for _, left := range []set[string]{before, of.left} {
			for service := range left { // any order: a set
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

// fits reports whether a service has its members: those before it in its namespace leave room.
func (s *sizes) fits(n mesh.Key) bool {
	of := s.of[n.Namespace]
	if of == nil {
		return true
	}
	_, left := of.left[n.Name]
	return !left
}
