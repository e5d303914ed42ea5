package verify

import (
	"slices"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/startup"
)

// mayViolate reports whether a transition may have violated the plan. It is fast and may be
// wrong in one direction: it misses no violation, and [startup.Check] then decides whether
// there is one.
func (s *search) mayViolate(n node, happened startup.Timeline) bool {
	for _, ev := range happened {
		for i, e := range s.edges {
			if s.mayViolateEdge(n, ev, i, e) {
				return true
			}
		}
	}
	return s.question.Promise == Starts && len(happened) > 0 && s.notFollowed(n)
}

func (s *search) mayViolateEdge(n node, ev startup.Event, i int, e startup.Edge) bool {
	ended := ev.What == startup.IsCompleted || ev.What == startup.HasFailed
	switch {
	case s.question.Promise == Stops:
		return ended && ev.Container == e.To && n.outlived != nil && n.outlived[i] > 0 && ev.At >= n.outlived[i]
	case ev.Container == e.To && ev.What == startup.IsStarted:
		return !n.gates.Reached(e)
	case ev.Container == e.From && e.Optional:
		return true // when To began, From seemed to be absent, but it exists
	default:
		return false
	}
}

// notFollowed reports whether the dependency of an edge has restarted, and no gate makes the dependent container
// follow. It is no violation if the kubelet is stopping the dependent container anyway. But then there is also a
// shorter run, in which the kubelet is not stopping it.
func (s *search) notFollowed(n node) bool {
	return slices.ContainsFunc(n.gates.Obligations(), func(o gates.Obligation) bool { return !o.Enforced })
}

// violates replays the run that leads to a step, makes the move with the number last, and reports whether the whole
// run violates the plan. If so, it sets the counterexample.
func (s *search) violates(step, last int) bool {
	t, schedule := s.replay(step, last)
	violations := s.decided(startup.Check(s.question.Plan, t))
	if len(violations) == 0 || !s.happens(schedule, t) {
		return false
	}
	s.result.Counterexample, s.result.Violations, s.result.Schedule = t, violations, schedule
	for _, m := range schedule {
		if m.Fault != "" {
			s.result.Faults = append(s.result.Faults, describe(m))
		}
	}
	return true
}

// happens reports whether a kubelet that forgets back-offs, as all do, does the same in a run of the search.
func (s *search) happens(schedule []gates.Move, t startup.Timeline) bool {
	version := s.question.Version
	version.KeepsBackOff = false
	n, again := s.rootOf(version), startup.Timeline(nil)
	for _, m := range schedule {
		again = append(again, m.Apply(&n.kubelet, &n.gates)...)
	}
	return slices.Equal(again, t)
}

// decided returns the violations of the promise that no later event can undo. Two kinds are left out. If a gate will
// make a container follow the restart of its dependency, there is no violation yet. If a dependency has ended while
// the dependent container still runs, both may have been killed at the same instant, and the other event is still to
// come; mayViolate reports this case again when the dependent container ends.
func (s *search) decided(violations []startup.Violation) []startup.Violation {
	return slices.DeleteFunc(violations, func(v startup.Violation) bool {
		return (v.How == startup.OutlivedDependency) != (s.question.Promise == Stops) ||
			v.How == startup.OutlivedDependency && v.By == startup.Forever ||
			v.How == startup.RestartNotPropagated && v.Edge.By == startup.Gate
	})
}
