package startup

import (
	"slices"
	"strings"
)

// A moment is a stage in the life of a container. A container can be spawned for some time before it is running,
// because something inside it waits, such as a gate.
type moment int32

const (
	spawned moment = iota // the kubelet has started the container
	running               // its real command runs
	passed                // the kubelet has continued with the next container of its list
	healthy
	ended
	moments // number of the moments above
)

// reached returns the moment at which a container reaches a condition.
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

// waits is a graph whose nodes are points. The nodes of one container are consecutive.
type waits struct {
	numbers numbers
	graph   graph
}

// node returns the number of a point's node. It adds the node if necessary.
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

// A source is a set of reasons for waits. A graph of waits contains only the waits for these reasons.
type source int

const (
	edges       source = 1 << iota // the plan's edges
	healthNeeds                    // a container's health depends on other containers
	listOrder                      // the kubelet's own order
	everyWait   = edges | healthNeeds | listOrder
)

// waits returns the graph of the waits between the containers of p, whose wildcards must have been expanded. For
// each edge it assumes that To waits inside its container, as with a gate. With any other mechanism To waits even
// earlier. So if this graph has a deadlock, the pod has it with every mechanism.
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

// addListOrder adds the kubelet's own order. An init container starts when the previous one is done. A regular
// init container is done when it has completed; a sidecar is done when it is healthy, if the kubelet can detect
// that, else when it has started. Regular containers start after all init containers. A regular container with a
// postStart hook delays the next one. Source: kubernetes v1.34.4 pkg/kubelet/kuberuntime,
// computeInitContainerActions (kuberuntime_container.go) and SyncPod step 8 (kuberuntime_manager.go).
func (p Plan) addListOrder(w *waits) {
	var before []point // the point for which the next container waits; it waits for all earlier containers
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

// done returns the point at which the kubelet continues with the next container.
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

// path returns the names of the containers on a path from one point to another, including both, without
// consecutive duplicates; nil if there is no path.
func (w *waits) path(from, to point) []string {
	var out []string
	start, end := w.node(from), w.node(to)
	for _, n := range w.graph.path(start, end) {
		out = append(out, w.numbers.names[n/int32(moments)])
	}
	return slices.Compact(out)
}

// A Deadlock is the reason why a pod never starts: containers wait for one another because of edges together with
// the kubelet's order.
type Deadlock struct {
	Edges []Edge   // edges in a cycle, and edges whose mechanism makes the kubelet wait forever
	Path  []string // one cycle: each container waits for the next, and the first name is repeated at the end
}

func (d *Deadlock) Error() string {
	return "the pod would never start: " + strings.Join(d.Path, " -> ")
}

// Deadlock returns the deadlock of a pod; nil if there is none. The plan must describe the pod with the
// mechanisms of its edges already written. A plan without edges has no deadlock, because the pod's own behaviour
// is not examined.
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
