package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// A Mesh is a snapshot. It does not change, and is safe for concurrent use; the zero value
// is an empty mesh. What it returns is shared and must not be changed.
type Mesh struct {
	Config Config // complete: no field is empty

	services   *index[string, *Service]      // by host
	vips       *index[netip.Addr, string]    // hosts
	workloads  *index[workloadID, *Workload] //
	addresses  *index[location, workloadID]  //
	servicesOf *index[workloadID, *[]string] // hosts of the services of a workload
	ignored    *index[string, *ignoredList]  // by namespace

	nodes *index[string, string] // zones, by node

	routes        *index[Key, *RouteSpec]
	grants        *index[grant, bool]
	authorization *index[workloadID, *Authorization]
	guarded       *index[string, bool] // namespaces with AuthorizationPolicies

	sorted sync.Once
	byHost []*Service
	byName []*Workload
}

// A workloadID identifies a workload: a pod and a host may have the same name.
type workloadID struct {
	namespace, name string
	host            bool
}

func (w *Workload) id() workloadID { return workloadID{w.Namespace, w.Name, w.Host} }

func (id workloadID) compare(other workloadID) int {
	return cmp.Or(cmp.Compare(id.namespace, other.namespace), cmp.Compare(id.name, other.name), compareBool(id.host, other.host))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// New returns the mesh of some parts. Of two parts with the same key the later one counts.
func New(config Config, parts ...Part) *Mesh {
	b := NewBuilder(config)
	b.Set(parts...)
	return b.Mesh()
}

// Service returns the service with that [Service.Host], or nil.
func (m *Mesh) Service(host string) *Service { return m.services.get(host) }

// ByName returns the service of a Kubernetes name, or nil.
func (m *Mesh) ByName(namespace, name string) *Service {
	return m.services.get(m.Config.host(namespace, name))
}

// ByAddress returns the service with that virtual address, or nil. Of several it is the
// first by namespace and name.
func (m *Mesh) ByAddress(addr netip.Addr) *Service {
	host := m.vips.get(addr.Unmap())
	if host == "" {
		return nil
	}
	return m.services.get(host)
}

// Workload returns the workload that clients of a namespace find at an address: a pod, else a
// Host of theirs, or nil. Pods on their node's network are not found: they share the address.
func (m *Mesh) Workload(addr netip.Addr, namespace string) *Workload {
	addr = addr.Unmap()
	id := cmp.Or(m.addresses.get(location{addr: addr}), m.addresses.get(location{namespace, addr}))
	return m.workloads.get(id)
}

// Pod returns the pod of that name, or nil.
func (m *Mesh) Pod(namespace, name string) *Workload {
	return m.workloads.get(workloadID{namespace, name, false})
}

// Host returns the host outside of Kubernetes of that name, or nil.
func (m *Mesh) Host(namespace, name string) *Workload {
	return m.workloads.get(workloadID{namespace, name, true})
}

// ServicesOf returns the services of w's namespace that have it as an endpoint, by host.
func (m *Mesh) ServicesOf(w *Workload) []*Service {
	hosts := m.servicesOf.get(w.id())
	if hosts == nil {
		return nil
	}
	out := make([]*Service, 0, len(*hosts))
	for _, h := range *hosts {
		out = append(out, m.services.get(h))
	}
	return out
}

// Services returns all services, by host. The first call on a snapshot sorts them, which is
// expensive.
func (m *Mesh) Services() []*Service {
	m.sort()
	return m.byHost
}

// Workloads returns all workloads, by namespace and name. It sorts as Services does.
func (m *Mesh) Workloads() []*Workload {
	m.sort()
	return m.byName
}

// Len returns the numbers of services and workloads.
func (m *Mesh) Len() (services, workloads int) { return m.services.len(), m.workloads.len() }

func (m *Mesh) sort() {
	m.sorted.Do(func() {
		for _, s := range m.services.all() {
			m.byHost = append(m.byHost, s)
		}
		for _, w := range m.workloads.all() {
			m.byName = append(m.byName, w)
		}
		slices.SortFunc(m.byHost, func(a, b *Service) int { return strings.Compare(a.Host, b.Host) })
		slices.SortFunc(m.byName, func(a, b *Workload) int { return a.id().compare(b.id()) })
	})
}

// A Change of one object. Old is nil for a new one, New for one that is gone.
type Change[T any] struct{ Old, New *T }

// Changed returns the differences between two snapshots of one source, by host and by
// name. Its cost goes with the shards that they do not share.
func Changed(old, new *Mesh) (services []Change[Service], workloads []Change[Workload]) {
	diff(old.services, new.services, func(_ string, was, is *Service) {
		services = append(services, Change[Service]{was, is})
	})
	diff(old.workloads, new.workloads, func(_ workloadID, was, is *Workload) {
		workloads = append(workloads, Change[Workload]{was, is})
	})
	slices.SortFunc(services, func(a, b Change[Service]) int {
		return strings.Compare(cmp.Or(a.New, a.Old).Host, cmp.Or(b.New, b.Old).Host)
	})
	slices.SortFunc(workloads, func(a, b Change[Workload]) int {
		return cmp.Or(a.New, a.Old).id().compare(cmp.Or(b.New, b.Old).id())
	})
	return services, workloads
}
