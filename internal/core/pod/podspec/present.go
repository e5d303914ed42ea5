package podspec

import (
	"slices"

	"outrider.dev/startup"
)

// A presence is what keeps edges in the pod already.
type presence struct {
	*Found
	why []string
}

// A carried edge is one between two containers by a mechanism.
type carried struct {
	ends
	by startup.Mechanism
}

// presences are what the pod has already, by the edges that it keeps.
type presences map[carried]presence

func newPresences(found []Found) presences {
	out := presences{}
	for i := range found {
		f := &found[i]
		p := presence{f, []string{"in the pod already (" + f.By + ")"}}
		for _, e := range f.Edges {
			if key := (carried{endsOf(e), f.Mechanism}); out[key].Found == nil {
				out[key] = p
			}
		}
	}
	return out
}

// of is what the pod has already of the mechanism that an edge names.
func (ps presences) of(e startup.Edge) presence { return ps[carried{endsOf(e), e.By}] }

// keeps reports whether the pod keeps an edge already by the mechanism that it names, and not only for a
// weaker condition.
func (ps presences) keeps(e startup.Edge) bool {
	p := ps.of(e)
	return p.Found != nil && slices.ContainsFunc(p.Edges, func(o startup.Edge) bool { return endsOf(o) == endsOf(e) && o.After == e.After })
}

// choice is the choice of the mechanism that the pod has already.
func (ps presences) choice(e startup.Edge, judge *startup.Judge) Choice {
	p := ps.of(e)
	return Choice{Edge: e, Answer: judge.Keeps(e.By, e), Why: p.why, Present: p.Found}
}
