package podstart

import (
	"maps"
	"slices"

	"outrider.dev/startup"
)

// Meant returns e as the author of a work-around intended it: a command that polls a port should wait until the
// container behind that port is healthy, if the container reports its health.
func (r Reading) Meant(e startup.Edge) startup.Edge {
	if c, known := r.Find(e.From); slices.Contains(startup.WorkArounds, e.By) && known && c.Health != startup.NoHealth {
		e.After = startup.Healthy
	}
	return e
}

// Plan returns all edges that the pod keeps or that are requested. If the pod already keeps a requested edge,
// the edge has the mechanism found in the pod, or the best one if there are several.
func (r Reading) Plan() startup.Plan {
	p := r.ContainerPlan()
	n := len(r.Requested)
	for _, f := range r.Found {
		n += len(f.Edges)
	}
	p.Edges = append(make([]startup.Edge, 0, n), r.RequestedEdges()...)
	at := startup.ByEnds(p.Edges)
	needs := startup.Plan{Containers: p.Containers, Edges: r.Requested}.Dependency()
	for _, f := range r.Found {
		for _, e := range f.Edges {
			i, known := at[e.Ends()]
			switch {
			case !known && contradicts(e, needs):
			case !known:
				at[e.Ends()] = len(p.Edges)
				p.Edges = append(p.Edges, e)
			case i >= len(r.Requested) && better(e.By, p.Edges[i].By):
				p.Edges[i] = e
			}
		}
	}
	return p
}

// RequestedEdges returns the requested edges. If the pod already keeps such an edge, its By is the best
// mechanism that keeps it.
func (r Reading) RequestedEdges() []startup.Edge {
	out := slices.Clone(r.Requested)
	if len(out) == 0 {
		return nil
	}
	at := startup.ByEnds(out)
	kept := map[int][]startup.Edge{} // edges in the pod, by index of the requested edge
	for _, f := range r.Found {
		for _, e := range f.Edges {
			if i, requested := at[e.Ends()]; requested {
				kept[i] = append(kept[i], e)
			}
		}
	}
	for i, e := range out {
		if e.By == "" {
			out[i].By = keptBy(e, kept[at[e.Ends()]])
		}
	}
	return out
}

// contradicts reports whether e contradicts the requested edges by closing a cycle, and may be dropped.
func contradicts(e startup.Edge, requested startup.Dependency) bool {
	return e.By.GivesWay() && requested.Needs(e.From, e.To)
}

// Find returns the named container of the pod, or an expected one; false if there is none.
func (r Reading) Find(name string) (startup.Container, bool) {
	if c, i := (startup.Plan{Containers: r.Containers}).Find(name); i >= 0 {
		return c, true
	}
	return startup.Container{Name: name, Health: startup.Report, Named: true}, slices.Contains(r.Expected, name)
}

// ContainerPlan returns a plan with the containers and no edges. Expected containers are at the position where
// injection puts a proxy: as a sidecar before the first init container that waits for it, else as the first
// regular container.
func (r Reading) ContainerPlan() startup.Plan {
	p := startup.Plan{Containers: slices.Clone(r.Containers)}
	at := slices.IndexFunc(p.Containers, func(c startup.Container) bool { return c.Kind == startup.Plain })
	if at < 0 {
		at = len(p.Containers)
	}
	for _, name := range r.Expected {
		c, index := startup.Container{Name: name, Health: startup.Report, Named: true}, at
		if first := slices.IndexFunc(p.Containers[:at], func(o startup.Container) bool {
			return slices.ContainsFunc(r.Requested, func(e startup.Edge) bool { return e.From == name && e.To == o.Name })
		}); first >= 0 {
			c.Kind, index, at = startup.Sidecar, first, at+1
		}
		p.Containers = slices.Insert(p.Containers, index, c)
	}
	return p
}

// Expecting returns a copy of r with another container that injection has not added yet.
func (r Reading) Expecting(name string) Reading {
	r.Facts, r.Expected = maps.Clone(r.Facts), slices.Clone(r.Expected)
	r.Expect(name)
	return r
}

// keptBy returns the best mechanism in the pod that keeps e; empty if there is none.
func keptBy(e startup.Edge, kept []startup.Edge) startup.Mechanism {
	var best startup.Mechanism
	for _, o := range kept {
		enough := o.After == e.After || o.After == startup.Healthy && e.After == startup.Started
		if enough && o.By != startup.BoundedLoop && (best == "" || better(o.By, best)) {
			best = o.By
		}
	}
	return best
}

func better(a, b startup.Mechanism) bool {
	return slices.Index(startup.Mechanisms, a) < slices.Index(startup.Mechanisms, b)
}

// Note adds sentences to the notes, which are for people.
func (r *Reading) Note(sentences ...string) { r.Notes = append(r.Notes, sentences...) }

// Expect adds a container for which others wait and which injection has not added yet.
func (r *Reading) Expect(name string) {
	r.Expected = append(r.Expected, name)
	r.Facts[name] = Fact{Command: true, Proxy: true, Probed: true}
}
