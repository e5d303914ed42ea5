package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outrider.dev/internal/model/gates"
	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

// A Question is what is to be verified.
type Question struct {
	Pod     kubelet.Pod
	Plan    startup.Plan // Edge.By says which edges a gate keeps; the others are the pod's affair
	Version kubelet.Version
	Promise Promise
	Gate    gates.Gate // other than zero in tests of this package only
}

// Promise is the part of a plan that is asked for.
type Promise string

const (
	// Starts: no container runs before those it waits for, at any start, and it
	// follows their restarts where the plan says so.
	Starts Promise = ""

	// Stops: deleted at any step, the pod stops in the reverse order. Faults come
	// before the deletion only: no mechanism can make one container outlive
	// another one's crash.
	Stops Promise = "stops"
)

// A Bound is how far to look. The zero value of a field means its default.
type Bound struct {
	Faults int           `json:"faults"` // that happen in one run, at most; default 3, negative: none
	Depth  int           `json:"depth"`  // events in one run; default: no bound
	States int           `json:"states"` // of one search; default 200,000, at about 1 kB each
	Time   time.Duration `json:"time"`   // default one minute

	// Settled: nothing goes wrong until every container has run once.
	Settled bool `json:"settled,omitempty"`

	// Only these kinds of faults; default: all. A shortest counterexample hides the
	// ones that are longer: leave its fault out to see the next.
	Only []Fault `json:"only,omitempty"`
}

// Fault is a kind of thing that can go wrong.
type Fault string

const (
	NoImage   Fault = "image"   // a pull fails
	NoStart   Fault = "start"   // the runtime cannot start a container
	BadHook   Fault = "hook"    // a postStart or preStop fails
	BadProbe  Fault = "probe"   // a probe fails although its container is well
	Unhealthy Fault = "health"  // a healthy container no longer is
	Crash     Fault = "crash"   // a container ends by itself
	Kill      Fault = "kill"    // by SIGKILL: whoever watches in it says nothing; where that makes a difference
	NoSandbox Fault = "sandbox" // the sandbox dies, or cannot be made
)

// Faults lists all kinds.
var Faults = []Fault{NoImage, NoStart, BadHook, BadProbe, Unhealthy, Crash, Kill, NoSandbox}

func (b Bound) withDefaults() Bound {
	switch {
	case b.Faults == 0:
		b.Faults = 3
	case b.Faults < 0:
		b.Faults = 0
	}
	if b.States <= 0 {
		b.States = 200_000
	}
	if b.Time <= 0 {
		b.Time = time.Minute
	}
	return b
}

// A Result is the answer.
type Result struct {
	Promise Promise `json:"promise"`
	Bound   Bound   `json:"bound"`

	// Counterexample breaks the plan; nil if none was found. No run with fewer faults
	// does, and with as many no shorter one.
	Counterexample startup.Timeline    `json:"counterexample,omitempty"`
	Violations     []startup.Violation `json:"violations,omitempty"` // by it
	Faults         []string            `json:"faults,omitempty"`     // that it needs

	// Proved is the number of faults up to which every run was looked at, and keeps
	// the plan; -1: not even without one.
	Proved int `json:"proved"`

	// Of the last search, the one with the most faults:
	States   int           `json:"states"` // that were found, no two alike
	Steps    int           `json:"steps"`  // from one state to another
	Depth    int           `json:"depth"`  // events from the beginning to the last state
	CutShort CutShort      `json:"cutShort,omitempty"`
	Took     time.Duration `json:"took"` // all searches together
	LeftOut  []string      `json:"leftOut"`
}

// Holds says that no run within the bounds breaks the plan. It is false both
// when a counterexample was found and when not all was looked at.
func (r Result) Holds() bool { return r.Counterexample == nil && r.CutShort == "" }

// CutShort is the bound that ended an exploration before all was looked at. The
// number of faults is part of the question, and cuts nothing short.
type CutShort string

const (
	ByDepth   CutShort = "depth"
	ByStates  CutShort = "states"
	ByTime    CutShort = "time"
	Cancelled CutShort = "cancelled"
)

// Progress is how far an exploration has come.
type Progress struct {
	Faults int // that may happen; one search after the other, with ever more of them
	States int
	Depth  int
	Open   int // states whose next steps have not been tried
}

// Explore looks for a run that breaks the plan. It calls progress, if that is
// not nil, every few thousand states. Cancelled, it returns what it has; the
// error is for a question that has no sense.
func Explore(ctx context.Context, q Question, b Bound, progress func(Progress)) (Result, error) {
	if err := q.check(); err != nil {
		return Result{}, err
	}
	b = b.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, b.Time, errTime)
	defer cancel()
	began := time.Now()
	r := Result{Proved: -1}
	for faults := 0; faults <= b.Faults && r.Counterexample == nil && r.CutShort == ""; faults++ {
		r = deepen(ctx, q, b, faults, progress)
	}
	r.Took, r.LeftOut = time.Since(began), leftOut(q)
	return r, nil
}

// deepen searches with so many faults. What is found with few of them says more,
// and what could be searched with few is proved even if more are too many; the
// searches before cost little beside the last one.
func deepen(ctx context.Context, q Question, b Bound, faults int, progress func(Progress)) Result {
	now := b
	now.Faults = faults
	s := newSearch(q, now, progress)
	s.run(ctx)
	s.result.Bound, s.result.Proved = b, faults
	if !s.result.Holds() {
		s.result.Proved = faults - 1
	}
	return s.result
}

var errTime = errors.New("the time is up")

// check refuses a plan that speaks of another pod.
func (q Question) check() error {
	inPod := map[string]bool{}
	for _, c := range append(append([]kubelet.Container(nil), q.Pod.Init...), q.Pod.Containers...) {
		inPod[c.Name] = true
	}
	for _, c := range q.Plan.Containers {
		if !inPod[c.Name] {
			return fmt.Errorf("verifying a plan: its container %q is not in the pod", c.Name)
		}
		delete(inPod, c.Name)
	}
	for name := range inPod {
		return fmt.Errorf("verifying a plan: it does not have the pod's container %q", name)
	}
	return nil
}
