package startup

import "slices"

// A moment in the life of a container. The kubelet has started a container
// before its real command runs when something in the container waits.
type moment string

const (
	spawned moment = "spawned" // by the kubelet
	running moment = "running" // its real command
	passed  moment = "passed"  // the kubelet goes on to the next container of its list
	healthy moment = "healthy"
	ended   moment = "ended"
)

// reached is the moment that fulfils a condition.
func reached(c Condition) moment {
	switch c {
	case Healthy:
		return healthy
	case Completed:
		return ended
	default:
		return running
	}
}

// A point is a moment of a named container.
type point struct {
	name string
	at   moment
}

// waits is a graph: each point with the points that it waits for.
type waits map[point][]point

func (w waits) add(p point, on ...point) { w[p] = append(w[p], on...) }

// What a graph of waits takes into account.
type source int

const (
	edges       source = 1 << iota // the plan's edges
	healthNeeds                    // what a container's health depends on
	listOrder                      // the kubelet's own order
	everyWait   = edges | healthNeeds | listOrder
)

// waits returns which container waits for which in p, which has no stars. An edge is taken to
// be kept inside the dependent, as a gate does: no mechanism waits later, so
// that a deadlock in this graph is one for all of them.
func (p Plan) waits(from source) waits {
	w := waits{}
	for _, c := range p.Containers {
		w.add(point{c.Name, running}, point{c.Name, spawned})
		w.add(point{c.Name, healthy}, point{c.Name, running})
		w.add(point{c.Name, ended}, point{c.Name, running})
		if from&healthNeeds != 0 {
			for _, n := range c.HealthNeeds {
				w.add(point{c.Name, healthy}, point{n, running})
			}
		}
	}
	if from&edges != 0 {
		for _, e := range p.Edges {
			w.add(point{e.To, running}, point{e.From, reached(e.After)})
		}
	}
	if from&listOrder != 0 {
		p.addListOrder(w)
	}
	return w
}

// addListOrder adds the kubelet's rules: an init container starts when the one
// before it is done (a plain one: completed; a sidecar: started, or healthy if
// the kubelet can tell), plain containers start after all of them, and one with
// a postStart hook holds the next one.
// Source: kubernetes v1.34.4 pkg/kubelet/kuberuntime, computeInitContainerActions
// (kuberuntime_container.go) and SyncPod step 8 (kuberuntime_manager.go).
func (p Plan) addListOrder(w waits) {
	var before []point // the container before, if there is one: it waits for all others
	for _, inits := range []bool{true, false} {
		for _, c := range p.Containers {
			if c.inInitList() != inits {
				continue
			}
			w.add(point{c.Name, spawned}, before...)
			w.add(point{c.Name, passed}, point{c.Name, spawned}, c.done())
			before = []point{{c.Name, passed}}
		}
	}
}

// done is the moment at which the kubelet goes on to the next container.
func (c Container) done() point {
	switch {
	case c.Kind == Init:
		return point{c.Name, ended}
	case c.holdsNext():
		return point{c.Name, healthy}
	default:
		return point{c.Name, spawned}
	}
}

// reaches reports whether from waits for to, directly or not.
func (w waits) reaches(from, to point) bool { return w.path(from, to) != nil }

// path returns the way from one point to another along the waits, both included;
// nil if there is none.
func (w waits) path(from, to point) []point {
	seen := map[point]bool{}
	var walk func(at point) []point
	walk = func(at point) []point {
		if at == to {
			return []point{at}
		}
		if seen[at] {
			return nil
		}
		seen[at] = true
		for _, next := range w[at] {
			if rest := walk(next); rest != nil {
				return append([]point{at}, rest...)
			}
		}
		return nil
	}
	return walk(from)
}

// names is the path without the moments, and without a name twice in a row.
func names(path []point) []string {
	var out []string
	for _, p := range path {
		out = append(out, p.name)
	}
	return slices.Compact(out)
}
