package resource

import (
	"maps"
	"slices"

	"outrider.dev/internal/mesh"
)

// ports counts, by number, the services' ports that are to be told apart by their first
// bytes, and those that must not be.
type ports struct{ sniff, never map[uint16]int }

func countPorts(services []*mesh.Service) *ports {
	out := &ports{map[uint16]int{}, map[uint16]int{}}
	for _, s := range services {
		out.add(s, 1)
	}
	return out
}

// after returns the ports after some services changed.
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
		case requests(port.Protocol):
			p.sniff[port.Number] += n
		}
	}
}

// sniffed are the numbers that have a listener of their own. One on which any service
// is declared to speak first has none: nothing may wait there.
func (p *ports) sniffed() []uint16 {
	var out []uint16
	for port, n := range p.sniff {
		if n > 0 && p.never[port] == 0 && !slices.Contains(own, port) {
			out = append(out, port)
		}
	}
	slices.Sort(out)
	return out
}

// unsniffed are the numbers on which a service is declared to speak first.
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
