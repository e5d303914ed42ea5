package mesh

import (
	"maps"
	"slices"
)

// maxMembersOfNamespace bounds the endpoints of a namespace's services, each as often as its slice has
// ports: a slice of 100 KB may have 100,000, of 500 bytes each in memory. The first services by name
// that fit have theirs. Kubernetes is tried with 10,000 pods in a namespace at most.
const maxMembersOfNamespace = 50_000

// sizes are by namespace how many members the slices of its services have.
type sizes map[string]*namespaceSize

type namespaceSize struct {
	all  int
	of   map[string]int // by service
	left set[string]    // services that are left out
}

// resize counts a slice, or takes it away.
func (b *Builder) resize(p *SliceSpec, present bool) {
	size := 0
	for i := range p.Endpoints {
		size += len(p.Endpoints[i].Addresses) * len(p.Ports)
	}
	if !present {
		size = -size
	}
	of := b.sizes[p.Namespace]
	if of == nil {
		of = &namespaceSize{of: map[string]int{}}
		b.sizes[p.Namespace] = of
	}
	of.all += size
	if of.of[p.Service] += size; of.of[p.Service] == 0 {
		delete(of.of, p.Service)
	}
	b.staleSizes.add(p.Namespace)
}

// updateSizes finds which services of a namespace are left out, and marks those that are or were.
func (b *Builder) updateSizes(namespace string) {
	of := b.sizes[namespace]
	before := of.left
	of.left = nil
	if room := maxMembersOfNamespace; of.all > room {
		of.left = set[string]{}
		for _, service := range slices.Sorted(maps.Keys(of.of)) {
			if of.of[service] > room {
				of.left.add(service)
			} else {
				room -= of.of[service]
			}
		}
	}
	for _, left := range []set[string]{before, of.left} {
		for service := range left { // any order: a set
			if n := (name{namespace, service}); b.services[n] != nil {
				b.staleServices.add(n)
			}
		}
	}
	if len(of.of) == 0 {
		delete(b.sizes, namespace)
	}
}

// fits reports whether a service has its members: those before it in its namespace leave room.
func (b *Builder) fits(n name) bool {
	of := b.sizes[n.namespace]
	if of == nil {
		return true
	}
	_, left := of.left[n.name]
	return !left
}
