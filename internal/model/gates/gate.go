package gates

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/startup"
)

// A Gate is how gates judge what they see. The zero value is the promise; the
// others are mistakes that a verifier must find.
type Gate struct {
	// AcceptsStale: it believes a state whatever incarnation or sandbox it is of.
	AcceptsStale bool

	// OnlyFirst: it waits at the first start of its container in a sandbox only.
	OnlyFirst bool

	// StopsAtOnce: it passes SIGTERM on without waiting for anybody.
	StopsAtOnce bool
}

// A record is the state of a container as it stands in the volume of the gates.
type record struct {
	status startup.Status
	fresh  bool // its writer lives, and holds the lock on the file
	here   bool // it was written in this sandbox
	ended  bool // it says that the container ended
}

// sleeps says whether To's command begins some time after its container, whatever
// the others do.
func (s State) sleeps(i int) bool {
	return slices.ContainsFunc(s.rules.edges, func(e edge) bool {
		return e.to == i && (e.By == startup.Sleep || e.By == startup.BoundedLoop && !s.answered(e))
	})
}

func (s State) answered(e edge) bool { return e.from >= 0 && s.c[e.from].status.Reached(e.After) }

// Answered says whether a container that waits need not wait for its time to be over: it
// asks, for as long as it has patience, and all that it asks have answered.
func (s State) Answered(name string) bool {
	asks := false
	for _, e := range s.rules.edges {
		if e.To == name && (e.By == startup.Sleep || e.By == startup.BoundedLoop && !s.answered(e)) {
			return false
		}
		asks = asks || e.To == name && e.By == startup.BoundedLoop
	}
	return asks
}

// inside says whether the edge is kept within To: the kubelet knows nothing of it.
func (e edge) inside() bool { return e.By == startup.Gate || e.probes() }

// probes reports whether To sends requests to From, and reads no record of it.
func (e edge) probes() bool { return e.By == startup.HealthLoop || e.By == startup.Wrapper }

// MayRun says whether the gate of a container opens at that time. For one that
// only sleeps it is always so: when, is for the driver to say.
func (s State) MayRun(name string, at time.Duration) bool { return s.mayRun(s.find(name), at) }

func (s State) mayRun(i int, at time.Duration) bool {
	if s.rules.gate.OnlyFirst && s.c[i].status.Ran {
		return true
	}
	for _, e := range s.rules.edges {
		if e.to == i && e.inside() && !s.decide(e, at).Open() {
			return false
		}
	}
	return true
}

// waitsFor says for people what holds a container back.
func (s State) waitsFor(i int) string {
	for _, e := range s.rules.edges {
		if e.to == i && e.inside() && !s.decide(e, s.c[i].since).Open() {
			return fmt.Sprintf("until %s is %s", e.From, e.After)
		}
	}
	for _, e := range s.rules.edges {
		if e.to == i && e.By == startup.BoundedLoop && !s.answered(e) {
			return fmt.Sprintf("until %s is %s, or it gives up", e.From, e.After)
		}
	}
	return "asleep"
}

// decide applies the rule of an edge to what To can know of From.
func (s State) decide(e edge, at time.Duration) startup.Decision {
	waited := time.Duration(0)
	if c := s.c[e.to]; c.phase == waiting {
		waited = at - c.since
	}
	return e.Decide(s.seen(e), waited)
}

// seen is what To can know of From. If the writer of a record is dead and the record does
// not say that the container ended, it was killed. A record of another sandbox says nothing.
// That a container completed stays true after the death of the writer.
func (s State) seen(e edge) startup.Status {
	if e.from < 0 {
		return startup.Status{Absent: true}
	}
	if e.probes() {
		return s.c[e.from].status // a dead container does not answer
	}
	r := s.c[e.from].record
	switch {
	case s.rules.gate.AcceptsStale:
		return r.status
	case !r.here:
		return startup.Status{}
	case !r.fresh && !r.ended:
		return startup.Status{Failed: true, Completed: r.status.Completed}
	default:
		return r.status
	}
}

// GivesUp says whether the gate of a container has waited for long enough, and
// ends with an error.
func (s State) GivesUp(name string, at time.Duration) bool {
	for _, e := range s.rules.edges {
		if e.To == name && e.inside() && s.decide(e, at) == startup.GivenUp {
			return true
		}
	}
	return false
}

// Next is when the wait of some gate runs out, if nothing happens before.
func (s State) Next(now time.Duration) (time.Duration, bool) {
	next, any := time.Duration(0), false
	for _, e := range s.rules.edges {
		if e.to < 0 || !e.inside() || e.Timeout <= 0 || s.c[e.to].phase != waiting {
			continue
		}
		if at := s.c[e.to].since + e.Timeout; at > now && (!any || at < next) {
			next, any = at, true
		}
	}
	return next, any
}

// HoldsStop says whether a container that is told to stop goes on: its gate
// passes the signal on when all that wait for it have ended.
func (s State) HoldsStop(name string) bool {
	if !s.deleted || s.rules.gate.StopsAtOnce {
		return false
	}
	for _, e := range s.rules.edges {
		if e.From == name && e.By == startup.Gate && e.to >= 0 && s.c[e.to].phase != down {
			return true
		}
	}
	return false
}

// Deaf says whether a container that waits ignores SIGTERM, as a shell loop does.
func (s State) Deaf(name string) bool {
	if !s.Waits(name) {
		return false
	}
	for _, e := range s.rules.edges {
		if e.To == name && (e.By == startup.Gate || e.By == startup.Wrapper) {
			return false
		}
	}
	return true
}

// A Debt is a restart of From that To has not followed yet.
type Debt struct {
	Edge startup.Edge
	Paid bool // it will be: by a gate, which sees the restart
}

// Debts returns the restarts that dependents have not followed yet.
func (s State) Debts() []Debt {
	var out []Debt
	for n, e := range s.rules.edges {
		if s.owed[n] {
			out = append(out, Debt{Edge: e.Edge, Paid: e.By == startup.Gate})
		}
	}
	return out
}

// Notify tells To of the edge that From is back.
func (s State) Notify(e startup.Edge, at time.Duration) (State, startup.Timeline) {
	s = s.clone()
	for n, o := range s.rules.edges {
		if o.Edge == e {
			s.owed[n] = false
		}
	}
	to := s.c[s.find(e.To)]
	return s, startup.Timeline{{Container: e.To, What: startup.IsNotified, At: at, Incarnation: to.incarnation, Detail: e.From + " is back"}}
}
