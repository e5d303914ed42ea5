package resource

import (
	"maps"
	"slices"

	"outrider.dev/internal/mesh"
)

// ports counts, by number, the services' ports whose protocol is detected from the first
// bytes, and those where the server speaks first.
type ports struct{ sniff, never map[uint16]int }

func countPorts(services []*mesh.Service) *ports {
	out := &ports{map[uint16]int{}, map[uint16]int{}}
	for _, s := range services {
		out.add(s, 1)
	}
	return out
}

// after returns the ports after a change of services.
func (p *ports) after(changed []mesh.Change[mesh.Service]) *ports {
	if len(changed) == 0 {
		return p
	}
	out := &ports{maps.Clone(p.sniff), maps.Clone(p.never)}
	for _, c := range changed {
		out.add(c.Old, -1)
		out.add(c.New, 1)
	}
	return out
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

// sniffed returns the numbers that have a listener of their own. One on which the server of
// any service speaks first has none: nothing may wait for the first bytes there.
func (p *ports) sniffed() []uint16 {
	var out []uint16
	for port, n := range p.sniff {
		if n > 0 && p.never[port] == 0 && !slices.Contains(mesh.ProxyPorts, port) {
			out = append(out, port)
		}
	}
	slices.Sort(out)
	return out
}

// unsniffed returns the numbers on which the server of a service speaks first.
func (p *ports) unsniffed() []uint16 {
	var out []uint16
	for port, n := range p.never {
		if n > 0 {
			out = append(out, port)
		}
	}
	slices.Sort(out)
	return out
}
