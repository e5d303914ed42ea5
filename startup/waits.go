package startup

import (
	"slices"
	"strings"
)

// A moment is a stage in the life of a container. A container is spawned before it is running if something
// in it waits, as a gate does.
type moment int32

const (
	spawned moment = iota // the kubelet has started the container
	running               // its real command runs
	passed                // the kubelet has gone on to the next container of its list
	healthy
	ended
	moments // number of moments
)

// reached returns the moment at which a condition is fulfilled.
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

// A point is a moment in the life of a named container.
type point struct {
	name string
	at   moment
}

// waits is a graph of points. The nodes of one container are consecutive.
type waits struct {
	numbers numbers
	graph   graph
}

// node returns the node of a point.
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

// A source is a set of the reasons to wait that a graph of waits includes.
type source int

const (
	edges       source = 1 << iota // the plan's edges
	healthNeeds                    // the containers that a container's health depends on
	listOrder                      // the kubelet's own order
	everyWait   = edges | healthNeeds | listOrder
)

// waits returns which container waits for which in p, which has no stars. It assumes that the dependent
// waits inside its container, as with a gate. No mechanism waits later, so a deadlock in this graph is a
// deadlock with every mechanism.
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

// addListOrder adds the kubelet's own order. An init container starts when the previous one is done: a plain
// one when it has completed, a sidecar when it has started, or is healthy if the kubelet can tell. Plain
// containers start after all init containers, and one with a postStart hook holds the next one back. Source:
// kubernetes v1.34.4 pkg/kubelet/kuberuntime, computeInitContainerActions (kuberuntime_container.go) and
// SyncPod step 8 (kuberuntime_manager.go).
func (p Plan) addListOrder(w *waits) {
	var before []point // the previous container, which itself waits for all earlier ones
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

// done returns the moment at which the kubelet goes on to the next container.
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

// path returns the containers on a path from one point to another along the waits, both included, without a
// name twice in a row; nil if there is no path.
func (w *waits) path(from, to point) []string {
	var out []string
	start, end := w.node(from), w.node(to)
	for _, n := range w.graph.path(start, end) {
		out = append(out, w.numbers.names[n/int32(moments)])
	}
	return slices.Compact(out)
}

// A Deadlock explains why a pod never starts: its containers wait for one another, by edges and by the
// kubelet's order together.
type Deadlock struct {
	Edges []Edge   // edges of the plan in the cycle, and edges whose mechanism makes the kubelet hold a container
	Path  []string // one cycle: each container waits for the next, and the first name is repeated at the end
}

func (d *Deadlock) Error() string {
	return "the pod would never start: " + strings.Join(d.Path, " -> ")
}

// Deadlock returns the deadlock of a pod, or nil if there is none. The pod's lists are in the plan's order,
// and the mechanisms of its edges are in place. A plan without an edge has no deadlock: the pod's own
// behaviour is not judged.
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
