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
	rule, ok := mechanismRules[m]
	if !ok {
		return Answer{Limits: []Limit{{Code: "unknown-mechanism", Fatal: true, Reason: "there is no mechanism " + string(m)}}}
	}
	s := situation{plan: p, edge: e, on: on.orNewest()}
	s.from, s.fromAt = p.Find(e.From)
	s.to, s.toAt = p.Find(e.To)
	a := Answer{Start: rule.start(s), Stop: rule.stop(s)}
	for _, l := range rule.limits {
		if l.when == nil || l.when(s) {
			l.Reason = s.named(l.Reason)
			a.Limits = append(a.Limits, l.Limit)
		}
	}
	if !a.Can() { // then its prices are of no interest
		a.Limits = slices.DeleteFunc(a.Limits, func(l Limit) bool { return !l.Fatal })
		a.Start, a.Stop = Nowhere, false
	}
	return a
}

// Fitting returns the mechanisms that can be used for e, the one to prefer first.
func Fitting(p Plan, e Edge, on Kubernetes) []Mechanism {
	var out []Mechanism
	for _, m := range Mechanisms {
		if m.Keeps(p, e, on).Can() {
			out = append(out, m)
		}
	}
	return out
}

// A situation is all that the answer of a mechanism can depend on.
type situation struct {
	plan         Plan
	edge         Edge
	from, to     Container
	fromAt, toAt int // -1: the pod has no such container
	on           Kubernetes
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
	for _, c := range s.plan.Containers {
		if c.Kind == Plain {
			n++
		}
	}
	return n
}

// lastInit reports whether From is the last container of the init list.
func (s situation) lastInit() bool {
	for _, c := range s.plan.Containers[s.fromAt+1:] {
		if c.inInitList() {
			return false
		}
	}
	return true
}
