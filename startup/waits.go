package startup

import (
	"slices"
	"strings"
)

// A moment in the life of a container. The kubelet has started a container
// before its real command runs when something in the container waits.
type moment int32

const (
	spawned moment = iota // by the kubelet
	running               // its real command
	passed                // the kubelet goes on to the next container of its list
	healthy
	ended
	moments // their number
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

// waits is a graph of points. The nodes of a container follow one another.
type waits struct {
	numbers numbers
	graph   graph
}

// node is that of a point.
func (w *waits) node(p point) int32 {
	n := w.numbers.number(p.name)*int32(moments) + int32(p.at)
	for len(w.graph) <= int(n) {
		w.graph = append(w.graph, make(graph, moments)...)
	}
	return n
}

func (w *waits) add(p point, on ...point) {
	at := w.node(p)
	for _, o := range on {
		next := w.node(o)
		w.graph[at] = append(w.graph[at], next)
	}
}

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
func (p Plan) waits(from source) *waits {
	w := &waits{}
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
func (p Plan) addListOrder(w *waits) {
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

// path returns the containers on the way from one point to another along the waits, both
// included, without a name twice in a row; nil if there is none.
func (w *waits) path(from, to point) []string {
	var out []string
	start, end := w.node(from), w.node(to)
	for _, n := range w.graph.path(start, end) {
		out = append(out, w.numbers.names[n/int32(moments)])
	}
	return slices.Compact(out)
}

// A Deadlock is why a pod never starts: containers that wait for one another, by edges and by the
// kubelet's order together.
type Deadlock struct {
	Edges []Edge   // of the plan: those that are part of it, and those by whose mechanism the kubelet holds
	Path  []string // one way around, each waiting for the next, the first name again at the end
}

func (d *Deadlock) Error() string {
	return "the pod would never start: " + strings.Join(d.Path, " -> ")
}

// Deadlock returns the deadlock of a pod whose lists are those of the plan, and whose edges are kept
// by mechanisms that are in it; nil if there is none. Without an edge there is none: what a pod does
// by itself is not judged.
func (p Plan) Deadlock() *Deadlock {
	var d Deadlock
	w := p.cyclicWaits(everyWait)
	for _, e := range p.Edges {
		closes := w.closes(&e)
		holds := (e.By == Hold || e.By == Native) && w.together(point{e.From, healthy}, point{e.From, passed})
		if closes || holds {
			d.Edges = append(d.Edges, e)
		}
		if closes && d.Path == nil {
			d.Path = append([]string{e.To}, w.path(point{e.From, reached(e.After)}, point{e.To, running})...)
		}
	}
	if d.Path == nil {
		return nil
	}
	return &d
}
