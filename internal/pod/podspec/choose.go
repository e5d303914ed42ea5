package podspec

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/startup"
)

// A Choice is how one edge is kept, and why so.
type Choice struct {
	Edge    startup.Edge // By is the mechanism; empty if none fits
	Why     []string
	Answer  startup.Answer
	Present *Found   // what keeps it in the pod already; nil if it is still to be written
	Refused []Option // what was preferred to it and does not fit
	Warning string
}

// An Option is what a mechanism would do for an edge in this pod.
type Option struct {
	By     startup.Mechanism
	Answer startup.Answer
	Health startup.Health // what releases the dependent, as the pod would be written
}

// WhyNot is why the option does not fit; empty if it does.
func (o Option) WhyNot() string {
	for _, l := range o.Answer.Limits {
		if l.Fatal {
			return l.Reason
		}
	}
	return ""
}

// because is the reason to choose each of [startup.Preferred].
var because = map[startup.Mechanism]string{
	startup.InitDone: "the kubelet completes init containers first; nothing is to be written",
	startup.Gate:     "the command is in the pod spec, and a gate keeps the edge at every start and when the pod stops",
	startup.Native:   "the best that is left: closed at the first start, without touching a command",
	startup.Hold:     "all that is left; it fails open",
}

// Choose picks the mechanism for each edge of what was read, on a kubelet of that
// version. The mechanism that the edge names wins over that of the pod's annotation, and
// that over [startup.Preferred]. If it does not fit, the edge gets no mechanism, and the
// choice has the reason. An edge that the pod keeps already, and no annotation names, stays as it is.
func Choose(r Reading, on startup.Kubernetes) []Choice {
	plan := r.Plan().Expand()
	requested := startup.Plan{Containers: plan.Containers, Edges: r.Requested}.Expand()
	var out []Choice
	for _, e := range plan.Edges {
		i := slices.IndexFunc(requested.Edges, func(o startup.Edge) bool { return o.From == e.From && o.To == e.To })
		switch {
		case i < 0:
			out = append(out, r.present(plan, e, on))
		case e.By == startup.Gate && requested.Edges[i].By == "" && r.Start == StartDefault:
			out = append(out, r.present(plan, e, on))
		default:
			out = append(out, r.choose(plan, requested.Edges[i], on))
		}
	}
	return out
}

// Findings are what is wrong with the plan of what was read. How well an edge is kept, and
// what one of the choices will keep, is not among them.
func (r Reading) Findings(choices []Choice, on startup.Kubernetes) startup.Findings {
	plan := r.Plan()
	for i := range r.Requested {
		plan.Edges[i].By = r.Requested[i].By // not the mechanism that keeps it today
	}
	return slices.DeleteFunc(plan.Validate(on), func(f startup.Finding) bool {
		switch f.Code {
		case startup.NotEveryStart:
			return true
		case startup.CannotBeKept, startup.MechanismUnfit:
			return Kept(choices, *f.Edge)
		}
		return false
	})
}

// Kept reports whether one of the choices keeps the edge.
func Kept(choices []Choice, e startup.Edge) bool {
	return slices.ContainsFunc(choices, func(c Choice) bool {
		return c.Edge.From == e.From && c.Edge.To == e.To && c.Edge.By != "" && c.Answer.Can()
	})
}

// present is the mechanism that the pod has already.
func (r Reading) present(plan startup.Plan, e startup.Edge, on startup.Kubernetes) Choice {
	c := Choice{Edge: e, Answer: keeps(plan, e, on)}
	for _, f := range r.Found {
		if f.Mechanism == e.By && slices.ContainsFunc(f.Edges, func(o startup.Edge) bool { return o.From == e.From && o.To == e.To }) {
			c.Why, c.Present = []string{"in the pod already (" + f.By + ")"}, &f
			break
		}
	}
	return c
}

func (r Reading) choose(plan startup.Plan, e startup.Edge, on startup.Kubernetes) Choice {
	requested, source := e.By, "the edge names it"
	if requested == "" && r.Start != StartDefault {
		requested, source = startup.Mechanism(r.Start), "annotation "+StartAnnotation+": "+string(r.Start)
	}
	r.edgeBy, e.By = requested, ""
	if r.Start == StartOff && requested == startup.Mechanism(StartOff) {
		return Choice{Edge: e, Why: []string{source + ": no order"}, Warning: e.To + " may run before " + e.From}
	}
	order := slices.DeleteFunc(slices.Clone(startup.Preferred), func(m startup.Mechanism) bool { return slices.Contains(r.Avoid, m) })
	if requested != "" {
		order = []startup.Mechanism{requested}
		if slices.Contains(startup.Preferred, requested) && r.Option(plan, e, startup.InitDone, on).Answer.Can() {
			order = []startup.Mechanism{startup.InitDone}
		}
	}
	var refused []Option
	for _, m := range order {
		o := r.Option(plan, e, m, on)
		if !o.Answer.Can() {
			refused = append(refused, o)
			continue
		}
		e.By = m
		c := Choice{Edge: e, Answer: o.Answer, Refused: relevant(refused), Why: []string{because[m]}}
		if requested == m {
			c.Why = []string{source}
		}
		if m == startup.Native {
			c.Why = append(c.Why, released[o.Health])
		}
		c.Warning = r.warning(e, c)
		return c
	}
	c := Choice{Edge: e, Refused: refused, Warning: fmt.Sprintf("nothing makes %s wait for %s", e.To, e.From)}
	if requested != "" {
		c.Why = []string{source + ", but it does not fit"}
	}
	return c
}

// warning is what a choice does not keep or costs.
func (r Reading) warning(e startup.Edge, c Choice) string {
	var out []string
	if i := slices.IndexFunc(c.Refused, func(o Option) bool { return o.By == startup.Gate }); i >= 0 && r.firstProcess(e) != "" {
		out = append(out, c.Refused[i].WhyNot())
	}
	if e.By == startup.Hold {
		out = append(out, "a hold fails open; parking must take the connections that come too early")
	}
	return strings.Join(out, "; ")
}

// released is what makes the kubelet continue after a sidecar, with the reason.
var released = map[startup.Health]string{
	startup.PostStart:    "released by a blocking postStart, which the kubelet sees about 1 s sooner than a startup probe",
	startup.StartupProbe: "released by its startup probe, which is there already",
	startup.NoHealth:     "released as soon as it runs",
	startup.Report:       "released as soon as it runs",
}

// relevant leaves InitDone out: no user expects it of what is no init container.
func relevant(refused []Option) []Option {
	return slices.DeleteFunc(refused, func(o Option) bool { return o.By == startup.InitDone })
}

// Option is what m would do for e if the pod were written that way. plan has no stars.
func (r Reading) Option(plan startup.Plan, e startup.Edge, m startup.Mechanism, on startup.Kubernetes) Option {
	written, reason := r.asWritten(plan, e, m)
	if reason != "" {
		return Option{By: m, Answer: startup.Answer{Limits: []startup.Limit{{Code: "not-in-this-pod", Fatal: true, Reason: reason}}}}
	}
	from, _ := written.Find(e.From)
	e.By = m
	return Option{By: m, Answer: keeps(written, e, on), Health: from.Health}
}

// keeps is what the mechanism of e keeps in a pod that has the commands.
func keeps(plan startup.Plan, e startup.Edge, on startup.Kubernetes) startup.Answer {
	answer := e.By.Keeps(plan, e, on)
	answer.Limits = slices.DeleteFunc(answer.Limits, func(l startup.Limit) bool { return l.Code == "needs-command" })
	return answer
}

// asWritten is the plan of the pod that [Write] would make for this edge, or the
// reason why it would not.
func (r Reading) asWritten(plan startup.Plan, e startup.Edge, m startup.Mechanism) (startup.Plan, string) {
	from, at := plan.Find(e.From)
	to, toAt := plan.Find(e.To)
	if at < 0 || toAt < 0 {
		return plan, fmt.Sprintf("the pod does not have both %s and %s", e.From, e.To)
	}
	f := r.Facts[e.From]
	switch m {
	case startup.Gate:
		return plan, r.noGate(e)
	case startup.Native:
		if from.Kind == startup.Plain && !f.Proxy && r.Start != Start(startup.Native) && r.edgeBy != startup.Native {
			return plan, fmt.Sprintf("%s is a container of the application: it becomes a sidecar only if you ask for it (%s: native)", e.From, StartAnnotation)
		}
		return movedBefore(plan, at, toAt, startup.Sidecar, f, e.After), ""
	case startup.Hold:
		if from.Kind != startup.Plain || to.Kind != startup.Plain {
			return plan, fmt.Sprintf("%s and %s are not both plain containers", e.From, e.To)
		}
		if e.After == startup.Started {
			return plan, "a hook holds until its container is healthy, and not only until it is started"
		}
		return movedBefore(plan, at, toAt, startup.Plain, f, startup.Healthy), ""
	}
	return plan, ""
}

// noGate is the reason why [Write] would make no gate for the edge; empty if it would.
func (r Reading) noGate(e startup.Edge) string {
	from := r.Facts[e.From]
	switch {
	case !r.Facts[e.To].Command:
		return fmt.Sprintf("the command of %s is not in the pod spec, and %s", e.To, r.notLookedUp(e.To))
	case !from.Command && (!from.Proxy || e.After == startup.Completed):
		return fmt.Sprintf("the command of %s is not in the pod spec, so nothing can publish its state", e.From)
	}
	return r.firstProcess(e)
}

// firstProcess is the reason why a gate, which would be process 1 itself, does not fit the
// command of one of the two; empty if it does, or if a gate is requested all the same.
func (r Reading) firstProcess(e startup.Edge) string {
	if r.edgeBy == startup.Gate || r.Start == Start(startup.Gate) {
		return ""
	}
	for _, name := range []string{e.To, e.From} {
		if r.Facts[name].First && !r.Facts[name].Proxy {
			return fmt.Sprintf("the command of %s has to be process 1, and that is the gate: ask for it (%s: gate) if this one need not be", name, StartAnnotation)
		}
	}
	return ""
}

// notLookedUp is the reason why a command is not known from the image either.
func (r Reading) notLookedUp(name string) string {
	switch why := r.Unknown[name]; {
	case why != "":
		return "it is not known from its image: " + why
	case r.Unknown != nil:
		return "it is not known from its image"
	}
	return "looking it up in the image is opt-in"
}

// movedBefore is plan with the container at place from before the one at place
// to, as that kind, with a hook if the edge needs one and the container has a probe.
func movedBefore(plan startup.Plan, from, to int, kind startup.Kind, f Fact, after startup.Condition) startup.Plan {
	list := slices.Clone(plan.Containers)
	c := list[from]
	if c.Kind != startup.Init {
		c.Kind = kind
	}
	holds := c.Health == startup.PostStart || kind == startup.Sidecar && c.Health == startup.StartupProbe
	if after == startup.Healthy && !holds && (f.Probed || f.Proxy) {
		c.Health = startup.PostStart
	}
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
