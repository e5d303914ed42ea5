package build

import (
	"cmp"
	"net/netip"
	"slices"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// addresses determines the owner of each address. It is the pod with the address; otherwise, of the services
// with this virtual address, the first by namespace and name; otherwise the first Host with the address in
// the client's namespace, for clients in that namespace only.
type addresses struct {
	// residents contains the workloads at each location, sorted by key. A tenant may declare many Hosts with
	// one address; only the first is used.
	residents map[mesh.Location][]mesh.Key
	byVIP     multimap[netip.Addr, mesh.Key]

	stale     set[mesh.Location]
	staleVIPs set[netip.Addr]
	table     persistent.Table[mesh.Location, mesh.Key]
	vips      persistent.Table[netip.Addr, string] // hosts of services
}

func (x *addresses) setService(p *mesh.ServiceSpec, present bool) {
	for _, a := range p.Addresses {
		x.byVIP.set(a, p.Key(), present)
		x.staleVIPs.add(a)
	}
}

// setWorkload adds the addresses of a workload, or removes them. It ignores a pod on its node's network,
// because the node's address does not belong to the pod alone.
func (x *addresses) setWorkload(p *mesh.WorkloadSpec, present bool) {
	for _, a := range p.Addresses {
		at := p.Location(a)
		x.stale.add(at)
		i, has := slices.BinarySearchFunc(x.residents[at], p.Key(), mesh.Key.Compare)
		switch {
		case p.HostNetwork:
		case present && !has:
			x.residents[at] = slices.Insert(x.residents[at], i, p.Key())
		case has && !present && len(x.residents[at]) == 1:
			delete(x.residents, at)
		case has && !present:
			x.residents[at] = slices.Delete(x.residents[at], i, i+1)
		}
	}
}

// resident returns the first workload at a location; the zero key if there is none.
func (x *addresses) resident(at mesh.Location) mesh.Key {
	if list := x.residents[at]; len(list) > 0 {
		return list[0]
	}
	return mesh.Key{}
}

// service returns the service that owns a virtual address; the zero key if there is none.
func (x *addresses) service(addr netip.Addr) mesh.Key {
	if x.resident(mesh.Location{Addr: addr}) != (mesh.Key{}) {
		return mesh.Key{}
	}
	return smallest(x.byVIP[addr])
}

// owner returns the pod, service or Host that clients in a namespace reach at an address.
func (x *addresses) owner(addr netip.Addr, namespace string) mesh.Key {
	return cmp.Or(x.resident(mesh.Location{Addr: addr}), x.service(addr), x.resident(mesh.Location{Namespace: namespace, Addr: addr}))
}

// contested returns all services with an address whose owner may have changed.
func (x *addresses) contested() set[mesh.Key] {
	for at := range x.stale {
		if len(x.byVIP[at.Addr]) > 0 {
			x.staleVIPs.add(at.Addr)
		}
	}
	var out set[mesh.Key]
	for addr := range x.staleVIPs {
		out.addAll(x.byVIP[addr])
	}
	return out
}

// of returns those addresses of a service that the service owns.
func (x *addresses) of(spec *mesh.ServiceSpec) []netip.Addr {
	other := func(a netip.Addr) bool { return x.service(a) != spec.Key() }
	if !slices.ContainsFunc(spec.Addresses, other) {
		return spec.Addresses
	}
	return slices.DeleteFunc(slices.Clone(spec.Addresses), other)
}

// update writes the owners that may have changed into the tables.
func (x *addresses) update(config mesh.Config) {
	for addr := range x.staleVIPs.take() {
		host := ""
		if n := x.service(addr); n != (mesh.Key{}) {
			host = config.Host(n.Namespace, n.Name)
		}
		x.vips.Put(addr, host)
	}
	for at := range x.stale.take() {
		x.table.Put(at, x.resident(at))
	}
}
