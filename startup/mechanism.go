package startup

import (
	"slices"
	"strings"
	"unicode"
)

// A Mechanism is a way to enforce an edge in a pod.
type Mechanism string

const (
	// Native: From is a restartable init container. The kubelet starts the containers after it once From has
	// started, or is healthy if it has a startup probe or a blocking postStart.
	Native Mechanism = "native"

	// Gate: outrider-agent wraps To's command, and From's command too unless From is a proxy. The gate
	// waits, then runs the real command. At the stop it passes SIGTERM on once the containers that wait for
	// this one have ended.
	Gate Mechanism = "gate"

	// Hold: From comes first in spec.containers and its postStart blocks.
	Hold Mechanism = "hold"

	// InitDone: From is a plain init container, which the kubelet completes first.
	InitDone Mechanism = "init"

	// Work-arounds that people write. They are recognised, not recommended.

	PostStartProbe Mechanism = "post-start-probe" // To's own postStart polls From's health port
	Wrapper        Mechanism = "wrapper"          // a program other than outrider-agent wraps To's command, and waits: linkerd-await, scuttle
	HealthLoop     Mechanism = "health-loop"      // To's command polls until it succeeds, before it begins
	BoundedLoop    Mechanism = "bounded-loop"     // To's command polls a limited number of times, and then begins in any case
	Sleep          Mechanism = "sleep"            // To's command sleeps before it begins
)

// Preferred lists the mechanisms that Outrider uses, the best first. InitDone needs nothing written, since
// the kubelet completes an init container before it goes on. A gate keeps an edge at every start, and is the
// fastest. A native sidecar keeps it at the first start only. A hold fails open.
var Preferred = []Mechanism{InitDone, Gate, Native, Hold}

// WorkArounds lists the waits that people write into commands and hooks, the best first.
var WorkArounds = []Mechanism{HealthLoop, BoundedLoop, PostStartProbe, Sleep}

// Mechanisms lists all mechanisms, the best first.
var Mechanisms = slices.Concat(Preferred, []Mechanism{Wrapper}, WorkArounds)

// WaitsInside reports whether To waits within its container by this mechanism. The kubelet does not see that
// wait: it considers To started.
func (m Mechanism) WaitsInside() bool {
	return slices.Contains([]Mechanism{Wrapper, HealthLoop, BoundedLoop, Sleep}, m)
}

// GivesWay reports whether a mechanism that a pod already has leaves room for every other edge: it is only
// the present order of the pod's lists, or a wait that ends by itself.
func (m Mechanism) GivesWay() bool {
	return slices.Contains([]Mechanism{InitDone, Native, BoundedLoop, Sleep}, m)
}

// Scope is the set of starts at which a mechanism keeps an edge.
type Scope int

const (
	Nowhere    Scope = iota // To may run before From
	FirstStart              // kept when the pod starts, not when To or From restarts
	EveryStart
)

func (s Scope) String() string {
	return [...]string{"nowhere", "at the first start", "at every start"}[s]
}

// An Answer describes how far a mechanism keeps an edge.
type Answer struct {
	Start  Scope
	Stop   bool    // To also stops before From
	Limits []Limit // guarantees that it does not give, and what it costs
}

// Can reports whether the mechanism fits at all.
func (a Answer) Can() bool {
	return !slices.ContainsFunc(a.Limits, func(l Limit) bool { return l.Fatal })
}

// A Limit is a guarantee that a mechanism does not give, or a price of the mechanism.
type Limit struct {
	Code   string `json:"code"`             // stable
	Fatal  bool   `json:"-"`                // the mechanism cannot be used for this edge
	Reason string `json:"reason"`           // a sentence, with the names of the containers
	Source string `json:"source,omitempty"` // where the limit is known from
}

// Keeps returns how far m keeps e on a kubelet of that version. The edge has no star, and p is the plan of
// the pod. If m cannot be used, Keeps returns only the reason.
func (m Mechanism) Keeps(p Plan, e Edge, on Kubernetes) Answer {
	return (&Judge{plan: p, on: on.orNewest()}).Keeps(m, e)
}

// A Judge says how far mechanisms keep the edges of one plan. It gives the same answers as
// [Mechanism.Keeps], which takes time that grows with the plan for each call.
type Judge struct {
	// Commands says that the commands of all containers are known: a gate then has no limit
	// "needs-command".
	Commands bool

	plan   Plan
	on     Kubernetes
	at     map[string]int   // index of each container; nil: search the plan
	needed map[string]bool  // containers without which another one never becomes healthy; nil: not computed yet
	listed *waits           // the kubelet's waits, without the plan's edges; nil: not needed yet
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

// Find does the same as [Plan.Find].
func (j *Judge) Find(name string) (Container, int) {
	if j.at == nil {
		return j.plan.Find(name)
	}
	if i, known := j.at[name]; known {
		return j.plan.Containers[i], i
	}
	return Container{}, -1
}

// Keeps returns how far m keeps e.
func (j *Judge) Keeps(m Mechanism, e Edge) Answer {
	rule, ok := mechanismRules[m]
	if !ok {
		return Answer{Limits: []Limit{{Code: "unknown-mechanism", Fatal: true, Reason: "there is no mechanism " + string(m)}}}
	}
	s := j.situation(e)
	a := Answer{Start: rule.start(s), Stop: rule.stop(s)}
	fatal := !rule.fits(s) // the prices do not matter then
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

// fits reports whether no limit of the mechanism is fatal.
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

// needsToRun reports whether another container needs this one to become healthy.
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

// waitsFor reports whether the kubelet holds back the point from until the point to is reached.
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

// A situation holds everything that the answer of a mechanism can depend on.
type situation struct {
	judge        *Judge
	edge         Edge
	from, to     Container
	fromAt, toAt int // -1: the pod has no such container
}

// A mechanismRule describes one mechanism.
type mechanismRule struct {
	start  func(situation) Scope
	stop   func(situation) bool
	limits []limitRule
}

type limitRule struct {
	when func(situation) bool // nil: always
	Limit
}

// named returns a reason with the words From and To replaced by the names of the containers. Every answer
// has several reasons, so a regular expression would be too slow.
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

// listedBefore reports whether From stands before To in the same list of the pod,
// or in the init list with To among the plain containers.
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

// lastInit reports whether From is the last container of the init list.
func (s situation) lastInit() bool {
	for _, c := range s.judge.plan.Containers[s.fromAt+1:] {
		if c.inInitList() {
			return false
		}
	}
	return true
}
