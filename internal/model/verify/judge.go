package verify

import (
	"slices"

	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

// suspicious says whether something happened that may be a breach. It must not
// miss one; whether it is one, [startup.Check] says.
func (s *search) suspicious(n node, happened startup.Timeline) bool {
	for _, ev := range happened {
		for _, e := range s.edges {
			if s.suspects(n, ev, e) {
				return true
			}
		}
	}
	return s.question.Promise == Starts && len(happened) > 0 && s.forgotten(n)
}

func (s *search) suspects(n node, ev startup.Event, e startup.Edge) bool {
	ended := ev.What == startup.IsCompleted || ev.What == startup.HasFailed
	switch {
	case s.question.Promise == Stops:
		return ended && ev.Container == e.To && n.gates.Deleted() && !n.gates.Runs(e.From)
	case ev.Container == e.To && ev.What == startup.IsStarted:
		return !n.gates.Reached(e)
	case ev.Container == e.From && e.Optional:
		// It seemed to be missing when To began, and is not.
		return n.gates.Runs(e.To)
	default:
		return false
	}
}

// forgotten says whether From of an edge came back, and nobody will tell To.
func (s *search) forgotten(n node) bool {
	stopping := func(name string) bool {
		return slices.ContainsFunc(n.kubelet.Open(), func(a kubelet.Action) bool {
			return a.Container == name && (a.Kind == kubelet.Stop || a.Kind == kubelet.Kill)
		})
	}
	for _, d := range n.gates.Debts() {
		if !d.Paid && !stopping(d.Edge.To) {
			return true
		}
	}
	return false
}

// convicted plays a run again and lets Check judge.
func (s *search) convicted(trail, last int) bool {
	t, faults := s.replay(trail, last)
	violations := s.relevant(startup.Check(s.question.Plan, t))
	if len(violations) == 0 {
		return false
	}
	s.result.Counterexample, s.result.Violations, s.result.Faults = t, violations, faults
	return true
}

// relevant leaves what the promise is about, and what is decided: a restart that To's
// gate is about to follow is no breach yet, and neither is the end of From while To still
// runs: of two that are killed in one instant one comes first. When To ends, it is
// suspected again.
func (s *search) relevant(violations []startup.Violation) []startup.Violation {
	return slices.DeleteFunc(violations, func(v startup.Violation) bool {
		return (v.How == startup.OutlivedFrom) != (s.question.Promise == Stops) ||
			v.How == startup.OutlivedFrom && v.By == startup.Forever ||
			v.How == startup.NotFollowed && v.Edge.By == startup.Gate
	})
}
