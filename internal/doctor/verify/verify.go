package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A Question is a plan and the pod in which to verify it.
type Question struct {
	Pod     kubelet.Pod
	Plan    startup.Plan // edges by gates are kept by the model of the gates, all others only by the pod
	Version kubelet.Version
	Promise Promise
	Endless []string   // containers that never complete by themselves, such as a mesh's proxy
	Gate    gates.Gate // nonzero only in tests of this package
}

// A Promise is the property of a plan that is verified.
type Promise string

const (
	// Starts promises that no container runs before its dependencies, at any start, and that a container follows the
	// restarts of its dependencies if the plan requires it.
	Starts Promise = ""

	// Stops promises that the pod stops in the reverse order if it is deleted, at any step. Faults happen only before
	// the deletion, because no mechanism can make a container run on if it crashes.
	Stops Promise = "stops"
)

// A Bound limits the search. The zero value of a field means its default.
type Bound struct {
	Faults int           `json:"faults"` // largest number of faults in one run; default 3, negative: none
	Depth  int           `json:"depth"`  // largest number of events in one run; default: unlimited
	States int           `json:"states"` // largest number of states in one search, at about 1 kB each; default 200,000
	Time   time.Duration `json:"time"`   // limit of all searches together; default one minute

	// Settled means that no fault happens until every container has run once.
	Settled bool `json:"settled,omitempty"`

	// Only limits the search to these kinds of faults; default: all. A search returns only the shortest
	// counterexample. To find another one, leave out a kind of fault that the first one needs.
	Only []Fault `json:"only,omitempty"`
}

// Fault is a kind of failure that a search tries, for example a crash.
type Fault string

const (
	NoImage   Fault = "image"
	NoStart   Fault = "start"
	BadHook   Fault = "hook"
	BadProbe  Fault = "probe"
	Unhealthy Fault = "health"
	Crash     Fault = "crash"
	Kill      Fault = "kill"
	NoSandbox Fault = "sandbox"
)

// Faults lists all kinds of faults with their descriptions.
var Faults = []struct {
	Fault
	Means string
}{
	{NoImage, "a pull fails"},
	{NoStart, "the runtime cannot start a container"},
	{BadHook, "a postStart or preStop fails"},
	{BadProbe, "a probe fails although its container is healthy"},
	{Unhealthy, "a healthy container becomes unhealthy"},
	{Crash, "a container ends by itself"},
	{Kill, "a container ends by SIGKILL, and leaves a stale state behind"}, // only if a gate reads that state
	{NoSandbox, "the sandbox dies, or cannot be made"},
}

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

// String formats the bound.
func (b Bound) String() string {
	s := faults(b.Faults)
	if len(b.Only) > 0 {
		s += fmt.Sprintf(" of %v", b.Only)
	}
	if b.Settled {
		s += " once every container has run"
	}
	return s + fmt.Sprintf(", %d states, %s", b.States, b.Time)
}

func faults(n int) string {
	if n == 1 {
		return "1 fault"
	}
	return fmt.Sprintf("%d faults", n)
}

// A Result is the outcome of an exploration.
type Result struct {
	Promise Promise `json:"promise"`
	Bound   Bound   `json:"bound"`

	// Counterexample is a run that violates the plan, or nil if none was found. No run with fewer faults violates the
	// plan, and no shorter run with the same number of faults.
	Counterexample startup.Timeline    `json:"counterexample,omitempty"`
	Violations     []startup.Violation `json:"violations,omitempty"` // in the counterexample
	Faults         []string            `json:"faults,omitempty"`     // needed for the counterexample
	Schedule       []gates.Move        `json:"schedule,omitempty"`   // transitions of the counterexample, for [simulate.Replay]

	// Proved is the largest number of faults for which all runs were explored and none violates the plan. It is -1 if
	// not even all runs without faults were explored, or if one of them violates the plan.
	Proved int `json:"proved"`

	// Size of the last search, which had the most faults:
	States   int           `json:"states"` // distinct ones
	Steps    int           `json:"steps"`  // transitions
	Depth    int           `json:"depth"`  // events from the beginning to the last state
	CutShort CutShort      `json:"cutShort,omitempty"`
	Took     time.Duration `json:"took"`    // of all searches together
	Omitted  []string      `json:"leftOut"` // events that the result does not cover
}

// Holds reports whether no run within the bounds violates the plan. It is false if a counterexample was found, and
// also if the exploration was cut short.
func (r Result) Holds() bool { return r.Counterexample == nil && r.CutShort == "" }

// CutShort is the bound that ended an exploration early. It is never the number of faults, because that is a part of
// the question.
type CutShort string

const (
	ByDepth   CutShort = "depth"
	ByStates  CutShort = "states"
	ByTime    CutShort = "time"
	Cancelled CutShort = "cancelled"
)

// Progress tells how far an exploration has come.
type Progress struct {
	Faults int // largest number of faults of the current search; each search allows one more
	States int
	Depth  int
	Open   int // states that are not expanded yet
}

// Explore searches for a run that violates the plan. It repeatedly calls the function progress, unless this is nil.
// If ctx ends, it returns the results so far. It fails only if the plan and the pod do not have the same containers.
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
	r.Took, r.Omitted = time.Since(began), omissions(q)
	return r, nil
}

// deepen runs one search, with up to the given number of faults. Explore calls it with one more fault each time.
// There are two reasons: a counterexample with few faults is easier to understand, and if the search with more
// faults is cut short, the plan is still proved for fewer. The earlier searches take little time compared to the
// last one.
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

// check returns an error if the plan and the pod do not have the same containers.
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
	for _, name := range slices.Sorted(maps.Keys(inPod)) {
		return fmt.Errorf("verifying a plan: it does not have the pod's container %q", name)
	}
	return nil
}

// OmitsDeletion is the omission of a result for [Starts], which does not cover the deletion of the pod.
const OmitsDeletion = "deletion: use --promise stops"

// omitsSlowStop is the omission for pods with containers whose stop takes an unknown time.
const omitsSlowStop = "a stop of %s that takes longer, with the preStop, than the grace period of %s: then the kubelet stops all at once"

// omitsLateStop is the omission for pods in which gates or preStop hooks keep containers running for others.
const omitsLateStop = "a stop of %s that takes longer, with the preStop, than %s of the grace period of %s: then gates and hooks no longer keep for it what it needs"

// omitsSockets is the omission for pods with a preStop hook that sees containers by their sockets.
const omitsSockets = "a time in which %s has no open socket: %s may then stop first"

// omissions returns sentences about the events that the model leaves out, so that the result does not cover them.
func omissions(q Question) []string {
	out := []string{
		"liveness: whether a container runs at all, or a gate notifies it of a restart; only that nothing happens too early",
		"instants between two of the kubelet's own deadlines, without probes that can only succeed: everything happens at one of them, in any order",
		"time in the containers: each of their actions may happen at once, late or never; a probe answers at once",
		"exit code 0 of a mesh's proxy, of a container that others need healthy, and of one that is always restarted, before its stop: that is a crash, and so a fault",
		"readiness probes, and a back-off forgotten after ten minutes without a crash",
		"what package kubelet leaves out: eviction, restart of the kubelet, in-place resize, restart rules by exit code",
	}
	for _, e := range q.Plan.Edges {
		if e.By == startup.Gate || e.By == startup.Wrapper || e.By == startup.HealthLoop {
			out = append(out, "the instant between a gate's last read and its command, and between a change and its publication")
			break
		}
	}
	if q.Promise == Stops {
		out = append(out, "faults after the deletion, and a container that others end before, and that then ends by itself")
		if slow := slowStops(q); len(slow) > 0 {
			out = append(out, fmt.Sprintf(omitsSlowStop, strings.Join(slow, ", "), q.Pod.GracePeriod()))
		}
		limit := gates.StopLimit(q.Pod)
		if held := heldFor(q.Plan, gates.OutlastGrace(q.Pod, q.Plan)); len(held) > 0 && limit > 0 {
			out = append(out, fmt.Sprintf(omitsLateStop, strings.Join(held, ", "), limit, q.Pod.GracePeriod()))
		}
		for _, c := range q.Plan.Containers {
			if len(c.Outlives) > 0 {
				out = append(out, fmt.Sprintf(omitsSockets, strings.Join(c.Outlives, " or "), c.Name))
			}
		}
	} else {
		out = append(out, OmitsDeletion)
	}
	return out
}
