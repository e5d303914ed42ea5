package readiness

import (
	"context"
	"fmt"
	"time"
)

// A Check reports whether a condition holds. The note is a reservation; the error is why it
// does not hold.
type Check func(ctx context.Context) (note string, err error)

// Rates are how often a check is repeated. The zero value of a field means its default.
type Rates struct {
	Until time.Duration // while the answer is bad; default 100ms
	After time.Duration // once it is good; default: never again
	Each  time.Duration // a single check may take; default 2s
}

// Keep checks at once, and again as r sets, and sets the condition accordingly, until ctx
// ends or there is nothing more to check.
func Keep(ctx context.Context, b *Board, c Condition, r Rates, check Check) {
	if r.Until <= 0 {
		r.Until = 100 * time.Millisecond
	}
	if r.Each <= 0 {
		r.Each = 2 * time.Second
	}
	for {
		limit, cancel := context.WithTimeoutCause(ctx, r.Each, fmt.Errorf("no answer within %v", r.Each))
		note, err := check(limit)
		cancel()
		if ctx.Err() != nil {
			return
		}
		pause := r.Until
		if err == nil {
			b.Set(c, true, note)
			if pause = r.After; pause <= 0 {
				return
			}
		} else {
			b.Set(c, false, err.Error())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
