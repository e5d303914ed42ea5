package resource

import (
	"maps"
	"slices"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/names"
	"outrider.dev/internal/core/xds/routes"
)

// maxOwnListeners limits, for each port number, the listeners for virtual addresses of services whose server
// speaks first. Beyond the limit, connections wait for the client's first bytes. The limit is far above what
// meshes need, and keeps their listeners from growing with their services.
const maxOwnListeners = 64

// maxSniffedOfNamespace limits the port numbers for which the services of one namespace get a listener in every
// proxy of the mesh, where each listener takes some 100 KiB. The lowest numbers get one. Connections to other
// ports are forwarded as bytes by their address, with the identity of the server.
const maxSniffedOfNamespace = 64

// ports counts the services' ports by number.
type ports struct {
	spaces map[string]map[uint16]int // by namespace: port numbers whose listener detects the protocol; the inner maps are immutable

	http       map[uint16]int // a service declares HTTP
	own, never map[uint16]int // the server of a service speaks first; own: the service has a virtual address; never: it has none

	sniffed   []uint16 // numbers with a listener that detects the protocol, sorted
	unsniffed []uint16 // numbers on which the server of a service speaks first and no service declares HTTP, sorted
}

func countPorts(services []*mesh.Service) *ports {
	out := &ports{spaces: map[string]map[uint16]int{}, http: map[uint16]int{}, own: map[uint16]int{}, never: map[uint16]int{}}
	for _, s := range services {
		out.add(s, 1)
	}
	return out.listed()
}

// after returns the ports after a change of services.
func (p *ports) after(changed []mesh.Change[mesh.Service]) *ports {
	changed = slices.DeleteFunc(slices.Clone(changed), func(c mesh.Change[mesh.Service]) bool {
		return c.Old != nil && c.New != nil && slices.Equal(c.Old.Ports, c.New.Ports) && len(c.Old.Addresses) > 0 == (len(c.New.Addresses) > 0)
	})
	if len(changed) == 0 {
		return p
	}
	out := &ports{spaces: maps.Clone(p.spaces), http: maps.Clone(p.http), own: maps.Clone(p.own), never: maps.Clone(p.never)}
	for _, c := range changed {
		out.add(c.Old, -1)
		out.add(c.New, 1)
	}
	return out.listed()
}

func (p *ports) add(s *mesh.Service, n int) {
	if s == nil {
		return
	}
	numbers := maps.Clone(p.spaces[s.Namespace])
	if numbers == nil {
		numbers = map[uint16]int{}
	}
	for _, port := range s.Ports {
		switch {
		case port.Protocol == mesh.ServerFirst && len(s.Addresses) > 0:
			p.own[port.Number] += n
		case port.Protocol == mesh.ServerFirst:
			p.never[port.Number] += n
		case port.Protocol.IsHTTP():
			p.http[port.Number] += n
			numbers[port.Number] += n
		case routes.MayBeHTTP(port.Protocol):
			numbers[port.Number] += n
		}
	}
	maps.DeleteFunc(numbers, func(_ uint16, n int) bool { return n == 0 })
	if p.spaces[s.Namespace] = numbers; len(numbers) == 0 {
		delete(p.spaces, s.Namespace)
	}
}

// within returns the port numbers of all namespaces, at most the lowest maxSniffedOfNamespace of each.
func (p *ports) within() map[uint16]bool {
	out := map[uint16]bool{}
	for _, numbers := range p.spaces { // any order: a union
		first := slices.Collect(maps.Keys(numbers))
		if len(first) > maxSniffedOfNamespace {
			slices.Sort(first)
			first = first[:maxSniffedOfNamespace]
		}
		for _, n := range first {
			out[n] = true
		}
	}
	return out
}

// listed sets the two lists. A number is sniffed if a service declares HTTP on it. For services that
// declare nothing, it is sniffed if that delays no server that speaks first, because each of those has
// a listener for its own address, see ownListeners.
func (p *ports) listed() *ports {
	for port := range p.within() {
		if (p.http[port] > 0 || p.never[port] == 0 && p.own[port] <= maxOwnListeners) && !slices.Contains(mesh.ProxyPorts, port) && port != contract.PrometheusPort {
			p.sniffed = append(p.sniffed, port)
		}
	}
	for _, counts := range []map[uint16]int{p.own, p.never} {
		for port, n := range counts { // any order: sorted below
			if n > 0 && p.http[port] <= 0 {
				p.unsniffed = append(p.unsniffed, port)
			}
		}
	}
	slices.Sort(p.sniffed)
	slices.Sort(p.unsniffed)
	p.unsniffed = slices.Compact(p.unsniffed)
	return p
}

// hasOwnListener reports whether a virtual address and port has its own listener, because its server
// speaks first and the listener for its port number waits for the client's first bytes. Envoy prefers a
// listener for one address to one for all addresses.
func (v *snapshot) hasOwnListener(t names.Target) bool {
	return t.Port.Protocol == mesh.ServerFirst && slices.Contains(v.ports.sniffed, t.Port.Number)
}
