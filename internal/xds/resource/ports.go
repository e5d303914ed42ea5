package resource

import (
	"maps"
	"slices"

	"outrider.dev/internal/mesh"
)

// ports counts, by number, the services' ports whose protocol is detected from the first
// bytes, and those where the server speaks first.
type ports struct {
	sniff, never map[uint16]int

	sniffed   []uint16 // numbers with a listener that detects the protocol, in order
	unsniffed []uint16 // on which the server of a service speaks first, in order
}

func countPorts(services []*mesh.Service) *ports {
	out := &ports{sniff: map[uint16]int{}, never: map[uint16]int{}}
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
	out := &ports{sniff: maps.Clone(p.sniff), never: maps.Clone(p.never)}
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
		case port.Protocol == mesh.ServerFirst:
			p.never[port.Number] += n
		case mayBeHTTP(port.Protocol):
			p.sniff[port.Number] += n
		}
	}
}

// listed sets the two lists. A number on which the server of any service speaks first is not
// sniffed: nothing may wait for the first bytes there.
func (p *ports) listed() *ports {
	for port, n := range p.sniff {
		if n > 0 && p.never[port] == 0 && !slices.Contains(mesh.ProxyPorts, port) {
			p.sniffed = append(p.sniffed, port)
		}
	}
	for port, n := range p.never {
		if n > 0 {
			p.unsniffed = append(p.unsniffed, port)
		}
	}
	slices.Sort(p.sniffed)
	slices.Sort(p.unsniffed)
	return p
}
