package startup

import (
	"fmt"
	"testing"
)

// complete returns a plan in which each container waits for all earlier ones.
func complete(n int, kind Kind) Plan {
	var p Plan
	for i := range n {
		p.Containers = append(p.Containers, Container{Name: fmt.Sprintf("c%d", i), Kind: kind, Health: StartupProbe})
		for j := range i {
			p.Edges = append(p.Edges, Edge{From: fmt.Sprintf("c%d", j), To: fmt.Sprintf("c%d", i), After: Healthy})
		}
	}
	return p
}

// The number of allocations for the work on a plan, such as validation, grows at most linearly with the number
// of its edges.
func TestWorkGrowsWithTheEdges(t *testing.T) {
	for name, work := range map[string]func(Plan){
		"Validate":   func(p Plan) { p.Validate(0) },
		"StartOrder": func(p Plan) { p.StartOrder() },
		"Dependency": func(p Plan) { p.Dependency() },
		"Expand":     func(p Plan) { p.Edges = append(p.Edges, Edge{From: "c0", To: Everything, After: Healthy}); p.Expand() },
		"Keeps": func(p Plan) {
			j := p.Judge(0)
			for _, e := range p.Edges {
				j.Keeps(Gate, e)
			}
		},
	} {
		for _, kind := range []Kind{Plain, Sidecar, Init} {
			cost := func(n int) (perEdge float64) {
				p := complete(n, kind)
				return testing.AllocsPerRun(1, func() { work(p) }) / float64(len(p.Edges))
			}
			if few, many := cost(40), cost(160); many > 1.2*few+1 {
				t.Errorf("%s, kind %q: %.1f allocations for each edge among 40 containers, %.1f among 160", name, kind, few, many)
			}
		}
	}
}

// On random graphs, closure returns what the definition of the transitive closure requires.
func TestClosureIsThatOfTheDefinition(t *testing.T) {
	for seed := range 200 {
		n := 1 + seed%9
		g := make(graph, n)
		for i := range 2 * n * (seed % 4) / 2 {
			from, to := (seed*7+i*5)%n, (seed*3+i*i)%n
			g[from] = append(g[from], int32(to))
		}
		rows, component, reversed := g.closure(), g.components(), g.reversed()
		for from := range n {
			reached, waiting := g.reached(int32(from)), reversed.reached(int32(from))
			for to := range n {
				direct := false // a path of one edge or more
				for _, next := range g[from] {
					direct = direct || g.path(next, int32(to)) != nil
				}
				if got := rows[from][0]&(1<<to) != 0; got != direct {
					t.Fatalf("%v: closure of %d has %d: %t", g, from, to, got)
				}
				there, back := g.path(int32(from), int32(to)) != nil, g.path(int32(to), int32(from)) != nil
				if reached[to] != there || waiting[to] != back || (component[from] == component[to]) != (there && back) {
					t.Fatalf("%v: from %d to %d: reached %t, path %t, components %v", g, from, to, reached[to], there, component)
				}
				if there && !back && component[from] < component[to] {
					t.Fatalf("%v: %d waits for %d, which has a higher component: %v", g, from, to, component)
				}
			}
		}
	}
}
