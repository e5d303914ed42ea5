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

// A condition is one thing that must hold.
type condition struct {
	name   string
	remote bool        // it is asked over the network
	dirs   []string    // a change in one of them is a reason to ask at once
	in     func(place) // fills in what depends on other options
	check  func(context.Context, *attempt) error
	busy   chan struct{} // full while check runs
}

// A place says where conditions find the states and probes of this container.
type place struct {
	own, states string // directories
	level       Level
	as          string // the waiter's name
}

// An attempt is one call of a condition's check.
type attempt struct {
	end  time.Time // of the whole wait
	held atomic.Bool
	lift func() bool
}

// hold lifts the limit of the attempt: the answer comes when there is something to say.
func (a *attempt) hold() {
	a.held.Store(true)
	a.lift()
}

// A finalError is one that no further attempt can mend.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func isFinal(err error) bool {
	var f finalError
	return errors.As(err, &f)
}

// A skipped condition is none in this place: there is nothing to wait for.
type skipped struct{ why string }

func (s skipped) Error() string { return s.why }

// decided reports whether an answer is the last one.
func decided(err error) bool {
	var s skipped
	return err == nil || isFinal(err) || errors.As(err, &s)
}

// A hinted error has advice.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Pauses and limits; the package's comment has them too.
const (
	firstPause   = 5 * time.Millisecond
	localPause   = 50 * time.Millisecond
	remotePause  = time.Second
	firstLimit   = time.Second
	longestLimit = 10 * time.Second
)

// await asks until the condition holds, can never hold, or ctx ends.
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
		changes.add() // of directories that are new
		a := new(attempt)
		err := attemptOnce(ctx, c, limit, a)
		if decided(err) {
			return result{c, err, time.Now(), n}
		}
		if ctx.Err() != nil {
			return result{c, context.Cause(ctx), time.Now(), n} // the answer before is the better reason
		}
		w.answered(c, err)
		if errors.Is(err, errLimit) {
			limit = min(2*limit, most)
		}
		if a.held.Load() {
			pause = min(firstPause, longest) // it will be again
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

// attemptOnce calls the check, and returns in time whether or not the check does.
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
			return context.Cause(ctx) // what the check makes of its end is no answer
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// visible is a text of others on one line of printable characters, and not long: it goes into a log.
func visible(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), 300)], "?")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(s), " "))
}
