package startup

import (
	"slices"
	"strings"
	"unicode"
)

// A Mechanism is a way to enforce an edge in a pod.
type Mechanism string

const (
	// Native makes the container From a restartable init container. The kubelet starts the containers listed
	// after From when From has started, or when From is healthy if it has a startup probe or a blocking
	// postStart hook.
	Native Mechanism = "native"

	// Gate means that outrider-agent wraps To's command, and also From's command unless From is a proxy. The gate
	// waits and then runs the real command. When the pod stops, the gate of From delays SIGTERM until the
	// containers that wait for From have ended.
	Gate Mechanism = "gate"

	// Hold lists the container From first in spec.containers and gives it a postStart hook that blocks until
	// From is healthy.
	Hold Mechanism = "hold"

	// InitDone means that the container From is a regular init container, which the kubelet completes before it
	// starts To.
	InitDone Mechanism = "init"

	// Work-arounds that people write. They are recognised, not recommended.

	PostStartProbe Mechanism = "post-start-probe" // To's own postStart hook polls From's health port
	Wrapper        Mechanism = "wrapper"          // a program other than outrider-agent wraps To's command, and waits: linkerd-await, scuttle
	HealthLoop     Mechanism = "health-loop"      // To's command polls until it succeeds, before the real work
	BoundedLoop    Mechanism = "bounded-loop"     // To's command polls a limited number of times, and then continues in any case
	Sleep          Mechanism = "sleep"            // To's command sleeps before the real work
)

// Preferred lists the mechanisms that Outrider uses, best first. InitDone changes nothing in the pod, since the
// kubelet itself completes an init container before it continues. A gate enforces an edge at every start, and is
// the fastest. A native sidecar enforces it only at the first start. A hold does not enforce it if the hook
// fails.
var Preferred = []Mechanism{InitDone, Gate, Native, Hold}

// WorkArounds lists the waits that people write into commands and hooks, the best first.
var WorkArounds = []Mechanism{HealthLoop, BoundedLoop, PostStartProbe, Sleep}

// Mechanisms lists all mechanisms, the best first.
var Mechanisms = slices.Concat(Preferred, []Mechanism{Wrapper}, WorkArounds)

// WaitsInside reports whether this mechanism makes the container To wait inside itself. The kubelet does not see
// that wait: it considers To started.
func (m Mechanism) WaitsInside() bool {
	return slices.Contains([]Mechanism{Wrapper, HealthLoop, BoundedLoop, Sleep}, m)
}

// GivesWay reports whether an edge that the pod already has by this mechanism may be dropped if it contradicts
// another edge: it is only the present order of the pod's lists, or a wait that ends by itself.
func (m Mechanism) GivesWay() bool {
	return slices.Contains([]Mechanism{InitDone, Native, BoundedLoop, Sleep}, m)
}

// Scope is the set of starts at which a mechanism keeps an edge.
type Scope int

const (
	Nowhere    Scope = iota // To may run before From
	FirstStart              // when the pod starts, but not when To or From restarts
	EveryStart
)

func (s Scope) String() string {
	return [...]string{"nowhere", "at the first start", "at every start"}[s]
}

// An Answer describes how well a mechanism enforces an edge.
type Answer struct {
	Start  Scope
	Stop   bool    // To also stops before From
	Limits []Limit // guarantees that the mechanism does not give, and its costs
}

// Can reports whether the mechanism can be used for the edge.
func (a Answer) Can() bool {
	return !slices.ContainsFunc(a.Limits, func(l Limit) bool { return l.Fatal })
}

// A Limit is a guarantee that a mechanism does not give, or a cost of the mechanism.
type Limit struct {
	Code   string `json:"code"`             // stable
	Fatal  bool   `json:"-"`                // the mechanism cannot be used for this edge
	Reason string `json:"reason"`           // a sentence, with the names of the containers
	Source string `json:"source,omitempty"` // the source of the information
}

// Keeps returns how well m enforces the edge e of the plan p on a kubelet of that version. The edge must have no
// wildcard. If m cannot be used, the answer contains only the reason.
func (m Mechanism) Keeps(p Plan, e Edge, on Kubernetes) Answer {
	return (&Judge{plan: p, on: on.orNewest()}).Keeps(m, e)
}

// A Judge answers how well mechanisms enforce the edges of one plan. It gives the same answers as
// [Mechanism.Keeps], which needs time proportional to the size of the plan for each call.
type Judge struct {
	// Commands means that the commands of all containers are known, so that answers leave out the limit
	// "needs-command" of a gate.
	Commands bool

	plan   Plan
	on     Kubernetes
	at     map[string]int   // index of each container by name; nil: search in the plan
	needed map[string]bool  // containers without which another one never becomes healthy; nil until they are needed
	listed *waits           // waits because of the kubelet's order and health, without the plan's edges; nil until they are needed
	before map[int32][]bool // by node of listed: the nodes that wait for it
}

// Judge returns a judge for p, whose containers must not change while the judge is used.
func (p Plan) Judge(on Kubernetes) *Judge {
	j := &Judge{plan: p, on: on.orNewest(), at: make(map[string]int, len(p.Containers))}
	for i, c := range p.Containers {
		if _, first := j.at[c.Name]; !first {
			j.at[c.Name] = i
		}
	}
	return j
}

// Find is [Plan.Find] with an index.
func (j *Judge) Find(name string) (Container, int) {
	if j.at == nil {
		return j.plan.Find(name)
	}
	if i, known := j.at[name]; known {
		return j.plan.Containers[i], i
	}
	return Container{}, -1
}

// Keeps returns how well m enforces e.
func (j *Judge) Keeps(m Mechanism, e Edge) Answer {
	rule, ok := mechanismRules[m]
	if !ok {
		return Answer{Limits: []Limit{{Code: "unknown-mechanism", Fatal: true, Reason: "there is no mechanism " + string(m)}}}
	}
	s := j.situation(e)
	a := Answer{Start: rule.start(s), Stop: rule.stop(s)}
	fatal := !rule.fits(s) // costs are then of no interest
	if fatal {
		a.Start, a.Stop = Nowhere, false
	}
	for _, l := range rule.limits {
		if l.Fatal == fatal && (l.when == nil || l.when(s)) && !(j.Commands && l.Code == needsCommand) {
			l.Reason = s.named(l.Reason)
			a.Limits = append(a.Limits, l.Limit)
		}
	}
	return a
}

const needsCommand = "needs-command"

// fits reports whether the mechanism can be used, i.e. no fatal limit applies.
func (r mechanismRule) fits(s situation) bool {
	return !slices.ContainsFunc(r.limits, func(l limitRule) bool { return l.Fatal && (l.when == nil || l.when(s)) })
}

func (j *Judge) situation(e Edge) situation {
	s := situation{judge: j, edge: e}
	s.from, s.fromAt = j.Find(e.From)
	s.to, s.toAt = j.Find(e.To)
	return s
}

// better returns the first mechanism that keeps e at more starts than e.By does; empty if there is none.
func (j *Judge) better(e Edge) Mechanism {
	s := j.situation(e)
	now := Nowhere
	if rule := mechanismRules[e.By]; rule.start != nil && rule.fits(s) {
		now = rule.start(s)
	}
	for _, m := range Mechanisms {
		if rule := mechanismRules[m]; m != e.By && rule.start(s) > now && rule.fits(s) {
			return m
		}
	}
	return ""
}

// needsToRun reports whether some other container becomes healthy only if the named one runs.
func (j *Judge) needsToRun(name string) bool {
	if j.needed == nil {
		j.needed = map[string]bool{}
		for _, c := range j.plan.Containers {
			for _, n := range c.HealthNeeds {
				j.needed[n] = true
			}
		}
	}
	return j.needed[name]
}

// waitsFor reports whether the kubelet delays the first point until the second one is reached.
func (j *Judge) waitsFor(from, to point) bool {
	if j.listed == nil {
		q := Plan{Containers: j.plan.Containers}
		j.listed, j.before = q.waits(listOrder|healthNeeds), map[int32][]bool{}
	}
	start, end := j.listed.node(from), j.listed.node(to)
	waiting := j.before[end]
	if len(waiting) < len(j.listed.graph) {
		waiting = j.listed.graph.reversed().reached(end)
		j.before[end] = waiting
	}
	return waiting[start]
}

// A situation holds everything on which the answer of a mechanism can depend.
type situation struct {
	judge        *Judge
	edge         Edge
	from, to     Container
	fromAt, toAt int // -1: the pod has no such container
}

// A mechanismRule contains the rules for one mechanism.
type mechanismRule struct {
	start  func(situation) Scope
	stop   func(situation) bool
	limits []limitRule
}

type limitRule struct {
	when func(situation) bool // nil: it always applies
	Limit
}

// named returns a reason in which the words From and To are replaced by the names of the containers. It uses no
// regular expression, which would be too slow because every answer has several reasons.
func (s situation) named(reason string) string {
	if !strings.Contains(reason, "From") && !strings.Contains(reason, "To") {
		return reason
	}
	var b strings.Builder
	for len(reason) > 0 {
		end := strings.IndexFunc(reason, func(r rune) bool { return !unicode.IsLetter(r) })
		if end < 0 {
			end = len(reason)
		}
		switch word := reason[:end]; word {
		case "From":
			b.WriteString(s.edge.From)
		case "To":
			b.WriteString(s.edge.To)
		default:
			b.WriteString(word)
		}
		next := strings.IndexFunc(reason[end:], unicode.IsLetter)
		if next < 0 {
			next = len(reason) - end
		}
		b.WriteString(reason[end : end+next])
		reason = reason[end+next:]
	}
	return b.String()
}

func keeps(s Scope) func(situation) Scope { return func(situation) Scope { return s } }
func stops(b bool) func(situation) bool   { return func(situation) bool { return b } }

// listedBefore reports whether the container From comes before the container To in the same list of the pod, or
// From is in the init list and To is a regular container.
func (s situation) listedBefore() bool {
	if s.fromAt < 0 || s.toAt < 0 {
		return false
	}
	if s.from.inInitList() != s.to.inInitList() {
		return s.from.inInitList()
	}
	return s.fromAt < s.toAt
}

func (s situation) plainContainers() int {
	n := 0
	for _, c := range s.judge.plan.Containers {
		if c.Kind == Plain {
			n++
		}
	}
	return n
}

// lastInit reports whether no init container is listed after the container From.
func (s situation) lastInit() bool {
	for _, c := range s.judge.plan.Containers[s.fromAt+1:] {
		if c.inInitList() {
			return false
		}
	}
	return true
}
