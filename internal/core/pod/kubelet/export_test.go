package kubelet

import "time"

// RetryAt returns the time at which a failed pass is repeated; false if there is none.
func RetryAt(s State) (time.Duration, bool) { return s.schedule.retry, s.schedule.retry != never }

// Passes returns the number of passes that have begun.
func Passes(s State) int { return s.schedule.passes }

// PassAt returns the time at which the next pass begins if no event happens before; false if no pass is due.
func PassAt(s State) (time.Duration, bool) {
	at := s.passDue()
	if s.schedule.relist != never && s.pass.mode == idle {
		at = earlier(at, max(s.schedule.relist, s.schedule.fresh))
	}
	return at, at != never
}

// WithPassAt returns s with a pass requested for the given time.
func WithPassAt(s State, at time.Duration) State {
	s.schedule.wakeAt(at)
	return s
}

// WithRetryAt returns s with another time for the retry. A real kubelet chooses that time at random, so the
// replay takes it from the trace.
func WithRetryAt(s State, at time.Duration) State {
	s.schedule.retry = at
	return s
}
