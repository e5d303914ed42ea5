package readiness

import (
	"context"
	"fmt"
	"time"
)

// A Check finds out whether a condition holds. If it does not, the error is the reason. If it does, the note
// may say what was not proved.
type Check func(ctx context.Context) (note string, err error)

// Rates defines how often a check is repeated. The zero value of a field selects its default.
type Rates struct {
	Until time.Duration // pause while the check fails; default 100ms
	After time.Duration // pause after a success; default: no other check
	Each  time.Duration // timeout of a single check; default 2s
}

// Keep checks at once, repeats the check at the rates of r, and sets the condition to the result.
// It returns when ctx ends, or after a success if r.After is 0.
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
