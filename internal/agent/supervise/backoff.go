package supervise

import (
	"fmt"
	"time"
)

// A Backoff says when a child that ended is started again. The zero value of a field
// means its default.
//
// The first restart is at once: most crashes are one. Then each pause is twice the last,
// until a child has served for a while.
type Backoff struct {
	Base  time.Duration // the second pause; default 100ms
	Max   time.Duration // default 10s
	Reset time.Duration // serving this long makes the next restart a first one; default 1m

	// Unready is how many children in a row may end without having been ready; default 8.
	Unready int
	// Ends is how many children may end within Window; default 30 in 5m.
	Ends   int
	Window time.Duration
}

func (b Backoff) withDefaults() Backoff {
	fill(&b.Base, 100*time.Millisecond)
	fill(&b.Max, 10*time.Second)
	fill(&b.Reset, time.Minute)
	fill(&b.Unready, 8)
	fill(&b.Ends, 30)
	fill(&b.Window, 5*time.Minute)
	return b
}

// fill gives a field its default.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (b Backoff) check() error {
	b = b.withDefaults()
	switch {
	case b.Base < 0 || b.Max < b.Base || b.Reset < 0 || b.Window < 0:
		return fmt.Errorf("option Backoff: %+v; use Base <= Max, and no negative time", b)
	case b.Unready < 1 || b.Ends < 1:
		return fmt.Errorf("option Backoff: Unready %d, Ends %d; use 1 or more", b.Unready, b.Ends)
	}
	return nil
}

// A history is what is remembered of children that ended.
type history struct {
	ends    []time.Time // within the window, oldest first
	streak  int         // restarts since the last reset
	unready int         // in a row
}

// ended takes note that a child ended at now, after serving so long (zero: it was never
// ready), and returns the pause before the next one. jitter is in [0, 1): pauses are
// spread by a quarter each way, so that the pods of a node that lost their proxies
// together do not come back together. A reason that is not empty says why to give up.
func (h *history) ended(b Backoff, now time.Time, served time.Duration, jitter float64) (pause time.Duration, giveUp string) {
	if served >= b.Reset {
		*h = history{}
	}
	if served > 0 {
		h.unready = 0
	} else {
		h.unready++
	}
	h.ends = append(h.ends, now)
	for now.Sub(h.ends[0]) > b.Window {
		h.ends = h.ends[1:]
	}
	switch {
	case h.unready >= b.Unready:
		return 0, fmt.Sprintf("it ended %d times in a row without having been ready", h.unready)
	case len(h.ends) >= b.Ends:
		return 0, fmt.Sprintf("it ended %d times within %s", len(h.ends), b.Window)
	}
	h.streak++
	if h.streak == 1 {
		return 0, ""
	}
	pause = b.Base
	for range h.streak - 2 {
		if pause *= 2; pause >= b.Max {
			pause = b.Max
			break
		}
	}
	return min(time.Duration(float64(pause)*(0.75+jitter/2)), b.Max), ""
}
