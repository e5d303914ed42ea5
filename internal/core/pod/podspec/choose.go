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
var because = map[startup.Mechanism][]string{
	startup.InitDone: {"the kubelet completes init containers first; nothing is to be written"},
	startup.Gate:     {"the command is in the pod spec, and a gate keeps the edge at every start and when the pod stops"},
	startup.Native:   {"the best that is left: closed at the first start, without touching a command"},
	startup.Hold:     {"all that is left; it fails open"},
}

var becauseNode = []string{"the node puts a gate before any command, in the pod spec or of the image; it keeps the edge at every start and when the pod stops"}

// Choose picks the mechanism for each edge of what was read, on a kubelet of that
// version. The mechanism that the edge names wins over that of the pod's annotation, and
// that over [startup.Preferred]. If it does not fit, the edge gets no mechanism, and the
// choice has the reason. An edge that the pod keeps already, and no annotation names, stays as it is.
func Choose(r Reading, on startup.Kubernetes) []Choice {
	return newChooser(r, r.Plan().Expand(), on).all(false)
}

// ChooseRequested is [Choose] without the edges that the pod keeps already, and that no
// annotation requests.
func ChooseRequested(r Reading, on startup.Kubernetes) []Choice {
	plan := r.plan()
	plan.Edges = r.requested()
	return newChooser(r, plan.Expand(), on).all(true)
}

func newChooser(r Reading, plan startup.Plan, on startup.Kubernetes) *chooser {
	c := &chooser{Reading: r, plan: plan, on: on, judge: plan.Judge(on)}
	c.judge.Commands = true
	for _, m := range startup.Preferred {
		if !slices.Contains(r.Avoid, m) {
			c.order = append(c.order, m)
		}
	}
	return c
}

// all are the choices for the edges of the plan; without those that the pod keeps already, if
// these are of no interest.
func (c *chooser) all(requestedOnly bool) []Choice {
	r := c.Reading
	requested := startup.Plan{Containers: c.plan.Containers, Edges: r.Requested}.Expand().Edges
	at := byEnds(requested)
	out := make([]Choice, 0, len(c.plan.Edges))
	for _, e := range c.plan.Edges {
		i, isRequested := at[endsOf(e)]
		switch {
		case !isRequested && requestedOnly:
		case !isRequested, r.Excluded != "" && e.By != "":
			out = append(out, c.present(e))
		case e.By == startup.Gate && requested[i].By == "" && r.Start == StartDefault,
			r.Injected && slices.Contains(startup.Preferred, e.By) && (requested[i].By == "" || requested[i].By == e.By):
			out = append(out, c.present(e))
		default:
			choice := c.choose(requested[i])
			if p := c.keeper(choice.Edge); p != nil && !requestedOnly {
				choice.Why, choice.Present = append(slices.Clip(choice.Why), p.why...), p.Found
			}
			out = append(out, choice)
		}
	}
	c.startable(out, func(e startup.Edge) startup.Edge { return requested[at[endsOf(e)]] })
	c.noteUndone(out)
	return out
}

func (c *chooser) noteUndone(all []Choice) {
	near := map[string][]Choice{} // by each of their ends
	for _, choice := range all {
		e := choice.Edge
		near[e.From], near[e.To] = append(near[e.From], choice), append(near[e.To], choice)
	}
	for i := range all {
		c.undone(&all[i], near)
	}
}

// undone notes that other edges undo what the kubelet keeps of this one: To is written before the
// hold that it would have waited for, or From, which is to be started, waits within its container.
func (r *chooser) undone(c *Choice, near map[string][]Choice) {
	if c.Edge.By != startup.Hold && c.Edge.By != startup.Native {
		return
	}
	var limit startup.Limit
	to, _ := r.judge.Find(c.Edge.To)
	for _, o := range slices.Concat(near[c.Edge.From], near[c.Edge.To]) {
		switch {
		case c.Present != nil && o.Present == nil && c.Edge.By == startup.Hold && o.Edge.By == startup.Native && o.Edge.From == c.Edge.To && to.Kind == startup.Plain:
			limit = startup.Limit{Code: "moved-before", Reason: fmt.Sprintf("%s becomes a sidecar for another edge, and sidecars start before %s", c.Edge.To, c.Edge.From)}
		case c.Edge.After == startup.Started && o.Edge.To == c.Edge.From && o.Edge.By.WaitsInside():
			limit = startup.Limit{Code: "waits-inside", Reason: fmt.Sprintf("%s is started for the kubelet while its command still waits for %s", c.Edge.From, o.Edge.From)}
		}
	}
	if limit.Code != "" {
		c.Answer = startup.Answer{Stop: c.Answer.Stop && limit.Code != "moved-before", Limits: append(slices.Clip(c.Answer.Limits), limit)}
	}
}

// keeper is what keeps an edge in the pod already, by the mechanism that it names; nil if nothing
// does, or only for a weaker condition.
func (r *chooser) keeper(e startup.Edge) *presence {
	p := r.presence(e)
	if p == nil || !slices.ContainsFunc(p.Edges, func(o startup.Edge) bool { return endsOf(o) == endsOf(e) && o.After == e.After }) {
		return nil
	}
	return p
}

// A chooser chooses the mechanisms of the edges of one plan.
type chooser struct {
	Reading
	plan  startup.Plan // without stars
	on    startup.Kubernetes
	judge *startup.Judge      // of plan
	order []startup.Mechanism // the best first
	found map[carried]*presence
	moved map[moved]*startup.Judge // of plans with a container that becomes a sidecar

	stuck  map[startup.Edge]string // by ends and mechanism: why the pod would never start with it
	edgeBy startup.Mechanism       // the mechanism that the edge in hand names; empty: none
}

// A moved container is listed before the one at place to, as a sidecar.
type moved struct {
	from, to int
	holds    bool // until it is healthy
}

// A carried edge is one between two containers by a mechanism.
type carried struct {
	ends
	by startup.Mechanism
}

// A presence is what keeps edges in the pod already.
type presence struct {
	*Found
	why []string
}

// Findings are what is wrong with the plan of what was read. How well an edge is kept, and
// what one of the choices will keep, is not among them.
func (r Reading) Findings(choices []Choice, on startup.Kubernetes) startup.Findings {
	plan := r.Plan()
	for i := range r.Requested {
		plan.Edges[i].By = r.Requested[i].By // not the mechanism that keeps it today
	}
	kept := KeptBy(choices)
	return slices.DeleteFunc(plan.Validate(on), func(f startup.Finding) bool {
		switch f.Code {
		case startup.NotEveryStart:
			return true
		case startup.CannotBeKept, startup.MechanismUnfit:
			return kept(*f.Edge)
		}
		return false
	})
}

// KeptBy reports of an edge whether one of the choices keeps it.
func KeptBy(choices []Choice) func(startup.Edge) bool {
	kept := map[ends]bool{}
	for _, c := range choices {
		if c.Edge.By != "" && c.Answer.Can() {
			kept[endsOf(c.Edge)] = true
		}
	}
	return func(e startup.Edge) bool { return kept[endsOf(e)] }
}

// presence is what the pod has already of the mechanism that an edge names.
func (r *chooser) presence(e startup.Edge) *presence {
	if r.found == nil {
		r.found = map[carried]*presence{}
		for i := range r.Found {
			f := &r.Found[i]
			p := &presence{f, []string{"in the pod already (" + f.By + ")"}}
			for _, o := range f.Edges {
				if key := (carried{endsOf(o), f.Mechanism}); r.found[key] == nil {
					r.found[key] = p
				}
			}
		}
	}
	return r.found[carried{endsOf(e), e.By}]
}

// present is the mechanism that the pod has already.
func (r *chooser) present(e startup.Edge) Choice {
	c := Choice{Edge: e, Answer: r.judge.Keeps(e.By, e)}
	if p := r.presence(e); p != nil {
		c.Why, c.Present = p.why, p.Found
	}
	return c
}

func (r *chooser) choose(e startup.Edge) Choice {
	requested, source := e.By, "the edge names it"
	if requested == "" && r.Start != StartDefault {
		requested, source = startup.Mechanism(r.Start), "annotation "+StartAnnotation+": "+string(r.Start)
	}
	r.edgeBy, e.By = requested, ""
	if why := r.writesNothing(requested, source); why != "" {
		return r.unordered(e, why)
	}
	order := r.candidates(e, requested)
	var refused []Option
	from, _ := r.judge.Find(e.From)
	notInit := len(order) > 1 && order[0] == startup.InitDone && from.Kind != startup.Init
	if notInit {
		order = order[1:] // as nearly always; why it does not fit is of interest only if nothing does
	}
	for _, m := range order {
		o := r.option(e, m)
		if !o.Answer.Can() {
			refused = append(refused, o)
			continue
		}
		why := because[m]
		if m == startup.Gate && r.Node {
			why = becauseNode
		}
		if requested == m {
			why = []string{source}
		}
		return r.chosen(e, o, why, refused)
	}
	if notInit {
		refused = slices.Insert(refused, 0, r.option(e, startup.InitDone))
	}
	c := Choice{Edge: e, Refused: refused, Warning: fmt.Sprintf("nothing makes %s wait for %s", e.To, e.From)}
	if requested != "" {
		c.Why = []string{source + ", but it does not fit"}
	}
	return c
}

// writesNothing returns why no mechanism will be written into the pod; empty if one may be.
func (r *chooser) writesNothing(requested startup.Mechanism, source string) string {
	switch {
	case r.Excluded != "":
		return "injection leaves the pod as it is: " + r.Excluded
	case r.Start == StartOff && requested == startup.Mechanism(StartOff):
		return source + ": no order"
	}
	return ""
}

// unordered is the choice where nothing is to be written: the kubelet's own order, of init containers, stays.
func (r *chooser) unordered(e startup.Edge, why string) Choice {
	if o := r.option(e, startup.InitDone); o.Answer.Can() {
		return r.chosen(e, o, because[o.By], nil)
	}
	return Choice{Edge: e, Why: []string{why}, Warning: e.To + " may run before " + e.From}
}

// candidates are the mechanisms to try for an edge, best first: the requested one alone, unless
// the order of init containers keeps the edge anyway.
func (r *chooser) candidates(e startup.Edge, requested startup.Mechanism) []startup.Mechanism {
	// What is avoided is to make a sidecar: the kubelet keeps the order behind one of the author's anyway.
	var own []startup.Mechanism
	if from, at := r.judge.Find(e.From); at >= 0 && from.Kind == startup.Sidecar && !r.Facts[e.From].Proxy {
		own = append(own, startup.Native)
	}
	switch {
	case requested == "" && !slices.Contains(r.order, startup.Native):
		return slices.Concat(r.order, own)
	case requested == "":
		return r.order
	case slices.Contains(startup.Preferred, requested) && r.option(e, startup.InitDone).Answer.Can():
		return []startup.Mechanism{startup.InitDone}
	case requested == startup.Hold && r.Start == StartHold:
		return slices.Concat([]startup.Mechanism{requested}, own)
	}
	return []startup.Mechanism{requested}
}

// chosen is the choice of an option that fits.
func (r *chooser) chosen(e startup.Edge, o Option, why []string, refused []Option) Choice {
	e.By = o.By
	if o.By == startup.Native {
		why = append(slices.Clip(why), released[o.Health])
	}
	c := Choice{Edge: e, Answer: o.Answer, Refused: relevant(refused), Why: why}
	c.Warning = r.warning(e, c)
	return c
}

// warning is what a choice does not keep or costs.
func (r *chooser) warning(e startup.Edge, c Choice) string {
	var out []string
	if i := slices.IndexFunc(c.Refused, func(o Option) bool { return o.By == startup.Gate }); i >= 0 && r.firstProcess(e) != "" {
		out = append(out, c.Refused[i].WhyNot())
	}
	if i := slices.IndexFunc(c.Answer.Limits, func(l startup.Limit) bool { return l.Code == "no-timeout" }); i >= 0 {
		out = append(out, fmt.Sprintf("the wait of %s is not bounded by %s: %s", e.To, e.Timeout, c.Answer.Limits[i].Reason))
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

// option is what m would do for e if the pod were written that way.
func (r *chooser) option(e startup.Edge, m startup.Mechanism) Option {
	e.By = m
	from, answer, reason := r.asWritten(e)
	if stuck := r.stuck[startup.Edge{From: e.From, To: e.To, By: m}]; stuck != "" {
		reason = stuck
	}
	if reason != "" {
		answer = startup.Answer{Limits: []startup.Limit{{Code: "not-in-this-pod", Fatal: true, Reason: reason}}}
	}
	return Option{By: m, Answer: answer, Health: from.Health}
}

// asWritten returns From and the answer of e's mechanism in the pod that [Write] would make for
// this edge, or the reason why it would not.
func (r *chooser) asWritten(e startup.Edge) (startup.Container, startup.Answer, string) {
	from, at := r.judge.Find(e.From)
	to, toAt := r.judge.Find(e.To)
	if at < 0 || toAt < 0 {
		return startup.Container{}, startup.Answer{}, fmt.Sprintf("the pod does not have both %s and %s", e.From, e.To)
	}
	if at == toAt {
		return startup.Container{}, startup.Answer{}, e.From + " cannot wait for itself"
	}
	f := r.Facts[e.From]
	if f.lacksHook(e) {
		return startup.Container{}, startup.Answer{}, e.From + " has a postStart hook of its own, and a container can have one only"
	}
	judge := r.judge
	switch e.By {
	case startup.Gate:
		if reason := r.noGate(e); reason != "" {
			return startup.Container{}, startup.Answer{}, reason
		}
	case startup.Native:
		if from.Kind == startup.Plain && !f.Proxy && r.Start != Start(startup.Native) && r.edgeBy != startup.Native {
			return startup.Container{}, startup.Answer{}, fmt.Sprintf("%s is a container of the application: it becomes a sidecar only if you ask for it (%s: native)", e.From, StartAnnotation)
		}
		judge = r.asSidecar(e, at, toAt)
	case startup.Hold:
		if reason := noHold(e, from, to); reason != "" {
			return startup.Container{}, startup.Answer{}, reason
		}
		two := startup.Plan{Containers: []startup.Container{to, from}} // the others make no difference
		judge = movedBefore(two, 1, 0, startup.Plain, f, startup.Healthy).Judge(r.on)
	}
	from, _ = judge.Find(e.From)
	return from, judge.Keeps(e.By, e), ""
}

// noHold is the reason why [Write] would make no hold for an edge; empty if it would.
func noHold(e startup.Edge, from, to startup.Container) string {
	if from.Kind != startup.Plain || to.Kind != startup.Plain {
		return fmt.Sprintf("%s and %s are not both plain containers", e.From, e.To)
	}
	if e.After != startup.Healthy {
		return holdsForHealth(e.After)
	}
	return ""
}

// lacksHook reports whether an edge needs a postStart of From that waits, and there is another one.
func (f Fact) lacksHook(e startup.Edge) bool {
	needs := e.By == startup.Hold || e.By == startup.Native && e.After == startup.Healthy && !f.Starts
	return needs && f.Hooked
}

// asSidecar judges the plan that Write would make where From, at place from, becomes a sidecar.
func (r *chooser) asSidecar(e startup.Edge, from, to int) *startup.Judge {
	place := moved{from, to, e.After == startup.Healthy}
	if list := r.plan.Containers; list[from].Kind == startup.Plain && list[to].Kind == startup.Plain {
		place.to = -1 // to the end of the init list, before all plain ones
	}
	if r.moved == nil {
		r.moved = map[moved]*startup.Judge{}
	}
	if r.moved[place] == nil {
		written := movedBefore(r.plan, from, to, startup.Sidecar, r.Facts[e.From], e.After)
		r.moved[place] = written.Judge(r.on)
	}
	return r.moved[place]
}

// noGate is the reason why [Write] would make no gate for the edge; empty if it would.
func (r *chooser) noGate(e startup.Edge) string {
	switch missing := r.missingCommands(e); {
	case slices.Contains(missing, e.To):
		return fmt.Sprintf("the command of %s is not in the pod spec, and %s", e.To, r.notLookedUp(e.To))
	case len(missing) > 0:
		return fmt.Sprintf("the command of %s is not in the pod spec, so nothing can publish its state", e.From)
	}
	return r.firstProcess(e)
}

// firstProcess is the reason why a gate, which would be process 1 itself, does not fit the
// command of one of the two; empty if it does, or if a gate is requested all the same.
func (r *chooser) firstProcess(e startup.Edge) string {
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
