package supervise

import (
	"fmt"
	"time"
)

// A backoff says when a child that ended is started again.
//
// A child that served for a while is followed by the next one at once, however often that
// happens. After one that was never ready, or only for a moment, each pause is twice the
// last: what kills a child when it starts, or with its first request, must not start eight
// of them a second.
type backoff struct {
	base  time.Duration // the second pause
	max   time.Duration
	reset time.Duration // serving this long makes the next restart a first one, and forgets all ends before

	unready int // how many children in a row may end without having been ready
	ends    int // how many children may end within window
	window  time.Duration
}

// standard has short pauses: while there is no child the application's connections wait. A
// start costs a tenth of a second of a processor: ten times as long makes a restart worth it.
var standard = backoff{base: 50 * time.Millisecond, max: time.Second, reset: time.Second, unready: 8, ends: 30, window: 5 * time.Minute}

// A history is what is remembered of children that ended.
type history struct {
	ends    []time.Time // within the window, oldest first
	streak  int         // restarts since the last reset
	unready int         // in a row
}

// ended records that a child ended at now, after serving so long (zero: it was never
// ready), and returns the pause before the next one. jitter is in [0, 1): pauses are
// spread by a quarter each way, so that the pods of a node that lost their proxies
// together do not come back together. A reason that is not empty says why to give up.
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
