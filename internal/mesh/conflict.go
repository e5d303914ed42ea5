package mesh

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"outrider.dev/internal/contract"
)

// ProxyPorts are the ports on which every proxy accepts captured connections. A connection
// to one of them in a pod with a proxy reaches the proxy: none of them is a port of the
// application, whatever a service declares.
var ProxyPorts = []uint16{contract.OutboundPort, contract.InboundPort, contract.RelayOutbound, contract.RelayInbound, contract.RelaySilent}

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
	return append(append(out, b.conflictsOfAuthorization()...), b.conflictsOfIgnored()...)
}

// vipOwner returns the service of a virtual address: the first by namespace and name that
// has it, or none if the address is a workload's own.
func (b *Builder) vipOwner(addr netip.Addr) *name {
	if len(b.byAddress[addr]) > 0 {
		return nil
	}
	return smallest(b.byVIP[addr], compareNames)
}

// markVIPs marks all services with an address whose owner may change.
func (b *Builder) markVIPs() {
	for addr := range b.staleAddresses {
		if len(b.byVIP[addr]) > 0 {
			b.staleVIPs.add(addr)
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
			id := smallest(b.byAddress[a], workloadID.compare)
			add("spec.clusterIP", "%s is ignored: it is the address of %s; give the service another", a, id.key())
		} else if *to != n {
			add("spec.clusterIP", "%s is ignored: it is also the address of %s, which comes first; give one of the two another", a, Key{KindService, to.namespace, to.name})
		}
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
