package resource

import (
	"maps"
	"slices"

	"outrider.dev/internal/mesh"
)

// maxOwnListeners bounds, by port number, the listeners for the virtual addresses of services
// whose server speaks first. Beyond it a connection costs the wait for the client's first
// bytes. The bound is far above what meshes have, and keeps their listeners from growing with
// their services.
const maxOwnListeners = 64

// ports counts the services' ports by number.
type ports struct {
	http, unknown map[uint16]int // the protocol is detected from the first bytes
	own, never    map[uint16]int // the server speaks first: at a virtual address, or at pods only

	sniffed   []uint16 // numbers with a listener that detects the protocol, in order
	unsniffed []uint16 // on which the server of a service speaks first, and no service declares HTTP, in order
}

func countPorts(services []*mesh.Service) *ports {
	out := &ports{http: map[uint16]int{}, unknown: map[uint16]int{}, own: map[uint16]int{}, never: map[uint16]int{}}
	for _, s := range services {
		out.add(s, 1)
	}
	return out.listed()
}

// after returns the ports after a change of services.
func (p *ports) after(changed []mesh.Change[mesh.Service]) *ports {
	if len(changed) == 0 {
		return p
	}
	out := &ports{http: maps.Clone(p.http), unknown: maps.Clone(p.unknown), own: maps.Clone(p.own), never: maps.Clone(p.never)}
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
	for _, port := range s.Ports {
		switch {
		case port.Protocol == mesh.ServerFirst && len(s.Addresses) > 0:
			p.own[port.Number] += n
		case port.Protocol == mesh.ServerFirst:
			p.never[port.Number] += n
		case port.Protocol.IsHTTP():
			p.http[port.Number] += n
		case mayBeHTTP(port.Protocol):
			p.unknown[port.Number] += n
		}
	}
}

// listed sets the two lists. A number is sniffed if a service declares HTTP on it. It is also
// sniffed for the services that declare nothing, if it costs those where the server speaks
// first no wait: each of them has a listener for its own address, see ownListeners.
func (p *ports) listed() *ports {
	for port := range union(p.http, p.unknown) {
		if (p.http[port] > 0 || p.never[port] == 0 && p.own[port] <= maxOwnListeners) && !slices.Contains(mesh.ProxyPorts, port) {
			p.sniffed = append(p.sniffed, port)
		}
	}
	for port := range union(p.own, p.never) {
		if p.http[port] <= 0 {
			p.unsniffed = append(p.unsniffed, port)
		}
	}
	slices.Sort(p.sniffed)
	slices.Sort(p.unsniffed)
	return p
}

// union has the numbers that one of two counts has.
func union(a, b map[uint16]int) map[uint16]bool {
	out := map[uint16]bool{}
	for _, m := range []map[uint16]int{a, b} {
		for port, n := range m {
			if n > 0 {
				out[port] = true
			}
		}
	}
	return out
}

// hasOwnListener reports whether a virtual address and port has a listener in a proxy on
// demand: the one for its number waits for the client's first bytes, and the server speaks
// first. Envoy prefers a listener for an address to one for all addresses.
func (v *snapshot) hasOwnListener(t target) bool {
	return t.port.Protocol == mesh.ServerFirst && slices.Contains(v.ports.sniffed, t.port.Number)
}
