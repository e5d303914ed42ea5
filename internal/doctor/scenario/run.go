package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/simulate"
	"outrider.dev/internal/doctor/verify"
	"outrider.dev/startup"
)

// A Simulation is a pod and the outcome of its simulation.
type Simulation struct {
	Subject
	Assumed  []string         `json:"assumed,omitempty"`
	Replays  string           `json:"replays,omitempty"` // the verdict of verify, if this is a replay of its counterexample
	Outcome  simulate.Outcome `json:"outcome"`
	Restarts int              `json:"restarts"`
	Refused  int              `json:"refused"` // refused calls
}

// Assumptions returns lines about the assumptions of the simulation, and about the run that it replays.
func (s Simulation) Assumptions() (out []string) {
	if s.Replays != "" {
		out = append(out, "replays: "+s.Replays)
	}
	for _, a := range s.Assumed {
		out = append(out, "assumed: "+a)
	}
	return out
}

// Simulate simulates the pod with a behaviour. It fails if the behaviour contradicts itself or the pod.
func (s Subject) Simulate(b Behaviour) (Simulation, error) {
	of, assumed, err := b.of(s)
	if err != nil {
		return Simulation{}, err
	}
	of.Kubernetes = int(s.on)
	out, err := simulate.Run(simulate.Scenario{Pod: s.pod, Plan: s.Plan, Behaviour: of})
	return Simulation{Subject: s, Assumed: assumed, Outcome: out, Restarts: out.Restarts(), Refused: out.Refused()}, err
}

// Kept reports whether the simulation broke no edge.
func (s Simulation) Kept() bool { return len(s.Outcome.Violations) == 0 }

// Verdict describes the outcome in one line.
func (s Simulation) Verdict() string {
	kept := NoEdges
	if n := len(s.Plan.Edges); n > 0 {
		kept = Plural(n, "edge") + " kept" + s.once()
		broken := map[startup.Edge]bool{}
		for _, v := range s.Outcome.Violations {
			broken[v.Edge] = true
		}
		if len(broken) > 0 {
			kept = fmt.Sprintf("%d of %s broken", len(broken), Plural(n, "edge"))
		}
	}
	end := "the pod ended at"
	if !s.Outcome.Over {
		end = "it runs on at"
	}
	return fmt.Sprintf("%s; %s, %s; %s %s", kept, Plural(s.Restarts, "restart"), Plural(s.Refused, "refused call"), end, s.Outcome.End.Round(time.Millisecond))
}

// Err returns an error about the first violation, or nil.
func (s Simulation) Err() error {
	if s.Kept() {
		return nil
	}
	return fmt.Errorf("%s: %s", s.Where(), chart.Note(s.Outcome.Violations[0]))
}

// A Verification is a pod and the answers about its plan.
type Verification struct {
	Subject
	Holds   bool     `json:"holds"`
	Outcome Outcome  `json:"outcome"` // the worst one of the results
	Results []Answer `json:"results"`
}

// Outcome is the result of a verification in one word.
type Outcome string

const (
	Holds   Outcome = "holds"   // every run within the bounds was explored, and none violates the plan
	Broken  Outcome = "broken"  // a run violates the plan
	Bounded Outcome = "bounded" // no explored run violates the plan, but a bound ended the search
)

// worse returns the outcome of two results together. A counterexample counts even if another search was incomplete.
func (o Outcome) worse(other Outcome) Outcome {
	if o == Broken || other == Holds {
		return o
	}
	return other
}

// An Answer is the result for one promise.
type Answer struct {
	Promise string  `json:"promise"` // "starts" or "stops"; in JSON it replaces the Promise of the Result
	Holds   bool    `json:"holds"`
	Outcome Outcome `json:"outcome"`
	once    string  // condition for this answer, if it is about the injected pod
	verify.Result
}

// Promises maps the values of --promise to the promises that are verified.
var Promises = map[string][]verify.Promise{
	"both": {verify.Starts, verify.Stops}, "starts": {verify.Starts}, "stops": {verify.Stops},
}

// promiseNames maps single promises to their names.
var promiseNames = map[verify.Promise]string{verify.Starts: "starts", verify.Stops: "stops"}

// Verify explores the runs of the pod for each promise, and calls the function progress meanwhile. All promises share
// the time of the bound. For a pod without edges, there are no results, and Holds is true.
func (s Subject) Verify(ctx context.Context, promises []verify.Promise, bound verify.Bound, progress func(promise string, p verify.Progress)) (Verification, error) {
	v := Verification{Subject: s, Holds: true, Outcome: Holds}
	if len(s.Plan.Edges) == 0 {
		return v, nil
	}
	began := time.Now()
	for i, promise := range promises {
		name := promiseNames[promise]
		share := bound
		share.Time = max((bound.Time-time.Since(began))/time.Duration(len(promises)-i), 1)
		q := s.question(s.Plan, promise)
		r, err := verify.Explore(ctx, q, share, func(p verify.Progress) { progress(name, p) })
		if err != nil {
			return v, err
		}
		r.Bound.Time = bound.Time
		v.Results = append(v.Results, Answer{Result: r, Promise: name, Holds: r.Holds(), Outcome: outcomeOf(r), once: s.once()})
		v.Holds, v.Outcome = v.Holds && r.Holds(), v.Outcome.worse(outcomeOf(r))
	}
	return v, nil
}

func outcomeOf(r verify.Result) Outcome {
	switch {
	case r.Counterexample != nil:
		return Broken
	case r.Holds():
		return Holds
	}
	return Bounded
}

func (s Subject) question(p startup.Plan, promise verify.Promise) verify.Question {
	endless := slices.Clone(s.endless)
	for _, c := range p.Containers {
		if s.run.Facts[c.Name].Proxy && !slices.Contains(endless, c.Name) {
			endless = append(endless, c.Name)
		}
	}
	return verify.Question{Pod: s.pod, Plan: p, Version: kubelet.Minor(int(s.on)), Promise: promise, Endless: endless}
}

// VerifyError returns an error about the first result that shows the worst outcome, or nil if all plans hold. The error
// of a search that a bound ended has an exit status of its own.
func VerifyError(all []Verification) error {
	worst := Holds
	for _, v := range all {
		worst = worst.worse(v.Outcome)
	}
	for _, v := range all {
		for _, a := range v.Results {
			if worst == Holds || a.Outcome != worst {
				continue
			}
			err := fmt.Errorf("%s: %s", v.Where(), a.Verdict())
			if worst == Bounded {
				return &cli.ExitError{Status: cli.Undecided, Err: err}
			}
			return err
		}
	}
	return nil
}

// LeftOut returns the sentences about events that the answers do not cover. If both promises were verified, it does
// not mention that the answer about starts does not cover deletion.
func (v Verification) LeftOut() []string {
	var out []string
	for _, a := range v.Results {
		for _, l := range a.Omitted {
			if !slices.Contains(out, l) && !(len(v.Results) > 1 && l == verify.OmitsDeletion) {
				out = append(out, l)
			}
		}
	}
	return out
}

// moments maps promises to the time at which they apply, for a sentence.
var moments = map[string]string{"starts": "at every start", "stops": "when the pod stops"}

// Verdict describes the answer in one line.
func (a Answer) Verdict() string {
	looked := fmt.Sprintf("%s, %s deep, in %s", Plural(a.States, "state"), Plural(a.Depth, "event"), a.Took.Round(time.Millisecond))
	when := moments[a.Promise]
	switch {
	case a.Counterexample != nil && len(a.Faults) == 0:
		return when + ": broken, even without a fault"
	case a.Counterexample != nil:
		return fmt.Sprintf("%s: broken by %s: %s", when, Plural(len(a.Faults), "fault"), strings.Join(a.Faults, "; "))
	case a.Holds:
		return fmt.Sprintf("%s: holds%s: %s; bound: %s", when, a.once, looked, a.Bound)
	case a.Proved >= 0:
		return fmt.Sprintf("%s: bounded: holds with up to %s%s; with %d not all states were explored, cut short by %s: %s; bound: %s",
			when, Plural(a.Proved, "fault"), a.once, a.Proved+1, a.CutShort, looked, a.Bound)
	}
	return fmt.Sprintf("%s: bounded: nothing found, but not all states were explored, cut short by %s: %s; bound: %s", when, a.CutShort, looked, a.Bound)
}

// Plural formats a number with its noun: "1 edge", "2 edges".
func Plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
