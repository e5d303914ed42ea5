package kubelet

import "time"

// RetryAt returns when a failed pass is repeated; false if none is.
func RetryAt(s State) (time.Duration, bool) { return s.schedule.retry, s.schedule.retry != never }

// Passes returns how many passes have begun.
func Passes(s State) int { return s.schedule.passes }

// PassAt returns when the next pass begins if nothing new happens before; false if none is due.
func PassAt(s State) (time.Duration, bool) {
	at := s.passDue()
	if s.schedule.relist != never && s.pass.mode == idle {
		at = earlier(at, max(s.schedule.relist, s.schedule.fresh))
	}
	return at, at != never
}

// WithPassAt returns s with a pass due at the given time.
func WithPassAt(s State, at time.Duration) State {
	s.schedule.wakeAt(at)
	return s
}

// WithRetryAt returns s with another retry time. A real kubelet chooses that time at random, so the trace
// decides it.
func WithRetryAt(s State, at time.Duration) State {
	s.schedule.retry = at
	return s
}
