package mesh

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"outrider.dev/internal/base/contract"
)

// ProxyPorts are the ports on which every proxy accepts captured connections. A connection
// to one of them in a pod with a proxy reaches the proxy: none of them is a port of the
// application, whatever a service declares.
var ProxyPorts = []uint16{contract.OutboundPort, contract.InboundPort, contract.RelayOutbound, contract.RelayInbound}

// A Conflict is a valid object that is ignored, in part because of another object, or because
// of its kind.
type Conflict struct {
	Severity string // begins the sentence about it; empty: an error, as every problem without one
	Object   Key
	Field    string // its path in the object; empty: the object as a whole
	Message  string
}

// Conflicts returns those of the last snapshot, by object.
func (b *Builder) Conflicts() []Conflict {
	var out []Conflict
	for _, n := range slices.SortedFunc(maps.Keys(b.conflicts), compareNames) {
		out = append(out, b.conflicts[n]...)
	}
	return slices.Concat(out, b.conflictsOfHosts(), b.conflictsOfAuthorization(), b.conflictsOfIgnored())
}

// A location is where a workload is found: a pod at its address by all clients, a Host by those of
// its namespace alone. The cluster gave the pod its address. The author of a Host wrote its address down,
// and could take other people's connections.
type location struct {
	namespace string // of a Host
	addr      netip.Addr
}

func (w *Workload) location(addr netip.Addr) location {
	if w.Host {
		return location{w.Namespace, addr}
	}
	return location{addr: addr}
}

// residents are the workloads of each location, in order: a tenant may write many Hosts with one
// address, and only the first counts.
type residents map[location][]workloadID

func (r residents) set(at location, id workloadID, present bool) {
	i, has := slices.BinarySearchFunc(r[at], id, workloadID.compare)
	switch {
	case present && !has:
		r[at] = slices.Insert(r[at], i, id)
	case has && !present && len(r[at]) == 1:
		delete(r, at)
	case has && !present:
		r[at] = slices.Delete(r[at], i, i+1)
	}
}

// resident returns the first workload of a location, or nil.
func (b *Builder) resident(at location) *workloadID {
	if list := b.byAddress[at]; len(list) > 0 {
		return &list[0]
	}
	return nil
}

// conflictsOfHosts finds the addresses of Hosts that lead elsewhere.
func (b *Builder) conflictsOfHosts() (out []Conflict) {
	for _, id := range slices.SortedFunc(maps.Keys(b.hosts), workloadID.compare) {
		for _, a := range b.workloads[id].spec.Addresses {
			var owner Key
			if pod := b.resident(location{addr: a}); pod != nil {
				owner = pod.key()
			} else if service := b.vipOwner(a); service != nil {
				owner = Key{KindService, service.namespace, service.name}
			} else {
				owner = b.resident(location{id.namespace, a}).key()
			}
			if owner != id.key() {
				out = append(out, Conflict{"", id.key(), "spec.address", fmt.Sprintf("%s is ignored: it is the address of %s; give the host another", a, owner)})
			}
		}
	}
	return out
}

// vipOwner returns the service of a virtual address: the first by namespace and name that
// has it, or none if the address is a pod's.
func (b *Builder) vipOwner(addr netip.Addr) *name {
	if b.resident(location{addr: addr}) != nil {
		return nil
	}
	return smallest(b.byVIP[addr], compareNames)
}

// markVIPs marks all services with an address whose owner may change.
func (b *Builder) markVIPs() {
	for at := range b.staleAddresses {
		if len(b.byVIP[at.addr]) > 0 {
			b.staleVIPs.add(at.addr)
		}
	}
	for addr := range b.staleVIPs {
		maps.Copy(b.staleServices, b.byVIP[addr])
	}
}

// addresses returns those that a service owns.
func (b *Builder) addresses(n name, spec *ServiceSpec) []netip.Addr {
	other := func(a netip.Addr) bool {
		to := b.vipOwner(a)
		return to == nil || *to != n
	}
	if !slices.ContainsFunc(spec.Addresses, other) {
		return spec.Addresses
	}
	return slices.DeleteFunc(slices.Clone(spec.Addresses), other)
}

// updateConflicts finds the ignored parts of a service.
func (b *Builder) updateConflicts(n name, s *service) {
	delete(b.conflicts, n)
	if out := slices.Concat(s.policies.conflicts, b.ignoredParts(n, s)); len(out) > 0 {
		b.conflicts[n] = out
	}
}

func (b *Builder) ignoredParts(n name, s *service) (out []Conflict) {
	if s.spec == nil {
		return nil
	}
	add := func(field, format string, args ...any) {
		out = append(out, Conflict{"", s.spec.Key(), field, fmt.Sprintf(format, args...)})
	}
	for _, a := range s.spec.Addresses {
		if to := b.vipOwner(a); to == nil {
			id := b.resident(location{addr: a})
			add("spec.clusterIP", "%s is ignored: it is the address of %s; give the service another", a, id.key())
		} else if *to != n {
			add("spec.clusterIP", "%s is ignored: it is also the address of %s, which comes first; give one of the two another", a, Key{KindService, to.namespace, to.name})
		}
	}
	if len(s.slices) > 0 && !b.fits(n) {
		add("", "its endpoints are ignored: those of the namespace are %d, each counted for every port of its slice, and %d are read; use fewer ports or services, or other namespaces",
			b.sizes[n.namespace].all, maxMembersOfNamespace)
	}
	if rejected := s.proxyPorts; len(rejected) > 0 {
		more := ""
		if len(rejected) > 1 {
			more = fmt.Sprintf(", and %d more", len(rejected)-1)
		}
		add("", "endpoint %s is ignored%s: %d is a port of the proxy of %s, not of its application",
			netip.AddrPortFrom(rejected[0].Addr, rejected[0].Port), more, rejected[0].Port, rejected[0].workload.key())
	}
	return append(out, s.routes.conflicts...)
}

// isProxyPort reports whether an endpoint is a port of its workload's proxy.
func (b *Builder) isProxyPort(m member) bool {
	if !slices.Contains(ProxyPorts, m.Port) {
		return false
	}
	w := b.workloads[m.workload]
	return w != nil && w.spec != nil && w.spec.Proxied
}

func (id workloadID) key() Key {
	if id.host {
		return Key{KindHost, id.namespace, id.name}
	}
	return Key{KindPod, id.namespace, id.name}
}
