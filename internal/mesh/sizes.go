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
	all int
	of  map[string]int // by service
}

// resize counts a slice, or takes it away. Where the bound is passed, or was, every service of the
// namespace may change.
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
	most := max(of.all, of.all+size)
	of.all += size
	if of.of[p.Service] += size; of.of[p.Service] == 0 {
		delete(of.of, p.Service)
	}
	if most > maxMembersOfNamespace {
		for service := range of.of { // any order: a set
			b.staleServices.add(name{p.Namespace, service})
		}
	}
	if len(of.of) == 0 {
		delete(b.sizes, p.Namespace)
	}
}

// fits reports whether a service has its members: those before it in its namespace leave room.
func (b *Builder) fits(n name) bool {
	of := b.sizes[n.namespace]
	if of == nil || of.all <= maxMembersOfNamespace {
		return true
	}
	room := maxMembersOfNamespace
	for _, service := range slices.Sorted(maps.Keys(of.of)) {
		if of.of[service] > room {
			if service == n.name {
				return false
			}
			continue
		}
		if room -= of.of[service]; service == n.name {
			return true
		}
	}
	return true
}
