package kubelet

import "time"

// Next is when the machine has something to do if nothing happens before; false
// if it only waits for events.
func (s State) Next() (time.Duration, bool) {
	at := earlier(s.wakeTime(), s.relist)
	for i := range s.c {
		at = earlier(at, s.c[i].killing.deadline)
		for w := range s.c[i].probes {
			at = earlier(at, s.c[i].probes[w].due)
			at = earlier(at, s.c[i].probes[w].expires)
		}
	}
	if at == never || s.worker.mode == done {
		return 0, false
	}
	return max(at, s.now), true
}

// passTime lets time pass until t: it does everything that is due by then, in
// the order of time.
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

// fire does one thing that is due now. Kills come before probes, and these
// before a pass, so that a pass sees what happened at the same instant. A relist
// comes last: a pass that waits for it begins before its events are sent.
func (s *State) fire() {
	for i := range s.c {
		if s.due(s.c[i].killing.deadline) {
			s.killDeadline(i)
			return
		}
	}
	for i := range s.c {
		for w := range s.c[i].probes {
			p := &s.c[i].probes[w]
			switch {
			case s.due(p.expires):
				s.probeAnswered(i, probeKinds[w], false)
				return
			case s.due(p.due):
				s.probeNow(i, w)
				return
			}
		}
	}
	if s.due(s.wakeTime()) {
		s.beginPass()
		return
	}
	s.relisted()
}

func (s *State) due(t time.Duration) bool { return t != never && t <= s.now }

// earlier is the earlier of two times, either of which may be never.
func earlier(a, b time.Duration) time.Duration {
	if a == never || b != never && b < a {
		return b
	}
	return a
}
