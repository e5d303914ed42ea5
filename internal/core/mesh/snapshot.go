package mesh

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"outrider.dev/internal/core/mesh/persistent"
)

// A Mesh is a snapshot. It does not change, and is safe for concurrent use; the zero value
// is an empty mesh. What it returns is shared and must not be changed.
type Mesh struct {
	Config Config // complete: no field is empty

	tables Tables

	sorted sync.Once
	byHost []*Service
	byName []*Workload
}

// Tables are the parts of a snapshot, as package build computes them.
type Tables struct {
	Services       *persistent.Map[string, *Service]     // by host
	VIPs           *persistent.Map[netip.Addr, string]   // hosts
	Workloads      *persistent.Map[Key, *Workload]       //
	Addresses      *persistent.Map[Location, Key]        // of workloads
	ServicesOf     *persistent.Map[Key, *[]string]       // hosts of the services of a workload
	Ignored        *persistent.Map[string, *IgnoredList] // by namespace
	Zones          *persistent.Map[string, string]       // by node
	Routes         *persistent.Map[Key, *RouteSpec]      //
	Grants         *persistent.Map[Grant, bool]          //
	Authorizations *persistent.Map[Key, *Authorization]  // by workload
	Guarded        *persistent.Map[string, bool]         // namespaces with AuthorizationPolicies
}

// Of returns the mesh of some tables; a configuration is complete.
func Of(c Config, t Tables) *Mesh { return &Mesh{Config: c, tables: t} }

// Tables returns what m was made of.
func (m *Mesh) Tables() Tables { return m.tables }

// A Location is where a workload is found: a pod at its address by all clients, a Host by those of
// its namespace alone. The cluster gave the pod its address. The author of a Host wrote its address down,
// and could take other people's connections.
type Location struct {
	Namespace string // of a Host
	Addr      netip.Addr
}

// Location returns where w is found at one of its addresses.
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

// Service returns the service with that [Service.Host], or nil.
func (m *Mesh) Service(host string) *Service { return m.tables.Services.Get(host) }

// ByName returns the service of a Kubernetes name, or nil.
func (m *Mesh) ByName(namespace, name string) *Service {
	return m.tables.Services.Get(m.Config.Host(namespace, name))
}

// ByAddress returns the service with that virtual address, or nil. Of several it is the
// first by namespace and name.
func (m *Mesh) ByAddress(addr netip.Addr) *Service {
	host := m.tables.VIPs.Get(addr.Unmap())
	if host == "" {
		return nil
	}
	return m.tables.Services.Get(host)
}

// Workload returns the workload that clients of a namespace find at an address: a pod, else a
// Host of theirs, or nil. Pods on their node's network are not found: they share the address.
func (m *Mesh) Workload(addr netip.Addr, namespace string) *Workload {
	addr = addr.Unmap()
	id := cmp.Or(m.tables.Addresses.Get(Location{Addr: addr}), m.tables.Addresses.Get(Location{namespace, addr}))
	return m.tables.Workloads.Get(id)
}

// Pod returns the pod of that name, or nil.
func (m *Mesh) Pod(namespace, name string) *Workload {
	return m.tables.Workloads.Get(Key{KindPod, namespace, name})
}

// Host returns the host outside of Kubernetes of that name, or nil.
func (m *Mesh) Host(namespace, name string) *Workload {
	return m.tables.Workloads.Get(Key{KindHost, namespace, name})
}

// ServicesOf returns the services of w's namespace that have it as an endpoint, by host.
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

// A Change of one object. Old is nil for a new one, New for one that is gone.
type Change[T any] struct{ Old, New *T }

// Changed returns the differences between two snapshots of one source, by host and by
// name. Its cost goes with the shards that they do not share.
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
