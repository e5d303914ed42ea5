package bootconfig

import (
	"errors"
	"time"
)

const (
	firstRetry    = 500 * time.Millisecond
	longestRetry  = 5 * time.Minute
	longestPause  = 5 * time.Second
	longestAsked  = time.Hour
	longestDouble = 16 // a day, doubled more often than this, overflows a Duration
)

// A pace computes the pause before the next fetch. It uses no clock.
type pace struct {
	refresh, wait time.Duration
	random        func() float64 // in [0, 1)

	failures int
	answered bool // the provider has answered once
}

// next returns the pause between the end of a fetch and the beginning of the next. took is the duration
// of the fetch; changed reports whether it brought a new document.
func (p *pace) next(err error, changed bool, took time.Duration) time.Duration {
	if err != nil {
		return p.retry(err)
	}
	p.failures, p.answered = 0, true
	// An unchanged document long before the end of the wait means that the server does not hold requests. It is
	// then polled like a server without long poll.
	if p.wait > 0 && (changed || took >= p.wait/2) {
		return p.part(min(longestPause, p.refresh/10))
	}
	return p.refresh/2 + p.part(p.refresh)
}

func (p *pace) retry(err error) time.Duration {
	first := firstRetry
	if p.answered {
		first = p.refresh
	}
	window := min(first<<min(p.failures, longestDouble), max(longestRetry, p.refresh))
	p.failures++
	var asked *RetryAfterError
	if errors.As(err, &asked) {
		return min(max(asked.After, 0), longestAsked) + p.part(window)
	}
	return p.part(window)
}

func (p *pace) part(d time.Duration) time.Duration {
	return time.Duration(p.random() * float64(d))
}
