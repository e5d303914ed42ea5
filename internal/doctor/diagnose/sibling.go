package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// notYetUp returns the sibling that serves others and that had not begun to listen when an unnamed destination was
// called, as far as its start tells, or nil.
func (s *subject) notYetUp(y calls.Call) *evidence.Container {
	for _, c := range s.Siblings(y.Container) {
		r := c.Run(0)
		if is, _ := s.serves(c); !is || r == nil {
			continue
		}
		if least, _, ok := y.At.Since(r.Started); ok && least < facts.Usual {
			return c
		}
	}
	return nil
}

// beforeSibling reports whether a call to the pod itself was over before the container that is set to listen there had
// started or, by its log, listened: a client that waits for a connection then says that its time is over.
func beforeSibling(s *subject, y calls.Call) bool {
	c := s.Listener(y)
	if !y.To.Loopback() || c == nil {
		return false
	}
	first := c.Run(0)
	if c.Restarts == 0 && first == nil || first != nil && y.Last.Compare(first.Started) == evidence.Before {
		return true
	}
	if c == s.Proxy {
		return s.Listened(y.Last).Answer == no
	}
	return slices.ContainsFunc(s.Listens, func(l calls.Listen) bool {
		return l.Container == c.Name && l.Run == 0 && slices.Contains(l.Ports, int(y.To.Port)) && y.Last.Compare(l.Quote.At) == evidence.Before
	})
}

// startsUp reports whether a call of a pod in which nothing ended went to a container of its own that has not started up
// yet, so that it is no fault: its probe says so, and its log does not say that it listens elsewhere.
func startsUp(s *subject, y calls.Call) bool {
	if y.Failure != calls.Refused && y.Failure != calls.TimedOut {
		return false
	}
	c := s.Listener(y)
	if !y.To.Known() {
		c = s.notYetUp(y)
	} else if !y.To.Loopback() {
		return false
	}
	return c != nil && s.Starts(c.Name, y.To.Port)
}

// yetToListen reports whether readiness probes failed only since a container that starts up does not listen at all yet.
func (s *subject) yetToListen(c *evidence.Container, probes []evidence.Quote) bool {
	return len(probes) > 0 && s.Starts(c.Name, 0) && !slices.ContainsFunc(probes, func(q evidence.Quote) bool { return !strings.Contains(q.Text, "connection refused") })
}

// siblingStopped finds calls that failed in a pod in deletion because a helper had ended before its caller.
func siblingStopped(s *subject) (out []result.Finding) {
	named := slices.SortedStableFunc(slices.Values(s.Calls), func(a, b calls.Call) int { // those that name the helper's address first
		rank := map[bool]int{false: 1}
		return cmp.Compare(rank[a.To.Known() && !a.Presumed], rank[b.To.Known() && !b.Presumed])
	})
	for _, y := range named {
		if y.Failure != calls.Refused && y.Failure != calls.Reset || y.To.Known() && !y.To.Loopback() {
			continue
		}
		for _, c := range s.Siblings(y.Container) {
			next, quits := s.quitEarly(y.Container, c.Name)
			asker, asked := s.askedToEnd(c.Name, y.Container)
			if !s.Deleted() && s.Row == nil && !quits && !asked { // of which only a line is known, which may be of a later time
				continue
			}
			f, found := s.leftFirst(c, y)
			switch {
			case found && quits:
				s.callsAfterQuit(&f, c.Name, next)
			case found && asked:
				s.endedByOther(&f, c.Name, asker)
			}
			if found && !slices.ContainsFunc(out, func(g result.Finding) bool { return g.Container == f.Container }) {
				out = append(out, f)
			}
		}
	}
	return out
}

// leftFirst returns the finding about a call to a helper that had ended, or that was told to stop as its own log says.
func (s *subject) leftFirst(c *evidence.Container, y calls.Call) (f result.Finding, found bool) {
	is, _ := s.serves(c)
	if _, says := s.ListensAt(c.Name, y.To.Port); !is && !says {
		return f, false
	}
	f = result.Finding{Code: "shutdown-race", Container: y.Container, Confidence: result.Certain, Disproof: fmt.Sprintf("an end of %s before that of %s", y.Container, c.Name)}
	r := c.Last()
	stops, told := s.StoppedBefore(c.Name, y)
	switch {
	case r != nil && r.Finished.Known():
		if y.Last.Compare(r.Finished) == evidence.Before {
			return f, false
		}
		f.Sentence = fmt.Sprintf("shutdown race: %s ended while %s still called it", c.Name, y.Container)
		f.Evidence = []evidence.Quote{s.Quote(r.Finished, "%s ended: %s", c.Name, facts.ExitText(*r)), y.Quote}
		if !y.To.Known() || y.Presumed || y.Last.Compare(r.Finished) != evidence.After {
			f.Confidence = result.Likely
		}
	case told && y.To.Known():
		f.Sentence = fmt.Sprintf("shutdown race: %s was told to stop, and took no new calls, while %s still called it", c.Name, y.Container)
		f.Confidence, f.Evidence = result.Likely, append(stops, y.Quote)
	default:
		return f, false
	}
	s.remedy(&f, remedies.Stop, c.Name, y.Container, y.To.Port)
	return f, true
}

// listening describes where the siblings of a caller listen, by their declared ports.
func (s *subject) listening(caller string) string {
	var all []string
	for _, c := range s.Siblings(caller) {
		for _, p := range s.Spec(c.Name).Ports {
			all = append(all, fmt.Sprintf("%s on %d", c.Name, p.ContainerPort))
		}
	}
	return strings.Join(all, ", ")
}
