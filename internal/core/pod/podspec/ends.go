package podspec

import "outrider.dev/startup"

// ends identify an edge: a plan has one between the same two containers.
type ends struct{ from, to string }

func endsOf(e startup.Edge) ends { return ends{e.From, e.To} }

// byEnds is the place of each edge in a list; of the first, if two have the same ends.
func byEnds(edges []startup.Edge) map[ends]int {
	out := make(map[ends]int, len(edges))
	for i, e := range edges {
		if _, first := out[endsOf(e)]; !first {
			out[endsOf(e)] = i
		}
	}
	return out
}
