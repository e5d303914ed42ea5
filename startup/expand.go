package startup

import "slices"

// Expand replaces [Everything] by names. An edge that names both its ends takes precedence over an edge
// between the same two containers that a star would add.
//
// A star leaves out the container at the other end of its edge, every container with Named set, and every
// container that would close a cycle: one that the container at the other end waits for, by an edge or
// because the kubelet starts it later. [Plan.Validate] reports which containers were left out.
func (p Plan) Expand() Plan {
	if !slices.ContainsFunc(p.Edges, Edge.hasStar) {
		return Plan{Containers: p.Containers, Edges: slices.Clip(p.Edges)}
	}
	out, x := Plan{Containers: p.Containers}, p.expander()
	for _, e := range p.Edges {
		if !e.hasStar() {
			out.Edges = append(out.Edges, e)
			continue
		}
		in, _ := x.members(e)
		for _, name := range in {
			out.Edges = append(out.Edges, e.with(name))
		}
	}
	return out
}

func (e Edge) hasStar() bool { return e.From == Everything || e.To == Everything }

// with returns e with its star replaced by name.
func (e Edge) with(name string) Edge {
	if e.To == Everything {
		e.To = name
	} else {
		e.From = name
	}
	return e
}

// An expander finds what the stars of a plan stand for.
type expander struct {
	containers []Container
	named      map[Ends]bool // the edges without a star
	waits      *waits        // the waits of the edges without a star
	reversed   graph         // the reverse of the graph of waits; nil: not needed yet
}

func (p Plan) expander() *expander {
	q := Plan{Containers: p.Containers}
	x := &expander{containers: p.Containers, named: map[Ends]bool{}}
	for _, e := range p.Edges {
		x.named[e.Ends()] = true
		if !e.hasStar() {
			q.Edges = append(q.Edges, e)
		}
	}
	x.waits = q.waits(everyWait)
	return x
}

// members returns the containers that the star of e stands for, and the containers that it leaves out
// because they must come first. An edge of two stars has no members.
func (x *expander) members(e Edge) (in, out []string) {
	if e.From == Everything && e.To == Everything {
		return nil, nil
	}
	first := x.firstByNecessity(e)
	for _, c := range x.containers {
		switch one := e.with(c.Name); {
		case one.From == one.To, x.named[one.Ends()], c.Named && e.To == Everything:
		case first(c.Name):
			out = append(out, c.Name)
		default:
			in = append(in, c.Name)
		}
	}
	return in, out
}

// firstByNecessity returns a predicate: would From wait for the named container if that container replaced
// the star of e?
func (x *expander) firstByNecessity(e Edge) func(name string) bool {
	if e.To == Everything {
		waitsFor := x.waits.graph.reached(x.waits.node(point{e.From, reached(e.After)}))
		return func(name string) bool { return waitsFor[x.waits.node(point{name, running})] }
	}
	to := x.waits.node(point{e.To, running})
	if len(x.reversed) < len(x.waits.graph) {
		x.reversed = x.waits.graph.reversed()
	}
	waiting := x.reversed.reached(to)
	return func(name string) bool { return waiting[x.waits.node(point{name, reached(e.After)})] }
}
