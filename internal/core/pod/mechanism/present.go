package mechanism

import (
	"slices"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

// A presence is an ordering that the pod already has.
type presence struct {
	*podstart.Found
	why []string
}

// A carried identifies an edge kept by a mechanism.
type carried struct {
	startup.Ends
	by startup.Mechanism
}

// presences maps edges to the orderings by which the pod already keeps them.
type presences map[carried]presence

func newPresences(found []podstart.Found) presences {
	out := presences{}
	for i := range found {
		f := &found[i]
		p := presence{f, []string{"in the pod already (" + f.By + ")"}}
		for _, e := range f.Edges {
			if key := (carried{e.Ends(), f.Mechanism}); out[key].Found == nil {
				out[key] = p
			}
		}
	}
	return out
}

// of returns the ordering that keeps an edge by the mechanism that the edge names.
func (ps presences) of(e startup.Edge) presence { return ps[carried{e.Ends(), e.By}] }

// keeps reports whether the pod already keeps an edge, with its condition, by the mechanism that the edge
// names.
func (ps presences) keeps(e startup.Edge) bool {
	p := ps.of(e)
	return p.Found != nil && slices.ContainsFunc(p.Edges, func(o startup.Edge) bool { return o.Ends() == e.Ends() && o.After == e.After })
}

// choice returns the choice of the mechanism that the pod already has.
func (ps presences) choice(e startup.Edge, judge *startup.Judge) Choice {
	p := ps.of(e)
	return Choice{Edge: e, Answer: judge.Keeps(e.By, e), Why: p.why, Present: p.Found}
}
