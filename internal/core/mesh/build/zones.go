package build

import (
	"maps"
	"slices"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// zones contains the zones of nodes, as found in EndpointSlices, so that outriderd need not read nodes.
type zones struct {
	of    map[string]map[namedZone]int // by node, the number of endpoints in slices that have the zone
	stale set[string]                  // nodes to be computed again
	table persistent.Table[string, string]
}

// A namedZone is a zone that slices in a namespace contain for a node.
type namedZone struct{ zone, namespace string }

// set adds the zones that a slice contains for nodes, or subtracts them.
func (z *zones) set(p *mesh.SliceSpec, present bool) {
	change := 1
	if !present {
		change = -1
	}
	for _, e := range p.Endpoints {
		if e.Node == "" || e.Zone == "" {
			continue
		}
		named := z.of[e.Node]
		if named == nil {
			named = map[namedZone]int{}
			z.of[e.Node] = named
		}
		key := namedZone{e.Zone, p.Namespace}
		if named[key] += change; named[key] == 0 {
			delete(named, key)
		}
		if len(named) == 0 {
			delete(z.of, e.Node)
		}
		z.stale.add(e.Node)
	}
}

// update chooses for each node the zone that slices in most namespaces contain, because any tenant may write
// a wrong slice. If several zones are in the same number of namespaces, it chooses the first by name.
func (z *zones) update() {
	for node := range z.stale.take() {
		namespaces := map[string]int{}
		for named := range z.of[node] { // any order: they are counted
			namespaces[named.zone]++
		}
		zone := ""
		for _, name := range slices.Sorted(maps.Keys(namespaces)) {
			if zone == "" || namespaces[name] > namespaces[zone] {
				zone = name
			}
		}
		z.table.Put(node, zone)
	}
}
