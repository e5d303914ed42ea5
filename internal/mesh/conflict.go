package mesh

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Ports that every proxy listens on, for what is captured and for what came before the
// proxy did (package agent/standby).
const (
	OutboundPort      = 15001
	InboundPort       = 15006
	EarlyOutboundPort = 15007
	EarlyInboundPort  = 15016
)

// ProxyPorts are all of them. Who connects to one of a pod's that has a proxy means the
// proxy, so none of them is a port of the application, whatever a service says.
var ProxyPorts = []uint16{OutboundPort, InboundPort, EarlyOutboundPort, EarlyInboundPort}

// A Conflict is a part of an object that does not count because of what another object
// says. Each of them alone is right.
type Conflict struct {
	Of      Key
	Field   string // its path in the object; empty: the object as a whole
	Message string
}

// Conflicts returns those of the last snapshot, by object.
func (b *Builder) Conflicts() []Conflict {
	var out []Conflict
	for _, n := range slices.SortedFunc(maps.Keys(b.conflicts), compareNames) {
		out = append(out, b.conflicts[n]...)
	}
	return out
}

// holder is the service that a virtual address leads to: the first by namespace and name
// that has it, or none if the address is a workload's own.
func (b *Builder) holder(addr netip.Addr) *name {
	if len(b.atAddress[addr]) > 0 {
		return nil
	}
	return least(b.atVIP[addr], compareNames)
}

// touchHolders notes all services with an address that may lead elsewhere now.
func (b *Builder) touchHolders() {
	for addr := range b.staleAddresses {
		if len(b.atVIP[addr]) > 0 {
			b.staleVIPs.add(addr)
		}
	}
	for addr := range b.staleVIPs {
		maps.Copy(b.staleServices, b.atVIP[addr])
	}
}

// addresses are those of a service that lead to it.
func (b *Builder) addresses(n name, spec *ServiceSpec) []netip.Addr {
	lost := func(a netip.Addr) bool {
		to := b.holder(a)
		return to == nil || *to != n
	}
	if !slices.ContainsFunc(spec.Addresses, lost) {
		return spec.Addresses
	}
	return slices.DeleteFunc(slices.Clone(spec.Addresses), lost)
}

// renewConflicts looks again for what does not count of a service.
func (b *Builder) renewConflicts(n name, s *service) {
	delete(b.conflicts, n)
	if s.spec == nil {
		return
	}
	var out []Conflict
	add := func(field, format string, args ...any) {
		out = append(out, Conflict{s.spec.Key(), field, fmt.Sprintf(format, args...)})
	}
	for _, a := range s.spec.Addresses {
		if to := b.holder(a); to == nil {
			id := least(b.atAddress[a], workloadID.compare)
			add("spec.clusterIP", "%s is the address of %s, and leads there: give the service another", a, id.key())
		} else if *to != n {
			add("spec.clusterIP", "%s is also the address of %s, and leads there: give one of the two another", a, Key{KindService, to.namespace, to.name})
		}
	}
	if misled := s.misled; len(misled) > 0 {
		more := ""
		if len(misled) > 1 {
			more = fmt.Sprintf(", and %d more", len(misled)-1)
		}
		add("", "endpoint %s does not count%s: %d is a port of the proxy of %s, not of its application",
			netip.AddrPortFrom(misled[0].Addr, misled[0].Port), more, misled[0].Port, misled[0].workload.key())
	}
	if out != nil {
		b.conflicts[n] = out
	}
}

// misleads says whether an endpoint is a port of the proxy that its workload has.
func (b *Builder) misleads(m member) bool {
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
