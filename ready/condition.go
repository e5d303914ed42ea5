package ready

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
)

// A condition is one dependency or state to wait for.
type condition struct {
	name   string
	remote bool        // it is checked over the network
	dirs   []string    // a change in one of these directories causes a check at once
	in     func(place) // fills in what depends on other options
	check  func(context.Context, *attempt) error
	busy   chan struct{} // full while check is running
}

// A place describes this container: where the states and probes are.
type place struct {
	own, states string // directories
	level       Level
	as          string // the waiter's name
}

// An attempt is one call of a condition's check.
type attempt struct {
	end  time.Time // end of the whole wait
	held atomic.Bool
	lift func() bool
}

// hold removes the attempt's limit, because the agent holds the request until it has an answer.
func (a *attempt) hold() {
	a.held.Store(true)
	a.lift()
}

// A finalError is an error that no further attempt can fix.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func isFinal(err error) bool {
	var f finalError
	return errors.As(err, &f)
}

// skipped is the answer of a condition that does not apply here: there is nothing to wait for.
type skipped struct{ why string }

func (s skipped) Error() string { return s.why }

// decided reports whether an answer is final.
func decided(err error) bool {
	var s skipped
	return err == nil || isFinal(err) || errors.As(err, &s)
}

// A hinted error contains advice.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Pauses and limits, which the package comment documents.
const (
	firstPause   = 5 * time.Millisecond
	localPause   = 50 * time.Millisecond
	remotePause  = time.Second
	firstLimit   = time.Second
	longestLimit = 10 * time.Second
)

// await checks repeatedly until the condition holds, can never hold, or ctx ends.
func (w *Waiter) await(ctx context.Context, c *condition) result {
	longest := w.every
	switch {
	case longest > 0:
	case c.remote:
		longest = remotePause
	default:
		longest = localPause
	}
	limit, most := w.limit, w.limit
	if limit == 0 {
		limit, most = firstLimit, longestLimit
	}
	changes := watch(c.dirs)
	defer changes.close()
	pause := min(firstPause, longest)
	for n := 1; ; n++ {
		changes.add() // watch directories that are new
		a := new(attempt)
		err := attemptOnce(ctx, c, limit, a)
		if decided(err) {
			return result{c, err, time.Now(), n}
		}
		if ctx.Err() != nil {
			return result{c, context.Cause(ctx), time.Now(), n} // the last answer, if any, is the better reason
		}
		w.answered(c, err)
		if errors.Is(err, errLimit) {
			limit = min(2*limit, most)
		}
		if a.held.Load() {
			pause = min(firstPause, longest) // the agent will hold the next request too
		}
		timer := time.NewTimer(pause - rand.N(pause/2+1))
		select {
		case <-timer.C:
			pause = min(2*pause, longest)
		case <-changes.C:
		case <-ctx.Done():
			timer.Stop()
			return result{c, context.Cause(ctx), time.Now(), n}
		}
		timer.Stop()
	}
}

var errLimit = errors.New("no answer")

// attemptOnce calls the check and returns by the limit, even if the check does not.
func attemptOnce(ctx context.Context, c *condition, limit time.Duration, a *attempt) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := fmt.Errorf("%w within %s", errLimit, limit)
	timer := time.AfterFunc(limit, func() { cancel(over) })
	defer timer.Stop()
	a.lift = timer.Stop
	a.end, _ = ctx.Deadline()
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: the attempt before has not returned", context.Cause(ctx))
	}
	answer := make(chan error, 1)
	go func() {
		answer <- c.check(ctx, a)
		<-c.busy
	}()
	select {
	case err := <-answer:
		if !decided(err) && ctx.Err() != nil {
			return context.Cause(ctx) // an error that the end of ctx caused is no answer
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// visible makes a foreign text fit for a log: one line of printable characters, not too long.
func visible(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), 300)], "?")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(s), " "))
}
