package startup

import "slices"

// Expand replaces [Everything] by names. An edge that names both its ends wins
// over one that a star would make between the same two.
//
// A star leaves out the container at the other end, whatever is to wait only by its name, and
// whatever cannot be meant: what that container itself waits for, by an edge or because the kubelet
// starts it only afterwards. Plan.Validate reports which ones were left out.
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

// with is e with its star replaced by name.
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
	named      map[ends]bool // the edges without a star
	waits      *waits        // of these
	reversed   graph         // of that; nil: not needed yet
}

type ends struct{ from, to string }

func (p Plan) expander() *expander {
	q := Plan{Containers: p.Containers}
	x := &expander{containers: p.Containers, named: map[ends]bool{}}
	for _, e := range p.Edges {
		x.named[ends{e.From, e.To}] = true
		if !e.hasStar() {
			q.Edges = append(q.Edges, e)
		}
	}
	x.waits = q.waits(everyWait)
	return x
}

// members returns the containers that the star of e stands for, and those that
// it leaves out because they come first by necessity. Two stars stand for nothing.
func (x *expander) members(e Edge) (in, out []string) {
	if e.From == Everything && e.To == Everything {
		return nil, nil
	}
	first := x.firstByNecessity(e)
	for _, c := range x.containers {
		switch one := e.with(c.Name); {
		case one.From == one.To, x.named[ends{one.From, one.To}], c.Named && e.To == Everything:
		case first(c.Name):
			out = append(out, c.Name)
		default:
			in = append(in, c.Name)
		}
	}
	return in, out
}

// firstByNecessity returns for which containers From would wait for To, if they took the
// place of the star of e.
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
