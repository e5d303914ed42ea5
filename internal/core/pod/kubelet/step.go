package kubelet

import (
	"slices"
	"time"
)

// Step returns the state after an event, and the actions of the kubelet since the previous event. Everything that
// is due before the event is done first.
func (s State) Step(e Event) (State, []Action) {
	s.c = slices.Clone(s.c)
	s.out = nil
	s.passTime(e.At)
	s.observe(e)
	s.passTime(s.now) // everything that is due because of the event
	out := s.out
	s.out = nil
	return s, out
}

func (s *State) do(a Action) {
	a.At = s.now
	s.out = append(s.out, a)
}

// observe applies an event to the state.
func (s *State) observe(e Event) {
	if s.pass.mode == done {
		return
	}
	i := s.spec.find(e.Container)
	switch e.Kind {
	case Added:
		s.schedule.wakeAt(s.now)
	case SandboxReady:
		s.sandboxAnswered(e.OK)
	case SandboxDied:
		s.sandboxDied()
	case SandboxLost:
		s.sandboxLost()
	case Deleted:
		s.delete(e.Grace)
	}
	if i < 0 {
		return
	}
	switch e.Kind {
	case Pulled:
		s.pulled(i, e.OK)
	case Started:
		s.launched(i, e.OK)
	case HookReturned:
		s.hookReturned(i, e.Which, e.OK)
	case ProbeAnswered:
		s.probeAnswered(i, e.Which, e.OK)
	case Exited:
		if s.c[i].life.run == running {
			s.exited(i, e.Code)
		}
	}
}

// exited handles the exit of a running container.
func (s *State) exited(i, code int) {
	c := &s.c[i]
	c.life.end(code, s.now)
	c.probes.reset()
	if c.start.step == inHook && s.spec.containers[i].PostStart == Exec {
		// The hook was a process in this container, so it was killed with it.
		s.hookReturned(i, PostStart, false)
	}
	s.changed()
	s.killed(i)
	s.drive()
}

// Next returns the time at which the machine must do something if no event happens before. It returns false if
// the machine only waits for events.
func (s State) Next() (time.Duration, bool) {
	at := earlier(s.passDue(), s.schedule.relist)
	for i := range s.c {
		at = earlier(at, s.c[i].killing.deadline)
		for w := range s.c[i].probes.of {
			at = earlier(at, s.c[i].probes.of[w].due)
			at = earlier(at, s.c[i].probes.of[w].expires)
		}
	}
	if at == never || s.pass.mode == done {
		return 0, false
	}
	return max(at, s.now), true
}

// passTime advances the time to t, and does everything that is due by then, in the order of time.
func (s *State) passTime(t time.Duration) {
	for {
		next, ok := s.Next()
		if !ok || next > t {
			break
		}
		s.now = next
		s.fire()
	}
	s.now = max(s.now, t)
}

// fire does one thing that is due now. Kills come before probes, and probes before a pass, so that a pass sees
// what happened at the same time. A relist comes last: in the kubelet, a pass that waits for the relist begins
// before the relist sends its events.
func (s *State) fire() {
	for i := range s.c {
		if isDue(s.c[i].killing.deadline, s.now) {
			s.killDeadline(i)
			return
		}
	}
	for i := range s.c {
		for w := range s.c[i].probes.of {
			p := &s.c[i].probes.of[w]
			switch {
			case isDue(p.expires, s.now):
				s.probeAnswered(i, probeKinds[w], false)
				return
			case isDue(p.due, s.now):
				s.probeNow(i, w)
				return
			}
		}
	}
	if isDue(s.passDue(), s.now) {
		s.beginPass()
		return
	}
	s.schedule.relisted(s.now)
}

// isDue reports whether the time t has come. It returns false for the time [never].
func isDue(t, now time.Duration) bool { return t != never && t <= now }

// earlier returns the earlier of two times. The time [never] is later than any other.
func earlier(a, b time.Duration) time.Duration {
	if a == never || b != never && b < a {
		return b
	}
	return a
}
