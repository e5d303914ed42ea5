package supervise

import (
	"fmt"
	"time"
)

// A backoff decides how long to wait before the next child is started.
//
// After a child that served for a while there is no pause, however often that happens.
// After a child that was never ready, or only for a moment, each pause is twice the
// previous one: a fault that kills every child at its start, or at its first request, must
// not cause eight starts a second.
type backoff struct {
	base  time.Duration // the second pause; the first one is 0
	max   time.Duration
	reset time.Duration // a child that served this long clears the history

	unready int // give up after this many children in a row that were never ready
	ends    int // give up after this many ends within window
	window  time.Duration
}

// standard has short pauses, because the application's connections wait while there is no
// child. A start costs a tenth of a second of CPU time; a child that served for ten times
// as long was worth it.
var standard = backoff{base: 50 * time.Millisecond, max: time.Second, reset: time.Second, unready: 8, ends: 30, window: 5 * time.Minute}

// A history counts the ends of earlier children.
type history struct {
	ends    []time.Time // within the window, oldest first
	streak  int         // restarts since the last reset
	unready int         // consecutive children that were never ready
}

// ended records that a child ended at now, after having served for the given time (zero: it was never ready),
// and returns the pause before the next one. jitter is in [0, 1): it changes a pause by up to a quarter each
// way, so that the pods of a node that lost their proxies together do not restart them together. If giveUp is
// not empty, it is the reason why no further child may be started.
func (h *history) ended(b backoff, now time.Time, served time.Duration, jitter float64) (pause time.Duration, giveUp string) {
	if served >= b.reset {
		*h = history{}
	}
	if served > 0 {
		h.unready = 0
	} else {
		h.unready++
	}
	h.ends = append(h.ends, now)
	for now.Sub(h.ends[0]) > b.window {
		h.ends = h.ends[1:]
	}
	switch {
	case h.unready >= b.unready:
		return 0, fmt.Sprintf("it ended %d times in a row without having been ready", h.unready)
	case len(h.ends) >= b.ends:
		return 0, fmt.Sprintf("it ended %d times within %s", len(h.ends), b.window)
	}
	h.streak++
	if h.streak == 1 {
		return 0, ""
	}
	pause = b.base
	for range h.streak - 2 {
		pause = min(2*pause, b.max)
	}
	return min(time.Duration(float64(pause)*(0.75+jitter/2)), b.max), ""
}
