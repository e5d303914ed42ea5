package startup

import (
	"slices"
	"strings"
	"unicode"
)

// A Mechanism is a way to enforce an edge in a pod.
type Mechanism string

const (
	// Native: From is a restartable init container. The kubelet starts what
	// follows when From is started, or healthy if it has a startup probe or a blocking
	// postStart.
	Native Mechanism = "native"

	// Gate: To's command is wrapped by outrider-agent, and From's too unless it is a
	// proxy. It waits, then runs the real command; and it passes SIGTERM on when those
	// that wait for it have ended.
	Gate Mechanism = "gate"

	// Hold: From comes first in spec.containers and its postStart blocks.
	Hold Mechanism = "hold"

	// InitDone: From is a plain init container, which the kubelet completes first.
	InitDone Mechanism = "init"

	// The work-arounds that people write. They are recognised, not recommended.

	PostStartProbe Mechanism = "post-start-probe" // To's own postStart polls From's health port
	Wrapper        Mechanism = "wrapper"          // another program than ours wraps To's command, and waits: linkerd-await, scuttle
	HealthLoop     Mechanism = "health-loop"      // To's command polls until it succeeds, before it begins
	BoundedLoop    Mechanism = "bounded-loop"     // To's command polls a number of times, and then begins all the same
	Sleep          Mechanism = "sleep"            // To's command sleeps before it begins
)

// Preferred are the mechanisms that Outrider uses, the best first. An init container that
// completes needs nothing written. A gate keeps an edge at every start, and is the fastest.
// A native sidecar keeps it at the first start only. A hold fails open.
var Preferred = []Mechanism{InitDone, Gate, Native, Hold}

// WorkArounds are what people write into commands and hooks, the best first.
var WorkArounds = []Mechanism{HealthLoop, BoundedLoop, PostStartProbe, Sleep}

// Mechanisms lists all mechanisms, the best first.
var Mechanisms = slices.Concat(Preferred, []Mechanism{Wrapper}, WorkArounds)

// WaitsInside reports whether To waits within its container by this mechanism, unseen: the kubelet
// takes it for started.
func (m Mechanism) WaitsInside() bool {
	return slices.Contains([]Mechanism{Wrapper, HealthLoop, BoundedLoop, Sleep}, m)
}

// GivesWay reports whether a mechanism that a pod has keeps no other edge from being kept: it is only how the
// pod's lists are ordered now, or a wait that ends by itself.
func (m Mechanism) GivesWay() bool {
	return slices.Contains([]Mechanism{InitDone, Native, BoundedLoop, Sleep}, m)
}

// Scope is how far a mechanism keeps an edge.
type Scope int

const (
	Nowhere    Scope = iota // To may run before From
	FirstStart              // kept when the pod starts, not when To or From restarts
	EveryStart
)

func (s Scope) String() string {
	return [...]string{"nowhere", "at the first start", "at every start"}[s]
}

// An Answer is what a mechanism keeps of an edge and what not.
type Answer struct {
	Start  Scope
	Stop   bool    // To also stops before From
	Limits []Limit // what it does not keep, and what it costs
}

// Can reports whether the mechanism fits at all.
func (a Answer) Can() bool {
	return !slices.ContainsFunc(a.Limits, func(l Limit) bool { return l.Fatal })
}

// A Limit is something that a mechanism does not do, or does at a price.
type Limit struct {
	Code   string `json:"code"`             // stable
	Fatal  bool   `json:"-"`                // the mechanism cannot be used for this edge
	Reason string `json:"reason"`           // a sentence, with the names of the containers
	Source string `json:"source,omitempty"` // where that is known from
}

// Keeps returns what m keeps of edge e, which has no star, in the pod of plan p on
// a kubelet of that version. Where m cannot be used it returns only the reason.
func (m Mechanism) Keeps(p Plan, e Edge, on Kubernetes) Answer {
	return (&Judge{plan: p, on: on.orNewest()}).Keeps(m, e)
}

// A Judge answers for the edges of one plan what mechanisms keep of them. The answers are those
// of [Mechanism.Keeps], which takes a time that grows with the plan for each.
type Judge struct {
	// Commands says that the commands of all containers are known: a gate then has no limit
	// "needs-command".
	Commands bool

	plan   Plan
	on     Kubernetes
	at     map[string]int   // place of each container; nil: it is looked for
	needed map[string]bool  // containers without which another one never gets healthy; nil: not looked for yet
	listed *waits           // without the plan's edges; nil: not needed yet
	before map[int32][]bool // by node of listed: the nodes that wait for it
}

// Judge returns one for p, whose containers must not change while it is used.
func (p Plan) Judge(on Kubernetes) *Judge {
	j := &Judge{plan: p, on: on.orNewest(), at: make(map[string]int, len(p.Containers))}
	for i, c := range p.Containers {
		if _, first := j.at[c.Name]; !first {
			j.at[c.Name] = i
		}
	}
	return j
}

// Find is [Plan.Find].
func (j *Judge) Find(name string) (Container, int) {
	if j.at == nil {
		return j.plan.Find(name)
	}
	if i, known := j.at[name]; known {
		return j.plan.Containers[i], i
	}
	return Container{}, -1
}

// Keeps returns what m keeps of e.
func (j *Judge) Keeps(m Mechanism, e Edge) Answer {
	rule, ok := mechanismRules[m]
	if !ok {
		return Answer{Limits: []Limit{{Code: "unknown-mechanism", Fatal: true, Reason: "there is no mechanism " + string(m)}}}
	}
	s := j.situation(e)
	a := Answer{Start: rule.start(s), Stop: rule.stop(s)}
	fatal := !rule.fits(s) // then its prices are of no interest
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

// better returns the first mechanism that keeps e at more starts than the one that e names;
// empty if there is none.
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

// needsToRun reports whether another container never gets healthy without this one.
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

// waitsFor reports whether the kubelet brings one container to a moment only after another
// one has come to one.
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

// A situation is all that the answer of a mechanism can depend on.
type situation struct {
	judge        *Judge
	edge         Edge
	from, to     Container
	fromAt, toAt int // -1: the pod has no such container
}

// A mechanismRule is what is known of one mechanism.
type mechanismRule struct {
	start  func(situation) Scope
	stop   func(situation) bool
	limits []limitRule
}

type limitRule struct {
	when func(situation) bool // nil: always
	Limit
}

// named is a reason with the names of the containers for the words From and To. Every
// answer has several, so it is no regular expression.
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
