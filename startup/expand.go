package startup

import "slices"

// Expand replaces [Everything] by names. An edge that names both its ends wins
// over one that a star would make between the same two.
//
// A star leaves out the container at the other end, and whatever cannot be
// meant: what that container itself waits for, by an edge or because the kubelet
// starts it only afterwards. Plan.Validate reports which ones were left out.
func (p Plan) Expand() Plan {
	out := Plan{Containers: p.Containers}
	for _, e := range p.Edges {
		if !e.hasStar() {
			out.Edges = append(out.Edges, e)
			continue
		}
		in, _ := p.members(e)
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

// members returns the containers that the star of e stands for, and those that
// it leaves out because they come first by necessity. Two stars stand for nothing.
func (p Plan) members(e Edge) (in, out []string) {
	if e.From == Everything && e.To == Everything {
		return nil, nil
	}
	named := p.named()
	for _, c := range p.Containers {
		one := e.with(c.Name)
		switch {
		case one.From == one.To, p.wins(one):
		case named.reaches(point{one.From, reached(one.After)}, point{one.To, running}):
			out = append(out, c.Name)
		default:
			in = append(in, c.Name)
		}
	}
	return in, out
}

// wins reports whether p has an edge between the same two containers that names both.
func (p Plan) wins(e Edge) bool {
	return slices.ContainsFunc(p.Edges, func(o Edge) bool { return o.From == e.From && o.To == e.To })
}

// named is the waits of the edges that have no star.
func (p Plan) named() waits {
	q := Plan{Containers: p.Containers}
	for _, e := range p.Edges {
		if !e.hasStar() {
			q.Edges = append(q.Edges, e)
		}
	}
	return q.waits(everyWait)
}
