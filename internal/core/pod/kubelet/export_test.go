package kubelet

import "time"

// RetryAt is when a pass is repeated in which something failed; false if none is to be.
func RetryAt(s State) (time.Duration, bool) { return s.schedule.retry, s.schedule.retry != never }

// Passes is how many passes have begun.
func Passes(s State) int { return s.schedule.passes }

// PassAt is when the next pass begins, if nothing new happens before; false if none
// is due.
func PassAt(s State) (time.Duration, bool) {
	at := s.passDue()
	if s.schedule.relist != never && s.pass.mode == idle {
		at = earlier(at, max(s.schedule.relist, s.schedule.fresh))
	}
	return at, at != never
}

// WithPassAt is s with a pass due then.
func WithPassAt(s State, at time.Duration) State {
	s.schedule.wakeAt(at)
	return s
}

// WithRetryAt is s with another time for that: what is left to chance in a real
// kubelet is decided by the trace.
func WithRetryAt(s State, at time.Duration) State {
	s.schedule.retry = at
	return s
}
