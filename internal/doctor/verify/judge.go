package verify

import (
	"slices"

	"outrider.dev/internal/core/pod/gates"
	"outrider.dev/startup"
)

// mayViolate reports whether a transition may have violated the plan. It must not miss a
// violation; [startup.Check] then decides whether there is one.
func (s *search) mayViolate(n node, happened startup.Timeline) bool {
	for _, ev := range happened {
		for _, e := range s.edges {
			if s.mayViolateEdge(n, ev, e) {
				return true
			}
		}
	}
	return s.question.Promise == Starts && len(happened) > 0 && s.notFollowed(n)
}

func (s *search) mayViolateEdge(n node, ev startup.Event, e startup.Edge) bool {
	ended := ev.What == startup.IsCompleted || ev.What == startup.HasFailed
	switch {
	case s.question.Promise == Stops && e.After == startup.Completed:
		return false // From has ended already
	case s.question.Promise == Stops:
		return ended && ev.Container == e.To && n.gates.Deleted() && !n.gates.Runs(e.From)
	case ev.Container == e.To && ev.What == startup.IsStarted:
		return !n.gates.Reached(e)
	case ev.Container == e.From && e.Optional:
		return true // when To began, From seemed to be absent, and it is not
	default:
		return false
	}
}

// notFollowed reports whether From of an edge has restarted, and no gate makes To follow. If the kubelet is ending
// To anyway, that is no violation; but then there is a shorter run in which the kubelet is not.
func (s *search) notFollowed(n node) bool {
	return slices.ContainsFunc(n.gates.Obligations(), func(o gates.Obligation) bool { return !o.Enforced })
}

// violates replays a run up to its last move, and reports whether it violates the plan. If so, the run is the
// counterexample.
func (s *search) violates(step, last int) bool {
	t, schedule := s.replay(step, last)
	violations := s.decided(startup.Check(s.question.Plan, t))
	if len(violations) == 0 {
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

// decided returns the violations of the promise that no later event can undo. Where To's gate is about to follow a
// restart of From, there is no violation yet. The end of From while To still runs is not final either: of two
// containers that are killed at one instant, one ends first. When To ends, mayViolate reports it again.
func (s *search) decided(violations []startup.Violation) []startup.Violation {
	return slices.DeleteFunc(violations, func(v startup.Violation) bool {
		return (v.How == startup.OutlivedDependency) != (s.question.Promise == Stops) ||
			v.How == startup.OutlivedDependency && v.By == startup.Forever ||
			v.How == startup.RestartNotPropagated && v.Edge.By == startup.Gate
	})
}
