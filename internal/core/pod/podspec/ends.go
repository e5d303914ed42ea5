package podspec

import "outrider.dev/startup"

// ends identifies an edge: a plan has at most one edge between the same two containers.
type ends struct{ from, to string }

func endsOf(e startup.Edge) ends { return ends{e.From, e.To} }

// byEnds maps the ends of edges to their index in a list. If two edges have the same ends, the first counts.
func byEnds(edges []startup.Edge) map[ends]int {
	out := make(map[ends]int, len(edges))
	for i, e := range edges {
		if _, first := out[endsOf(e)]; !first {
			out[endsOf(e)] = i
		}
	}
	return out
}
