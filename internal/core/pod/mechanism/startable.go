package mechanism

import (
	"slices"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

// maxDeadlocks is the maximum number of mechanisms that are withdrawn. A pod with more deadlocks is refused when
// it is written.
const maxDeadlocks = 20

// startable withdraws mechanisms from the choices until the pod as it would be written can start. Each mechanism
// was chosen for its edge alone. Together they may make containers wait for one another.
func (c *chooser) startable(all []Choice, requested func(startup.Edge) startup.Edge) {
	order, err := c.plan.StartOrder()
	if err != nil {
		return // if the edges themselves have a cycle, no mechanism helps
	}
	for range maxDeadlocks {
		deadlock := c.written(all, order).Deadlock()
		if deadlock == nil {
			return
		}
		i := weakest(all, deadlock.Edges, requested)
		if i < 0 {
			return
		}
		e := all[i].Edge
		c.deadlocks[startup.Edge{From: e.From, To: e.To, By: e.By}] = deadlock.Error()
		all[i] = c.choose(requested(e))
	}
}

// weakest returns the index of the choice to be withdrawn because of a deadlock; -1 if there is none. Only
// choices that would be written are considered. Edges without a requested mechanism come first, and among these
// the one whose mechanism gives the fewest guarantees.
func weakest(all []Choice, deadlock []startup.Edge, requested func(startup.Edge) startup.Edge) int {
	at, worst := -1, 0
	for i, c := range all {
		rank := slices.Index(startup.Preferred, c.Edge.By)
		if c.Present != nil || rank < 1 || !slices.Contains(deadlock, c.Edge) {
			continue
		}
		if requested(c.Edge).By == "" {
			rank += len(startup.Preferred)
		}
		if rank > worst {
			at, worst = i, rank
		}
	}
	return at
}

// written returns the plan of the pod as podspec.Write would write it with these choices. The parameter
// order lists each container after those for which it waits.
func (c *chooser) written(all []Choice, order []string) startup.Plan {
	p := startup.Plan{Containers: slices.Clone(c.plan.Containers)}
	moves := map[string][]startup.Edge{}
	for _, choice := range all {
		e := choice.Edge
		if slices.Contains(startup.Preferred, e.By) {
			p.Edges = append(p.Edges, e)
		}
		if choice.Present == nil && (e.By == startup.Native || e.By == startup.Hold) {
			moves[e.From] = append(moves[e.From], e)
		}
	}
	if len(moves) == 0 {
		return p
	}
	needs := p.Dependency()
	for _, name := range order {
		for _, e := range moves[name] {
			_, from := p.Find(e.From)
			_, to := p.Find(e.To)
			if e.By == startup.Native {
				p = movedBefore(p, from, to, startup.Sidecar, c.pod.Facts[e.From], e.After)
				continue
			}
			p.Containers[from] = written(c.pod.Facts[e.From], p.Containers[from], startup.Plain, e.After)
			p.Containers = podstart.OrderForHold(p.Containers, func(c startup.Container) string { return c.Name }, e, needs)
		}
	}
	return p
}

// movedBefore returns the plan in which the container with the first index gets the given kind and is moved
// before the container with the second index. The moved container gets a postStart hook if the edge needs one
// and the container has a probe.
func movedBefore(plan startup.Plan, from, to int, kind startup.Kind, f podstart.Fact, after startup.Condition) startup.Plan {
	list := slices.Clone(plan.Containers)
	c := written(f, list[from], kind, after)
	list[from] = c
	if from > to || kind == startup.Sidecar && plan.Containers[from].Kind == startup.Plain {
		list = slices.Delete(list, from, from+1)
		at := to
		if to > from {
			at--
		}
		if kind == startup.Sidecar && list[at].Kind == startup.Plain { // to the end of the init list
			at = slices.IndexFunc(list, func(c startup.Container) bool { return c.Kind == startup.Plain })
		}
		list = slices.Insert(list, at, c)
	}
	return startup.Plan{Containers: list, Edges: plan.Edges}
}

// written returns c with the given kind. If an edge waits for the health of c, the health report is the one that
// podspec.Write would give c.
func written(f podstart.Fact, c startup.Container, kind startup.Kind, after startup.Condition) startup.Container {
	if c.Kind != startup.Init {
		c.Kind = kind
	}
	if kind == startup.Sidecar && f.Starts && c.Health == startup.ReadinessProbe {
		c.Health = startup.StartupProbe // the probe that the kubelet waits for
	}
	holds := c.Health == startup.PostStart || kind == startup.Sidecar && c.Health == startup.StartupProbe
	if after == startup.Healthy && !holds && (f.Probed || f.Proxy) {
		c.Health = startup.PostStart
	}
	return c
}
