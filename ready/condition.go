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

// A condition is one state for which a Waiter waits, such as a reachable dependency.
type condition struct {
	name   string
	remote bool        // the check uses the network
	dirs   []string    // a change in one of these directories causes a check at once
	in     func(place) // called by New, to set fields that depend on other options
	check  func(context.Context, *attempt) error
	busy   chan struct{} // holds a value while check runs
}

// A place contains the options that describe this container.
type place struct {
	own, states string // directories
	level       Level
	as          string // the waiter's name
}

// An attempt is one call of a condition's check.
type attempt struct {
	end  time.Time // deadline of the whole wait
	held atomic.Bool
	lift func() bool
}

// hold removes the time limit of the attempt. It is called when the agent has announced that it holds the request
// until it can answer.
func (a *attempt) hold() {
	a.held.Store(true)
	a.lift()
}

// A finalError is an error after which further attempts are useless.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func isFinal(err error) bool {
	var f finalError
	return errors.As(err, &f)
}

// skipped is the result of a condition that does not apply here, for example because there is no proxy.
type skipped struct{ why string }

func (s skipped) Error() string { return s.why }

// decided reports whether the result of a check is final, so that it need not be repeated.
func decided(err error) bool {
	var s skipped
	return err == nil || isFinal(err) || errors.As(err, &s)
}

// hinted is an error with advice, for [Missing].Hint.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Pauses between attempts and time limits of attempts, as in the package comment.
const (
	firstPause   = 5 * time.Millisecond
	localPause   = 50 * time.Millisecond
	remotePause  = time.Second
	firstLimit   = time.Second
	longestLimit = 10 * time.Second
)

// await checks a condition repeatedly. It returns when the condition holds or can never hold, or when ctx ends.
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
		changes.add() // also watch directories that have appeared in the meantime
		a := new(attempt)
		err := attemptOnce(ctx, c, limit, a)
		if decided(err) {
			return result{c, err, time.Now(), n}
		}
		if ctx.Err() != nil {
			return result{c, context.Cause(ctx), time.Now(), n} // keep the last error in w.missing: it says more than the end of ctx
		}
		w.answered(c, err)
		if errors.Is(err, errLimit) {
			limit = min(2*limit, most)
		}
		if a.held.Load() {
			pause = min(firstPause, longest) // the agent will also hold the next request, so repeat it at once
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

// attemptOnce calls the check and returns its result. It returns an error at the limit even if the check still
// runs.
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
			return context.Cause(ctx) // the end of ctx caused this error, so it says nothing about the dependency
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// visible returns a text of unknown origin in a form that is safe to log: one line of printable characters, at
// most 300 bytes of the text.
func visible(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), 300)], "?")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(s), " "))
}
