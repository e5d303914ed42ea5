package mesh

import (
	"cmp"
	"slices"
	"strings"
)

// A Place is where a client is. Empty: not known.
type Place struct{ Node, Zone string }

// PlaceOf returns the place of w. The zone of its node is what an EndpointSlice says of any pod
// there: so outriderd need not read nodes.
func (m *Mesh) PlaceOf(w *Workload) Place {
	if w == nil {
		return Place{}
	}
	return Place{w.Node, cmp.Or(w.Zone, m.tables.Zones.Get(w.Node))}
}

// SameNodes reports whether the zones of nodes are as in another snapshot.
func (m *Mesh) SameNodes(other *Mesh) bool { return m.tables.Zones == other.tables.Zones }

// EffectiveZone is the zone that the slice of e has, else the one that its workload has.
func (e *Endpoint) EffectiveZone() string {
	if e.Zone == "" && e.Workload != nil {
		return e.Workload.Zone
	}
	return e.Zone
}

// Relevant returns the part of a place on which the order of s's endpoints depends.
func (s *Service) Relevant(at Place) Place {
	byNode := func(e Endpoint) bool {
		return at.Node != "" && (has(e.ForNodes, at.Node) || s.Traffic == SameNode && e.Node == at.Node)
	}
	byZone := func(e Endpoint) bool {
		return at.Zone != "" && (has(e.ForZones, at.Zone) || s.Traffic != AnyTraffic && e.EffectiveZone() == at.Zone)
	}
	if !slices.ContainsFunc(s.Endpoints, byNode) {
		at.Node = ""
	}
	if !slices.ContainsFunc(s.Endpoints, byZone) {
		at.Zone = ""
	}
	return at
}

// Near returns which of some endpoints of s are for a client at a place, as kube-proxy selects
// them: by the hints of slices, which have no effect unless every endpoint has one. Without
// hints the zone or node of the endpoint stands for its hint. Nil: all of them.
func (s *Service) Near(endpoints []Endpoint, at Place) func(Endpoint) bool {
	hinted := func(of func(Endpoint) string) bool {
		return !slices.ContainsFunc(endpoints, func(e Endpoint) bool { return of(e) == "" })
	}
	var ways []func(Endpoint) bool
	if at.Node != "" && hinted(func(e Endpoint) string { return e.ForNodes }) {
		ways = append(ways, func(e Endpoint) bool { return has(e.ForNodes, at.Node) })
	}
	if at.Zone != "" && hinted(func(e Endpoint) string { return e.ForZones }) {
		ways = append(ways, func(e Endpoint) bool { return has(e.ForZones, at.Zone) })
	}
	if !slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.ForZones != "" || e.ForNodes != "" }) {
		if s.Traffic == SameNode && at.Node != "" {
			ways = append(ways, func(e Endpoint) bool { return e.Node == at.Node })
		}
		if s.Traffic != AnyTraffic && at.Zone != "" {
			ways = append(ways, func(e Endpoint) bool { return e.EffectiveZone() == at.Zone })
		}
	}
	for _, near := range ways {
		if slices.ContainsFunc(endpoints, near) {
			return near
		}
	}
	return nil
}

// has reports whether a hint has a name, which has no comma.
func has(hint, name string) bool {
	return strings.HasPrefix(hint, name+",") || strings.Contains(hint, ","+name+",")
}
