package mesh

import (
	"cmp"
	"slices"
	"strings"
)

// A Place is the location of a client. Empty fields are unknown.
type Place struct{ Node, Zone string }

// PlaceOf returns the place of w; if w is nil, the empty place. If the zone of w is not known, PlaceOf uses
// the zone that EndpointSlices contain for the node, so that outriderd need not read nodes.
func (m *Mesh) PlaceOf(w *Workload) Place {
	if w == nil {
		return Place{}
	}
	return Place{w.Node, cmp.Or(w.Zone, m.tables.Zones.Get(w.Node))}
}

// SameNodes reports whether all nodes have the same zones in m and in another snapshot.
func (m *Mesh) SameNodes(other *Mesh) bool { return m.tables.Zones == other.tables.Zones }

// EffectiveZone returns the zone of e in its slice or, if it has none there, the zone of its workload.
func (e *Endpoint) EffectiveZone() string {
	if e.Zone == "" && e.Workload != nil {
		return e.Workload.Zone
	}
	return e.Zone
}

// Reachable returns the endpoints of s that a client at a place may use, whatever their state: all, or those on
// its node. A client whose node is not known may use none of the latter. As with kube-proxy, only the node in the
// endpoint's slice counts.
func (s *Service) Reachable(at Place) []Endpoint {
	if s.Traffic != OnlyNode {
		return s.Endpoints
	}
	return s.OnNode[at.Node]
}

// ByNode returns endpoints by their nodes. It leaves out those whose node is not known.
func ByNode(endpoints []Endpoint) map[string][]Endpoint {
	out := map[string][]Endpoint{}
	for _, e := range endpoints {
		if e.Node != "" {
			out[e.Node] = append(out[e.Node], e)
		}
	}
	return out
}

// Relevant returns a copy of a place with only those fields on which s's endpoints, or their order, depend.
func (s *Service) Relevant(at Place) Place {
	if s.Traffic == OnlyNode {
		if len(s.Reachable(at)) == 0 {
			return Place{}
		}
		return Place{Node: at.Node}
	}
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

// Near returns a function that selects, among endpoints that are [Service.Reachable] from a place, those that a
// client there should use; nil selects all. It selects as kube-proxy does, by the hints in slices; these have no effect unless every
// endpoint has one. If there are no hints, the zone or node of an endpoint is used as its hint, according to
// s.Traffic.
func (s *Service) Near(endpoints []Endpoint, at Place) func(Endpoint) bool {
	if s.Traffic == OnlyNode {
		return nil
	}
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

// has reports whether a hint contains a name. Names do not contain commas.
func has(hint, name string) bool {
	return strings.HasPrefix(hint, name+",") || strings.Contains(hint, ","+name+",")
}
