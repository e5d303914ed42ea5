package startup

import (
	"fmt"
	"strings"
)

// graph checks a plan in which all names and words are valid.
func (v *validator) graph() {
	for _, e := range v.plan.Edges {
		if e.hasStar() {
			v.leftOut(&e)
		}
	}
	full := v.plan.Expand()
	if path := full.cycle(); path != nil {
		v.add(Finding{Code: Cycle, Level: Error, Names: path,
			Message: (&CycleError{Path: path}).Error(), Remedy: "remove one of these edges"})
		return // every other finding about the graph would repeat this one
	}
	all := full.waits(everyWait) // one graph for all edges: it is as long as the plan
	for i := range full.Edges {
		e := &full.Edges[i]
		if _, at := full.Find(e.From); at < 0 {
			continue // optional and absent
		}
		if v.condition(full, e) && v.keepable(full, all, e) {
			v.mechanism(full, e)
		}
	}
}

func (v *validator) leftOut(e *Edge) {
	if _, out := v.plan.members(*e); len(out) > 0 {
		other := e.From
		if other == Everything {
			other = e.To
		}
		v.add(Finding{Code: StarLeavesOut, Level: Note, Names: out, Edge: e,
			Message: fmt.Sprintf("%s: %q leaves out %s, which cannot be on that side of %s", e, Everything, strings.Join(out, ", "), other),
			Remedy:  "list " + other + " earlier in the pod (as the first sidecar, for example) to include them"})
	}
}

// condition reports whether From can ever fulfil the condition.
func (v *validator) condition(p Plan, e *Edge) bool {
	from, _ := p.Find(e.From)
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

// keepable reports whether any mechanism could keep the edge: the condition of From
// must not itself wait, by whatever way, for To to run. all are the waits of p.
func (v *validator) keepable(p Plan, all waits, e *Edge) bool {
	from, to := point{e.From, reached(e.After)}, point{e.To, running}
	if !all.reaches(from, to) {
		return true // nor is there a way along some of the waits
	}
	if path := p.waits(edges|healthNeeds).path(from, to); path != nil {
		cycle := append([]string{e.To}, names(path)...)
		v.add(Finding{Code: SelfWaitingProbe, Level: Error, Names: cycle, Edge: e,
			Message: fmt.Sprintf("%s waits for the health of %s, which in the end needs %s itself: %s",
				e.To, e.From, e.To, strings.Join(cycle, " -> ")),
			Remedy: fmt.Sprintf("let the probe of %s leave %s out, or wait for \"started\"", e.From, e.To)})
		return false
	}
	v.add(Finding{Code: CannotBeKept, Level: Error, Names: []string{e.To, e.From}, Edge: e,
		Message: fmt.Sprintf("%s waits for %s, but the kubelet comes to %s only after %s: no mechanism can keep this",
			e.To, e.From, e.From, e.To),
		Remedy: v.remedyForOrder(p, e)})
	return false
}

func (v *validator) remedyForOrder(p Plan, e *Edge) string {
	to, _ := p.Find(e.To)
	if to.Kind == Plain {
		return fmt.Sprintf("list %s before %s, or give %s no hook that blocks", e.From, e.To, e.To)
	}
	return fmt.Sprintf("make %s a sidecar (restartPolicy: Always) that is listed before %s, or make %s a plain container", e.From, e.To, e.To)
}

// mechanism judges the chosen mechanism, if one is.
func (v *validator) mechanism(p Plan, e *Edge) {
	if e.By == "" {
		return
	}
	answer := e.By.Keeps(p, *e, v.on)
	names := []string{e.To, e.From}
	for _, l := range answer.Limits {
		if l.Fatal {
			v.add(Finding{Code: MechanismUnfit, Level: Error, Names: names, Edge: e,
				Message: fmt.Sprintf("%s cannot keep %q: %s", e.By, e, l.Reason), Remedy: v.other(p, e)})
			return
		}
	}
	if answer.Start != EveryStart {
		v.add(Finding{Code: NotEveryStart, Level: Warning, Names: names, Edge: e,
			Message: fmt.Sprintf("%s keeps %q %s: %s", e.By, e, answer.Start, answer.Limits[0].Reason), Remedy: v.other(p, e)})
	}
}

func (v *validator) other(p Plan, e *Edge) string {
	for _, m := range Fitting(p, *e, v.on) {
		if m != e.By && m.Keeps(p, *e, v.on).Start > e.By.Keeps(p, *e, v.on).Start {
			return "use " + string(m)
		}
	}
	return ""
}
