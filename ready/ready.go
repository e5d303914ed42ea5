package ready

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Wait waits until every condition in opts holds. It is [New] followed by [Waiter.Wait], and returns the error of
// either.
func Wait(ctx context.Context, opts ...Option) error {
	w, err := New(opts...)
	if err != nil {
		return err
	}
	return w.Wait(ctx)
}

// A Waiter waits until its conditions hold. It is also an http.Handler that reports the progress of the wait. Its
// methods may be called from any goroutine.
type Waiter struct {
	timeout, every, limit time.Duration
	policy                Policy
	conditions            []*condition
	without               string // why Proxy does not wait, if "none" was given
	log                   *slog.Logger
	done                  chan struct{} // closed once a wait has succeeded

	mu      sync.Mutex
	phase   phase
	missing map[*condition]error // the conditions that do not hold, with the errors of their last attempts
}

type phase int

const (
	idle phase = iota
	waiting
	succeeded
	continued
	failed
)

// An Error is the error of a wait that failed.
type Error struct {
	// Cause is the reason why the wait ended: context.DeadlineExceeded if the time of For is over, the cause of
	// ctx, a *SignalError, or the error of a condition that can never hold.
	Cause   error
	After   time.Duration
	Missing []Missing // in the order of the options
}

// A Missing is a condition that does not hold, with the reason.
type Missing struct {
	Condition string // "proxy", "tcp://db:5432", "cache is healthy"
	Err       error  // the last answer
	Hint      string // advice; may be empty
}

// Error returns one line.
func (e *Error) Error() string {
	s := fmt.Sprintf("ready: not ready after %s (%v)", e.After.Round(time.Millisecond), e.Cause)
	if text := describe(e.Missing); text != "" {
		s += ": " + text
	}
	return s
}

// Unwrap returns the cause and the errors of the missing conditions.
func (e *Error) Unwrap() []error {
	out := []error{e.Cause}
	for _, m := range e.Missing {
		out = append(out, m.Err)
	}
	return out
}

func describe(missing []Missing) string {
	var words []string
	for _, m := range missing {
		words = append(words, fmt.Sprintf("%s (%v)", m.Condition, m.Err))
	}
	return strings.Join(words, ", ")
}

// A SignalError is the cause of a wait that a signal ended.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return "signal: " + e.Signal.String() }

var (
	errUnasked = errors.New("no answer yet")
	errTwice   = errors.New("ready: this Waiter waits already: make another one")
	errTime    = fmt.Errorf("the time is over: %w", context.DeadlineExceeded)
)

// Wait waits until every condition holds, and returns nil. If the wait ends otherwise, as the package comment
// describes, it returns an *Error, or nil with Continue. After a failure, another call waits again; after a
// success, it returns nil at once. A call while another one is waiting is an error.
func (w *Waiter) Wait(ctx context.Context) error {
	switch before, err := w.begin(); {
	case err != nil:
		return err
	case before == succeeded || before == continued:
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The time of For has a context with a cause of its own, so that it can be distinguished from a deadline of
	// ctx: Continue applies only to the time of For.
	ctx, end := context.WithTimeoutCause(ctx, w.timeout, errTime)
	defer end()
	defer interrupt(cancel)()

	if w.without != "" {
		w.logger().Info("not waiting for a proxy", "because", w.without)
	}
	err := w.all(ctx, began)
	return w.ended(err, began)
}

func (w *Waiter) begin() (before phase, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.phase
	switch before {
	case waiting:
		return before, errTwice
	case succeeded, continued:
		return before, nil
	}
	w.phase = waiting
	for _, c := range w.conditions {
		w.missing[c] = errUnasked
	}
	return before, nil
}

// interrupt cancels a context when SIGTERM or an interrupt arrives, until stop is called. A signal that the
// process ignores stays ignored.
func interrupt(cancel context.CancelCauseFunc) (stop func()) {
	signals := slices.DeleteFunc([]os.Signal{syscall.SIGTERM, os.Interrupt}, signal.Ignored)
	if len(signals) == 0 {
		return func() {} // signal.Notify without signals would mean all signals
	}
	c, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(c, signals...)
	go func() {
		select {
		case s := <-c:
			cancel(&SignalError{s})
		case <-over:
		}
	}()
	return func() {
		signal.Stop(c)
		close(over)
	}
}

// A result is the outcome of waiting for one condition.
type result struct {
	c        *condition
	err      error
	at       time.Time
	attempts int
}

// fresh is the maximum age of an answer at the end of the wait.
const fresh = 250 * time.Millisecond

// all waits until every condition holds at the same time, and returns nil. If the wait ends before, it returns
// the cause.
func (w *Waiter) all(ctx context.Context, began time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said := teller{log: w.logger(), began: began}
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	var lost error                   // with Continue, the error of a condition that can never hold
	at := map[*condition]time.Time{} // times of the answers
	settled := map[*condition]bool{} // conditions that are not checked again
	again := false
	for pending := w.conditions; len(pending) > 0; again = true {
		results := make(chan result, len(pending)) // buffered, so that a late result does not block its goroutine
		for _, c := range pending {
			go func() { results <- w.await(ctx, c) }()
		}
		changed := false
		for left := len(pending); left > 0; {
			select {
			case r := <-results:
				left--
				at[r.c], changed = r.at, changed || r.attempts > 1
				switch keep, err := w.settle(r); {
				case err != nil && (!isFinal(err) || w.policy == Fail):
					return err
				case err != nil:
					lost = err
					fallthrough
				case !keep:
					settled[r.c] = true
				}
			case <-tick.C:
				said.waiting(w.Missing())
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if again && !changed {
			break // all conditions held in both rounds
		}
		pending = slices.DeleteFunc(slices.Clone(w.conditions), func(c *condition) bool { return settled[c] || time.Since(at[c]) <= fresh })
	}
	return lost
}

// settle records the result of waiting for one condition. keep is true if the condition must still hold at the
// end, so that it may be checked again.
func (w *Waiter) settle(r result) (keep bool, err error) {
	var skip skipped
	switch {
	case errors.As(r.err, &skip):
		w.logger().Info("not waiting for a proxy", "because", skip.why)
		w.answered(r.c, nil)
		return false, nil
	case r.err == nil:
		w.answered(r.c, nil)
		return true, nil
	case isFinal(r.err):
		w.answered(r.c, r.err)
	}
	return false, r.err
}

// ended records the outcome of a wait, and returns the error of Wait.
func (w *Waiter) ended(cause error, began time.Time) error {
	took := time.Since(began)
	missing := w.Missing()
	phase := failed
	switch {
	case cause == nil:
		phase = succeeded
	case w.policy == Continue && (errors.Is(cause, errTime) || isFinal(cause)):
		phase = continued
		w.logger().Warn("continuing without", "missing", describe(missing), "after", took.Round(time.Millisecond).String())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = phase
	if phase != failed {
		close(w.done)
		return nil
	}
	if cause == errTime {
		cause = context.DeadlineExceeded
	}
	return &Error{Cause: cause, After: took, Missing: missing}
}

// answered records the last answer of a condition; nil if it holds.
func (w *Waiter) answered(c *condition, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.missing, c)
		return
	}
	w.missing[c] = err
}

// Missing returns the conditions that do not hold at this moment, in the order of the options. Before the wait
// begins, it returns all of them.
func (w *Waiter) Missing() []Missing {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Missing
	for _, c := range w.conditions {
		err := w.missing[c]
		if w.phase == idle {
			err = errUnasked
		}
		if err == nil {
			continue
		}
		m := Missing{Condition: c.name, Err: err}
		var hinted *hinted
		if errors.As(err, &hinted) {
			m.Hint = hinted.hint
		}
		out = append(out, m)
	}
	return out
}

// Done returns a channel that is closed once Wait has returned nil: all conditions held, or Continue applied.
func (w *Waiter) Done() <-chan struct{} { return w.done }

func (w *Waiter) logger() *slog.Logger {
	if w.log == nil {
		return slog.Default() // not in New, because a program may set the default logger later
	}
	return w.log
}

// sayEvery is the minimum time between two log lines of a wait.
const sayEvery = time.Second

// A teller logs the missing conditions: when they change, and each time the wait has become half as long again.
type teller struct {
	log   *slog.Logger
	began time.Time
	text  string
	at    time.Duration
}

func (t *teller) waiting(missing []Missing) {
	text, since := describe(missing), time.Since(t.began)
	if text == "" || text == t.text && since < t.at+t.at/2 {
		return
	}
	t.text, t.at = text, since
	t.log.Info("waiting", "for", text, "since", since.Round(time.Second).String())
}
