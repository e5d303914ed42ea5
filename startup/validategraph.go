package startup

import (
	"fmt"
	"slices"
	"strings"
)

// graph checks the graph of a plan whose names and words are all valid.
func (v *validator) graph() {
	if slices.ContainsFunc(v.plan.Edges, Edge.hasStar) {
		x := v.plan.expander()
		for _, e := range v.plan.Edges {
			if e.hasStar() {
				v.leftOut(x, &e)
			}
		}
	}
	full := v.plan.Expand()
	if path := full.cycle(); path != nil {
		v.add(Finding{Code: Cycle, Level: Error, Names: path,
			Message: (&CycleError{Path: path}).Error(), Remedy: "remove one of these edges"})
		return // every other finding about the graph would have the same cause
	}
	g := validatedGraph{plan: full, judge: full.Judge(v.on), all: full.cyclicWaits(everyWait)}
	for i := range full.Edges {
		e := &full.Edges[i]
		from, at := g.judge.Find(e.From)
		if at < 0 {
			continue // missing but optional
		}
		if v.condition(from, e) && v.keepable(&g, e) {
			v.mechanism(&g, e)
		}
	}
}

// A validatedGraph holds data that the checks of all edges share.
type validatedGraph struct {
	plan   Plan
	judge  *Judge
	all    cyclicWaits
	probes *cyclicWaits // waits by edges and by health alone; nil until they are needed
	paths  int          // number of paths searched
}

// cyclicWaits is a graph of waits with the number of the strongly connected component of each node.
type cyclicWaits struct {
	*waits
	component []int32
}

func (p Plan) cyclicWaits(from source) cyclicWaits {
	w := p.waits(from)
	return cyclicWaits{w, w.graph.components()}
}

// closes reports whether an edge is part of a cycle in the graph, which contains the edge.
func (w cyclicWaits) closes(e *Edge) bool {
	return w.together(point{e.From, reached(e.After)}, point{e.To, running})
}

// together reports whether each of two points waits for the other.
func (w cyclicWaits) together(a, b point) bool {
	return w.component[w.node(a)] == w.component[w.node(b)]
}

func (v *validator) leftOut(x *expander, e *Edge) {
	if _, out := x.members(*e); len(out) > 0 {
		other := e.From
		if other == Everything {
			other = e.To
		}
		v.add(Finding{Code: WildcardIncomplete, Level: Note, Names: out, Edge: e,
			Message: fmt.Sprintf("%s: %q leaves out %s, which cannot be on that side of %s", e, Everything, strings.Join(out, ", "), other),
			Remedy:  "list " + other + " earlier in the pod (as the first sidecar, for example) to include them"})
	}
}

// condition reports whether the container From can ever reach the edge's condition. If not, it adds a finding.
func (v *validator) condition(from Container, e *Edge) bool {
	switch {
	case e.After == Healthy && from.Health == NoHealth:
		v.add(Finding{Code: NeverHealthy, Level: Error, Names: []string{e.To, e.From}, Edge: e,
			Message: fmt.Sprintf("%s waits until %s is healthy, but nothing reports that", e.To, e.From),
			Remedy:  fmt.Sprintf("give %s a startup or readiness probe, or wait for \"started\"", e.From)})
		return false
	case e.After == Completed && !from.completes():
		v.add(Finding{Code: NeverCompletes, Level: Error, Names: []string{e.To, e.From}, Edge: e,
			Message: fmt.Sprintf("%s waits until %s has completed, but the kubelet restarts it whenever it ends", e.To, e.From),
			Remedy:  fmt.Sprintf("make %s an init container, or wait for \"healthy\"", e.From)})
		return false
	}
	return true
}

// maxPaths is the maximum number of searches for a path to be reported, because each takes time proportional to
// the size of the plan. A person corrects the first few cycles and then runs the check again.
const maxPaths = 20

// keepable reports whether any mechanism could enforce the edge. For that, the container From must be able to
// reach the condition while the container To does not run yet. If From cannot, keepable adds a finding.
func (v *validator) keepable(g *validatedGraph, e *Edge) bool {
	if !g.all.closes(e) {
		return true // no cycle in the graph of all waits, so there is none in a part of it
	}
	if g.probes == nil {
		probes := g.plan.cyclicWaits(edges | healthNeeds)
		g.probes = &probes
	}
	if g.probes.closes(e) {
		cycle := []string{e.To, e.From, "...", e.To}
		if g.paths++; g.paths <= maxPaths {
			cycle = append([]string{e.To}, g.probes.path(point{e.From, reached(e.After)}, point{e.To, running})...)
		}
		v.add(Finding{Code: ProbeCycle, Level: Error, Names: cycle, Edge: e,
			Message: fmt.Sprintf("%s waits for the health of %s, which in the end needs %s itself: %s",
				e.To, e.From, e.To, strings.Join(cycle, " -> ")),
			Remedy: fmt.Sprintf("let the probe of %s leave %s out, or wait for \"started\"", e.From, e.To)})
		return false
	}
	v.add(Finding{Code: UnsatisfiableEdge, Level: Error, Names: []string{e.To, e.From}, Edge: e,
		Message: fmt.Sprintf("%s waits for %s, but the kubelet comes to %s only after %s: no mechanism can keep this",
			e.To, e.From, e.From, e.To),
		Remedy: remedyForOrder(g.judge, e)})
	return false
}

func remedyForOrder(j *Judge, e *Edge) string {
	to, _ := j.Find(e.To)
	if to.Kind == Plain {
		return fmt.Sprintf("list %s before %s, or give %s no hook that blocks", e.From, e.To, e.To)
	}
	return fmt.Sprintf("make %s a sidecar (restartPolicy: Always) that is listed before %s, or make %s a plain container", e.From, e.To, e.To)
}

// mechanism adds findings about the edge's mechanism, if the edge names one.
func (v *validator) mechanism(g *validatedGraph, e *Edge) {
	if e.By == "" {
		return
	}
	answer := g.judge.Keeps(e.By, *e)
	f := Finding{Names: []string{e.To, e.From}, Edge: e}
	switch {
	case !answer.Can():
		f.Code, f.Level = UnsuitableMechanism, Error
		f.Message = fmt.Sprintf("%s cannot keep %q: %s", e.By, e, answer.Limits[0].Reason)
	case answer.Start != EveryStart:
		f.Code, f.Level = NotEveryStart, Warning
		f.Message = fmt.Sprintf("%s keeps %q %s: %s", e.By, e, answer.Start, answer.Limits[0].Reason)
	default:
		return
	}
	if m := g.judge.better(*e); m != "" {
		f.Remedy = "use " + string(m)
	}
	v.add(f)
}
