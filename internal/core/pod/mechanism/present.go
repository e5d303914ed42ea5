package mechanism

import (
	"slices"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

// An ordering is a [podstart.Found], an order that the pod already has, with the reason to keep it.
type ordering struct {
	*podstart.Found
	why []string
}

// A keptEdge identifies an edge together with a mechanism.
type keptEdge struct {
	startup.Ends
	by startup.Mechanism
}

// existing maps edges to the orderings in the pod that keep them.
type existing map[keptEdge]ordering

func newExisting(found []podstart.Found) existing {
	out := existing{}
	for i := range found {
		f := &found[i]
		p := ordering{f, []string{"in the pod already (" + f.By + ")"}}
		for _, e := range f.Edges {
			if key := (keptEdge{e.Ends(), f.Mechanism}); out[key].Found == nil {
				out[key] = p
			}
		}
	}
	return out
}

// of returns the ordering in the pod that keeps an edge by the edge's mechanism; the zero value if there is none.
func (ps existing) of(e startup.Edge) ordering { return ps[keptEdge{e.Ends(), e.By}] }

// keeps reports whether the pod already keeps an edge, with the same condition, by the edge's mechanism.
func (ps existing) keeps(e startup.Edge) bool {
	p := ps.of(e)
	return p.Found != nil && slices.ContainsFunc(p.Edges, func(o startup.Edge) bool { return o.Ends() == e.Ends() && o.After == e.After })
}

// choice returns a choice with the mechanism of e, and with the ordering in the pod that keeps e, if there is
// one.
func (ps existing) choice(e startup.Edge, judge *startup.Judge) Choice {
	p := ps.of(e)
	return Choice{Edge: e, Answer: judge.Keeps(e.By, e), Why: p.why, Present: p.Found}
}
