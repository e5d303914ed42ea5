package startup

import "slices"

// Expand returns the plan with each wildcard ([Everything]) replaced by names of containers. An edge without a
// wildcard takes precedence over one between the same containers that results from a wildcard.
//
// A wildcard does not include the container at the other end of its edge, nor containers with Named set (if the
// wildcard is To), nor a container that would cause a cycle. The latter is one for which the container at the
// other end waits, by an edge or because the kubelet starts it later. [Plan.Validate] reports the containers that
// were left out for this reason.
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

// with returns e with its wildcard replaced by name.
func (e Edge) with(name string) Edge {
	if e.To == Everything {
		e.To = name
	} else {
		e.From = name
	}
	return e
}

// An expander finds the containers for which a wildcard stands.
type expander struct {
	containers []Container
	named      map[Ends]bool // ends of all edges of the plan
	waits      *waits        // the waits by edges without a wildcard and by the kubelet's order
	reversed   graph         // reverse of the graph of waits; nil until it is needed
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

// members returns the containers for which the wildcard of e stands, and the containers that it leaves out
// because they would cause a cycle. An edge with two wildcards has no members.
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

// firstByNecessity returns a predicate on names. It reports whether the named container, in place of the wildcard
// of e, would cause a cycle.
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
