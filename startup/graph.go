package startup

import "slices"

// A graph lists for each node the nodes for which it waits. Its methods answer a question for all edges in one
// traversal, because a search for each edge would take quadratic time.
type graph [][]int32

// components returns for each node the number of its strongly connected component: two nodes have the same number
// if each waits for the other, directly or indirectly. A node waits only for nodes of its own component and of
// components with lower numbers (Tarjan's algorithm).
func (g graph) components() []int32 {
	t := tarjan{graph: g, component: make([]int32, len(g)), index: make([]int32, len(g)), low: make([]int32, len(g))}
	for n := range g {
		if t.index[n] == 0 {
			t.visit(int32(n))
		}
	}
	return t.component
}

type tarjan struct {
	graph      graph
	component  []int32 // 0: not assigned yet
	index, low []int32 // 0: not visited yet
	visited    int32
	components int32
	stack      []int32
}

func (t *tarjan) visit(n int32) {
	t.visited++
	t.index[n], t.low[n] = t.visited, t.visited
	t.stack = append(t.stack, n)
	for _, next := range t.graph[n] {
		switch {
		case t.index[next] == 0:
			t.visit(next)
			t.low[n] = min(t.low[n], t.low[next])
		case t.component[next] == 0:
			t.low[n] = min(t.low[n], t.index[next])
		}
	}
	if t.low[n] != t.index[n] {
		return
	}
	t.components++
	for {
		last := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		t.component[last] = t.components
		if last == n {
			return
		}
	}
}

// path returns the nodes on a path from one node to another, both included; nil if there is no path.
func (g graph) path(from, to int32) []int32 {
	seen := make([]bool, len(g))
	var walk func(at int32) []int32
	walk = func(at int32) []int32 {
		if at == to {
			return []int32{at}
		}
		seen[at] = true
		for _, next := range g[at] {
			if seen[next] {
				continue
			}
			if rest := walk(next); rest != nil {
				return append(rest, at)
			}
		}
		return nil
	}
	back := walk(from)
	slices.Reverse(back)
	return back
}

// reached returns the set of the given node and all nodes for which it waits, directly or indirectly.
func (g graph) reached(from int32) []bool {
	seen := make([]bool, len(g))
	seen[from] = true
	for todo := []int32{from}; len(todo) > 0; {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, next := range g[last] {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return seen
}

// reversed returns the graph that lists for each node the nodes that wait for it.
func (g graph) reversed() graph {
	out := make(graph, len(g))
	for n, nexts := range g {
		for _, next := range nexts {
			out[next] = append(out[next], int32(n))
		}
	}
	return out
}

// numbers assigns a number to each name, in the order in which the names first appear.
type numbers struct {
	of    map[string]int32
	names []string
}

func (n *numbers) number(name string) int32 {
	i, known := n.of[name]
	if !known {
		if n.of == nil {
			n.of = map[string]int32{}
		}
		i = int32(len(n.names))
		n.of[name], n.names = i, append(n.names, name)
	}
	return i
}

// A Dependency contains for each pair of containers whether one waits for the other, directly or indirectly, by
// the edges of a plan alone.
type Dependency struct {
	numbers numbers
	rows    [][]uint64 // by container: one bit for each container for which it waits
}

// Dependency returns the dependencies between the containers of p. Edges to or from names that no container has
// are ignored. Wildcards are not expanded: [Everything] counts as a name.
//
// The result needs one bit of memory for each pair of containers.
func (p Plan) Dependency() Dependency {
	var d Dependency
	for _, c := range p.Containers {
		d.numbers.number(c.Name)
	}
	d.numbers.number(Everything)
	g := make(graph, len(d.numbers.names))
	for _, e := range p.Edges {
		from, known := d.numbers.of[e.From]
		to, both := d.numbers.of[e.To]
		if known && both {
			g[to] = append(g[to], from)
		}
	}
	d.rows = g.closure()
	return d
}

// closure returns for each node one bit for each node for which it waits, directly or indirectly.
func (g graph) closure() [][]uint64 {
	component := g.components()
	members := make([][]int32, len(g)+1)
	for n, c := range component {
		members[c] = append(members[c], int32(n))
	}
	rows := make([][]uint64, len(g))
	for _, nodes := range members {
		if len(nodes) == 0 {
			continue
		}
		row := make([]uint64, (len(g)+63)/64)
		for _, n := range nodes {
			rows[n] = row
		}
		for _, n := range nodes {
			for _, next := range g[n] {
				row[next/64] |= 1 << (next % 64)
				if component[next] != component[n] {
					for i, w := range rows[next] {
						row[i] |= w
					}
				}
			}
		}
	}
	return rows
}

// Needs reports whether the first container waits for the second, directly or indirectly. A container waits for
// itself only if it is in a cycle.
func (d Dependency) Needs(to, from string) bool {
	t, known := d.numbers.of[to]
	f, both := d.numbers.of[from]
	return known && both && d.rows[t][f/64]&(1<<(f%64)) != 0
}
