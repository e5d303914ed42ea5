package startup

// Ends are the two containers of an edge, which identify it: a plan has at most one edge from one container
// to another.
type Ends struct{ From, To string }

// Ends returns the containers of the edge.
func (e Edge) Ends() Ends { return Ends{e.From, e.To} }

// ByEnds maps the ends of edges to their index in a list. If two edges have the same ends, the first counts.
func ByEnds(edges []Edge) map[Ends]int {
	out := make(map[Ends]int, len(edges))
	for i, e := range edges {
		if _, first := out[e.Ends()]; !first {
			out[e.Ends()] = i
		}
	}
	return out
}
