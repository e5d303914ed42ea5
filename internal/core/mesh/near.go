package mesh

import (
	"cmp"
	"slices"
	"strings"
)

// A Place is the location of a client. Empty fields are unknown.
type Place struct{ Node, Zone string }

// PlaceOf returns the place of w. The zone is the one that EndpointSlices name for any pod on the same
// node, so that outriderd need not read nodes.
func (m *Mesh) PlaceOf(w *Workload) Place {
	if w == nil {
		return Place{}
	}
	return Place{w.Node, cmp.Or(w.Zone, m.tables.Zones.Get(w.Node))}
}

// SameNodes reports whether the zones of nodes are the same as in another snapshot.
func (m *Mesh) SameNodes(other *Mesh) bool { return m.tables.Zones == other.tables.Zones }

// EffectiveZone returns the zone in the slice of e, or else the zone of its workload.
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

// Near returns a function that selects, among endpoints of s, those that a client at a place should
// use, as kube-proxy does: by the hints in slices, which have no effect unless every endpoint has one.
// If there are none, an endpoint's own zone or node counts as its hint. Nil selects all.
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

// has reports whether a hint contains a name. Names contain no comma.
func has(hint, name string) bool {
	return strings.HasPrefix(hint, name+",") || strings.Contains(hint, ","+name+",")
}
