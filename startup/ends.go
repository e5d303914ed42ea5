package startup

// Ends are the names of the two containers of an edge. They identify the edge in a valid plan.
type Ends struct{ From, To string }

// Ends returns the names of the edge's containers.
func (e Edge) Ends() Ends { return Ends{e.From, e.To} }

// ByEnds maps the ends of each edge to its index in the list. If several edges have the same ends, it is the
// index of the first.
func ByEnds(edges []Edge) map[Ends]int {
	out := make(map[Ends]int, len(edges))
	for i, e := range edges {
		if _, first := out[e.Ends()]; !first {
			out[e.Ends()] = i
		}
	}
	return out
}
