package build

import (
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/persistent"
)

// grants contains the pairs of From and To of all ReferenceGrants.
type grants struct {
	by    multimap[mesh.Grant, *mesh.GrantSpec]
	table persistent.Table[mesh.Grant, bool]
	stale set[mesh.Grant]
}

func (g *grants) set(p *mesh.GrantSpec, present bool) {
	for _, from := range p.From {
		for _, to := range p.To {
			k := mesh.Grant{From: from, Namespace: p.Namespace, Service: to}
			g.by.set(k, p, present)
			g.stale.add(k)
		}
	}
}

func (g *grants) has(k mesh.Grant) bool { return len(g.by[k]) > 0 }

func (g *grants) update() {
	for k := range g.stale.take() {
		g.table.Put(k, g.has(k))
	}
}
