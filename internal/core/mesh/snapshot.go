package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"outrider.dev/internal/core/mesh/persistent"
)

// A Mesh is an immutable snapshot, and safe for concurrent use. The zero value is an empty mesh. Its
// methods return shared values that must not be changed.
type Mesh struct {
	Config Config // complete: no field is empty

	tables Tables

	sorted sync.Once
	byHost []*Service
	byName []*Workload
}

// Tables contain the data of a snapshot, as computed by package build.
type Tables struct {
	Services       *persistent.Map[string, *Service]     // services by host
	VIPs           *persistent.Map[netip.Addr, string]   // hosts of services, by virtual address
	Workloads      *persistent.Map[Key, *Workload]       //
	Addresses      *persistent.Map[Location, Key]        // keys of workloads
	ServicesOf     *persistent.Map[Key, *[]string]       // hosts of a workload's services
	Ignored        *persistent.Map[string, *IgnoredList] // lists by namespace
	Zones          *persistent.Map[string, string]       // zones by node
	Routes         *persistent.Map[Key, *RouteSpec]      //
	Grants         *persistent.Map[Grant, bool]          //
	Authorizations *persistent.Map[Key, *Authorization]  // policies by workload
	Guarded        *persistent.Map[string, bool]         // namespaces with AuthorizationPolicies
}

// Of returns a mesh with these tables. The configuration must have no empty fields, see [Config.Complete].
func Of(c Config, t Tables) *Mesh { return &Mesh{Config: c, tables: t} }

// Tables returns the tables of m, which must not be changed.
func (m *Mesh) Tables() Tables { return m.tables }

// A Location is the key by which a workload is found. All clients find a pod at its address, because the
// cluster assigned that address. Only clients in the same namespace find a Host: its author chose the
// address, and could otherwise divert the connections of other tenants.
type Location struct {
	Namespace string // namespace of a Host; empty for a pod
	Addr      netip.Addr
}

// Location returns the key by which clients find w at one of its addresses.
func (w *Workload) Location(addr netip.Addr) Location {
	if w.Host {
		return Location{w.Namespace, addr}
	}
	return Location{Addr: addr}
}

// CompareBool orders false before true.
func CompareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Service returns the service with the given [Service.Host], or nil.
func (m *Mesh) Service(host string) *Service { return m.tables.Services.Get(host) }

// ByName returns the service with a Kubernetes name, or nil.
func (m *Mesh) ByName(namespace, name string) *Service {
	return m.tables.Services.Get(m.Config.Host(namespace, name))
}

// ByAddress returns the service with a virtual address, or nil. If several services have the address, it
// returns the first by namespace and name.
func (m *Mesh) ByAddress(addr netip.Addr) *Service {
	host := m.tables.VIPs.Get(addr.Unmap())
	if host == "" {
		return nil
	}
	return m.tables.Services.Get(host)
}

// Workload returns the workload that clients in a namespace reach at an address: a pod, or otherwise a Host
// in their namespace; nil if there is neither. It does not find pods on their node's network, because they
// share the node's address.
func (m *Mesh) Workload(addr netip.Addr, namespace string) *Workload {
	addr = addr.Unmap()
	id := cmp.Or(m.tables.Addresses.Get(Location{Addr: addr}), m.tables.Addresses.Get(Location{namespace, addr}))
	return m.tables.Workloads.Get(id)
}

// Pod returns the pod with a name, or nil.
func (m *Mesh) Pod(namespace, name string) *Workload {
	return m.tables.Workloads.Get(Key{KindPod, namespace, name})
}

// Host returns the host outside of Kubernetes with a name, or nil.
func (m *Mesh) Host(namespace, name string) *Workload {
	return m.tables.Workloads.Get(Key{KindHost, namespace, name})
}

// ServicesOf returns the services in w's namespace of which w is an endpoint, sorted by host.
func (m *Mesh) ServicesOf(w *Workload) []*Service {
	hosts := m.tables.ServicesOf.Get(w.Key())
	if hosts == nil {
		return nil
	}
	out := make([]*Service, 0, len(*hosts))
	for _, h := range *hosts {
		out = append(out, m.tables.Services.Get(h))
	}
	return out
}

// Services returns all services, sorted by host. The first call for a snapshot is expensive, because it sorts
// them.
func (m *Mesh) Services() []*Service {
	m.sort()
	return m.byHost
}

// Workloads returns all workloads, sorted by namespace and name. The first call for a snapshot sorts them.
func (m *Mesh) Workloads() []*Workload {
	m.sort()
	return m.byName
}

// Len returns the numbers of services and workloads.
func (m *Mesh) Len() (services, workloads int) {
	return m.tables.Services.Len(), m.tables.Workloads.Len()
}

func (m *Mesh) sort() {
	m.sorted.Do(func() {
		for _, s := range m.tables.Services.All() {
			m.byHost = append(m.byHost, s)
		}
		for _, w := range m.tables.Workloads.All() {
			m.byName = append(m.byName, w)
		}
		slices.SortFunc(m.byHost, func(a, b *Service) int { return strings.Compare(a.Host, b.Host) })
		slices.SortFunc(m.byName, compareWorkloads)
	})
}

func compareWorkloads(a, b *Workload) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), CompareBool(a.Host, b.Host))
}

// A Change is a change of one object. Old is nil if the object was added, New if it was removed.
type Change[T any] struct{ Old, New *T }

// Changed returns the differences between two snapshots from one source, sorted by host and by name. Its cost
// depends on the number of shards that the snapshots do not share (package persistent).
func Changed(old, new *Mesh) (services []Change[Service], workloads []Change[Workload]) {
	persistent.Diff(old.tables.Services, new.tables.Services, func(_ string, was, is *Service) {
		services = append(services, Change[Service]{was, is})
	})
	persistent.Diff(old.tables.Workloads, new.tables.Workloads, func(_ Key, was, is *Workload) {
		workloads = append(workloads, Change[Workload]{was, is})
	})
	slices.SortFunc(services, func(a, b Change[Service]) int {
		return strings.Compare(cmp.Or(a.New, a.Old).Host, cmp.Or(b.New, b.Old).Host)
	})
	slices.SortFunc(workloads, func(a, b Change[Workload]) int {
		return compareWorkloads(cmp.Or(a.New, a.Old), cmp.Or(b.New, b.Old))
	})
	return services, workloads
}
