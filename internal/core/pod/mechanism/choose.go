package mechanism

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
)

// A Choice is the mechanism chosen for one edge, with the reasons.
type Choice struct {
	Edge    startup.Edge // By is the mechanism; empty if none can be used
	Why     []string
	Answer  startup.Answer
	Present *podstart.Found // the ordering that already keeps the edge; nil if the edge must be written
	Refused []Option        // mechanisms that would have been preferred but cannot be used
	Warning string
}

// because contains the reasons for choosing each mechanism in [startup.Preferred].
var because = map[startup.Mechanism][]string{
	startup.InitDone: {"the kubelet completes init containers first; nothing is to be written"},
	startup.Gate:     {"the command is in the pod spec, and a gate keeps the edge at every start and when the pod stops"},
	startup.Native:   {"the best that is left: closed at the first start, without touching a command"},
	startup.Hold:     {"all that is left; it fails open"},
}

var becauseNode = []string{"the node puts a gate before any command, in the pod spec or of the image; it keeps the edge at every start and when the pod stops"}

// Choose returns the mechanism for each edge of a reading, on a kubelet of that version. A mechanism that the
// edge names takes precedence over the one in the pod's annotation, and the latter over [startup.Preferred]. If
// the requested mechanism cannot be used, the edge gets none, and the choice contains the reason. An edge that
// the pod already keeps, but that no annotation requests, remains as it is.
func Choose(r podstart.Reading, on startup.Kubernetes) []Choice {
	return newChooser(r, r.Plan().Expand(), on).all(false)
}

// ChooseRequested is [Choose] for the requested edges alone.
func ChooseRequested(r podstart.Reading, on startup.Kubernetes) []Choice {
	plan := r.ContainerPlan()
	plan.Edges = r.RequestedEdges()
	return newChooser(r, plan.Expand(), on).all(true)
}

func newChooser(r podstart.Reading, plan startup.Plan, on startup.Kubernetes) *chooser {
	c := &chooser{pod: r, plan: plan, on: on, judge: plan.Judge(on), found: newExisting(r.Found),
		moved: map[moved]*startup.Judge{}, deadlocks: map[startup.Edge]string{}}
	c.judge.Commands = true
	for _, m := range startup.Preferred {
		if !slices.Contains(r.Avoid, m) {
			c.order = append(c.order, m)
		}
	}
	return c
}

// all returns the choices for the edges of the plan. If requestedOnly is true, it returns only the choices for
// edges that an annotation requests.
func (c *chooser) all(requestedOnly bool) []Choice {
	requested := startup.Plan{Containers: c.plan.Containers, Edges: c.pod.Requested}.Expand().Edges
	at := startup.ByEnds(requested)
	out := make([]Choice, 0, len(c.plan.Edges))
	for _, e := range c.plan.Edges {
		i, isRequested := at[e.Ends()]
		switch {
		case !isRequested && requestedOnly:
		case !isRequested, c.pod.Excluded != "" && e.By != "":
			out = append(out, c.found.choice(e, c.judge))
		case e.By == startup.Gate && requested[i].By == "" && c.pod.Start == "",
			c.pod.Injected && slices.Contains(startup.Preferred, e.By) && (requested[i].By == "" || requested[i].By == e.By):
			out = append(out, c.found.choice(e, c.judge))
		default:
			choice := c.choose(requested[i])
			if !requestedOnly && c.found.keeps(choice.Edge) {
				p := c.found.of(choice.Edge)
				choice.Why, choice.Present = append(slices.Clip(choice.Why), p.why...), p.Found
			}
			out = append(out, choice)
		}
	}
	c.startable(out, func(e startup.Edge) startup.Edge { return requested[at[e.Ends()]] })
	c.noteUndone(out)
	return out
}

func (c *chooser) noteUndone(all []Choice) {
	adjacent := map[string][]Choice{} // by the name of each of the edge's containers
	for _, choice := range all {
		e := choice.Edge
		adjacent[e.From], adjacent[e.To] = append(adjacent[e.From], choice), append(adjacent[e.To], choice)
	}
	for i := range all {
		c.undone(&all[i], adjacent)
	}
}

// undone adds a limit if another edge prevents the kubelet from enforcing this one. There are two cases. In the
// first, the container e.To becomes a sidecar and so starts before e.From with its hold. In the second, e.To
// waits only for the start of e.From. The kubelet considers e.From started while its command still waits inside
// the container.
func (c *chooser) undone(choice *Choice, adjacent map[string][]Choice) {
	if choice.Edge.By != startup.Hold && choice.Edge.By != startup.Native {
		return
	}
	var limit startup.Limit
	to, _ := c.judge.Find(choice.Edge.To)
	for _, o := range slices.Concat(adjacent[choice.Edge.From], adjacent[choice.Edge.To]) {
		switch {
		case choice.Present != nil && o.Present == nil && choice.Edge.By == startup.Hold && o.Edge.By == startup.Native && o.Edge.From == choice.Edge.To && to.Kind == startup.Plain:
			limit = startup.Limit{Code: "starts-before-dependency", Reason: fmt.Sprintf("%s becomes a sidecar for another edge, and sidecars start before %s", choice.Edge.To, choice.Edge.From)}
		case choice.Edge.After == startup.Started && o.Edge.To == choice.Edge.From && o.Edge.By.WaitsInside():
			limit = startup.Limit{Code: "waits-in-command", Reason: fmt.Sprintf("%s is started for the kubelet while its command still waits for %s", choice.Edge.From, o.Edge.From)}
		}
	}
	if limit.Code != "" {
		choice.Answer = startup.Answer{Stop: choice.Answer.Stop && limit.Code != "starts-before-dependency", Limits: append(slices.Clip(choice.Answer.Limits), limit)}
	}
}

// A chooser chooses the mechanisms of the edges of one plan.
type chooser struct {
	pod       podstart.Reading
	plan      startup.Plan // with expanded wildcards
	on        startup.Kubernetes
	judge     *startup.Judge      // of the plan
	order     []startup.Mechanism // mechanisms to try, best first
	found     existing
	moved     map[moved]*startup.Judge // judges of the plan with one container made a sidecar
	deadlocks map[startup.Edge]string  // by ends and mechanism: the deadlock that the mechanism would cause
}

// Findings returns the problems of the reading's plan. It leaves out findings about the quality of a mechanism,
// and findings about edges that one of the choices keeps.
func Findings(r podstart.Reading, choices []Choice, on startup.Kubernetes) startup.Findings {
	plan := r.Plan()
	for i := range r.Requested {
		plan.Edges[i].By = r.Requested[i].By // the requested mechanism, not the one that the pod has
	}
	kept := KeptBy(choices)
	return slices.DeleteFunc(plan.Validate(on), func(f startup.Finding) bool {
		switch f.Code {
		case startup.NotEveryStart:
			return true
		case startup.UnsatisfiableEdge, startup.UnsuitableMechanism:
			return kept(*f.Edge)
		}
		return false
	})
}

// KeptBy returns a function that reports whether one of the choices keeps an edge.
func KeptBy(choices []Choice) func(startup.Edge) bool {
	kept := map[startup.Ends]bool{}
	for _, c := range choices {
		if c.Edge.By != "" && c.Answer.Can() {
			kept[c.Edge.Ends()] = true
		}
	}
	return func(e startup.Edge) bool { return kept[e.Ends()] }
}

func (c *chooser) choose(e startup.Edge) Choice {
	requested, source := e.By, "the edge names it"
	if requested == "" && c.pod.Start != "" {
		requested, source = c.pod.Start, "annotation "+contract.Start+": "+string(c.pod.Start)
	}
	e.By = requested
	if why := c.writesNothing(requested, source); why != "" {
		return c.unordered(e, why)
	}
	order := c.candidates(e)
	var refused []Option
	from, _ := c.judge.Find(e.From)
	notInit := len(order) > 1 && order[0] == startup.InitDone && from.Kind != startup.Init
	if notInit {
		order = order[1:] // for speed: the reason why InitDone cannot be used is needed only if no other mechanism can
	}
	for _, m := range order {
		o := c.option(e, m)
		if !o.Answer.Can() {
			refused = append(refused, o)
			continue
		}
		why := because[m]
		if m == startup.Gate && c.pod.Node {
			why = becauseNode
		}
		if requested == m {
			why = []string{source}
		}
		return c.chosen(e, o, why, refused)
	}
	if notInit {
		refused = slices.Insert(refused, 0, c.option(e, startup.InitDone))
	}
	e.By = ""
	none := Choice{Edge: e, Refused: refused, Warning: fmt.Sprintf("nothing makes %s wait for %s", e.To, e.From)}
	if requested != "" {
		none.Why = []string{source + ", but it does not fit"}
	}
	return none
}

// writesNothing returns the reason why nothing will be written into the pod for an edge; empty if something may
// be written.
func (c *chooser) writesNothing(requested startup.Mechanism, source string) string {
	switch {
	case c.pod.Excluded != "":
		return "injection leaves the pod as it is: " + c.pod.Excluded
	case c.pod.Start == request.Off && requested == request.Off:
		return source + ": no order"
	}
	return ""
}

// unordered returns the choice for an edge if nothing may be written. The kubelet's own order of init containers
// may keep the edge nevertheless.
func (c *chooser) unordered(e startup.Edge, why string) Choice {
	if o := c.option(e, startup.InitDone); o.Answer.Can() {
		return c.chosen(e, o, because[o.By], nil)
	}
	e.By = ""
	return Choice{Edge: e, Why: []string{why}, Warning: e.To + " may run before " + e.From}
}

// candidates returns the mechanisms to try for an edge, best first. If one is requested it is the only
// candidate, unless the order of init containers keeps the edge anyway.
func (c *chooser) candidates(e startup.Edge) []startup.Mechanism {
	requested := e.By
	// The field [podstart.Reading.Avoid] forbids only new sidecars. The kubelet always starts the author's own
	// sidecars in order.
	var own []startup.Mechanism
	if from, at := c.judge.Find(e.From); at >= 0 && from.Kind == startup.Sidecar && !c.pod.Facts[e.From].Proxy {
		own = append(own, startup.Native)
	}
	switch {
	case requested == "" && !slices.Contains(c.order, startup.Native):
		return slices.Concat(c.order, own)
	case requested == "":
		return c.order
	case slices.Contains(startup.Preferred, requested) && c.option(e, startup.InitDone).Answer.Can():
		return []startup.Mechanism{startup.InitDone}
	case requested == startup.Hold && c.pod.Start == startup.Hold:
		return slices.Concat([]startup.Mechanism{requested}, own)
	}
	return []startup.Mechanism{requested}
}

// chosen returns the choice of an option that fits.
func (c *chooser) chosen(e startup.Edge, o Option, why []string, refused []Option) Choice {
	if o.By == startup.Native {
		why = append(slices.Clip(why), released[o.Health])
	}
	requested := e.By
	e.By = o.By
	out := Choice{Edge: e, Answer: o.Answer, Refused: relevant(refused), Why: why}
	out.Warning = c.warning(out, requested)
	return out
}

// warning returns a warning about guarantees that a choice does not give, or about its cost; empty if there is
// none.
func (c *chooser) warning(choice Choice, requested startup.Mechanism) string {
	var out []string
	e := choice.Edge
	if i := slices.IndexFunc(choice.Refused, func(o Option) bool { return o.By == startup.Gate }); i >= 0 && c.firstProcess(e, requested) != "" {
		out = append(out, choice.Refused[i].WhyNot())
	}
	if i := slices.IndexFunc(choice.Answer.Limits, func(l startup.Limit) bool { return l.Code == "no-timeout" }); i >= 0 {
		out = append(out, fmt.Sprintf("the wait of %s is not bounded by %s: %s", e.To, e.Timeout, choice.Answer.Limits[i].Reason))
	}
	if e.By == startup.Hold {
		out = append(out, "a hold fails open; parking must take the connections that come too early")
	}
	return strings.Join(out, "; ")
}

// released contains explanations of what lets the kubelet continue after a sidecar.
var released = map[startup.Health]string{
	startup.PostStart:    "released by a blocking postStart, which the kubelet sees about 1 s sooner than a startup probe",
	startup.StartupProbe: "released by its startup probe, which is there already",
	startup.NoHealth:     "released as soon as it runs",
	startup.Report:       "released as soon as it runs",
}

// relevant removes InitDone, which is not expected for a container that is not an init container.
func relevant(refused []Option) []Option {
	return slices.DeleteFunc(refused, func(o Option) bool { return o.By == startup.InitDone })
}
