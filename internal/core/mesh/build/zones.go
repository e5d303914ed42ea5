package build

import (
	"maps"
	"slices"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// zones contains the zones of nodes as EndpointSlices name them, so that outriderd need not read nodes.
type zones struct {
	of    map[string]map[namedZone]int // by node, with the number of endpoints in slices that name the zone
	stale set[string]                  // nodes to be computed again
	table persistent.Table[string, string]
}

// A namedZone is a zone that slices of a namespace name for a node.
type namedZone struct{ zone, namespace string }

// set counts the zones of nodes that a slice names.
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

// update chooses the zone that most namespaces name, because anybody may write a slice. If several are
// named equally often, it is the first by name.
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
