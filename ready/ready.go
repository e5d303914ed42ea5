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

// Wait is [New] and then [Waiter.Wait].
func Wait(ctx context.Context, opts ...Option) error {
	w, err := New(opts...)
	if err != nil {
		return err
	}
	return w.Wait(ctx)
}

// A Waiter waits once. It is also an http.Handler that reports how far the wait is. Its methods may be called from any
// goroutine.
type Waiter struct {
	timeout, every, limit time.Duration
	policy                Policy
	conditions            []*condition
	without               string // why there is no proxy to wait for, if that was given
	log                   *slog.Logger
	done                  chan struct{} // closed once a wait has ended well

	mu      sync.Mutex
	phase   phase
	missing map[*condition]error // what a wait still waits for, and its last answer
}

type phase int

const (
	idle phase = iota
	waiting
	succeeded
	continued
	failed
)

// An Error is a wait that did not end well.
type Error struct {
	// Cause is why the wait ended: context.DeadlineExceeded after the time of For, the cause of ctx, a
	// *SignalError, or the error of a condition that can never hold.
	Cause   error
	After   time.Duration
	Missing []Missing // in the order of the options
}

// A Missing is a condition that did not hold.
type Missing struct {
	Condition string // "proxy", "tcp://db:5432", "cache is healthy"
	Err       error  // the last answer
	Hint      string // what to look at; may be empty
}

// Error is on one line.
func (e *Error) Error() string {
	s := fmt.Sprintf("ready: not ready after %s (%v)", e.After.Round(time.Millisecond), e.Cause)
	if text := describe(e.Missing); text != "" {
		s += ": " + text
	}
	return s
}

// Unwrap returns the cause, and the last answers.
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

// A SignalError is the signal that ended a wait.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return "signal: " + e.Signal.String() }

var (
	errUnasked = errors.New("no answer yet")
	errTwice   = errors.New("ready: this Waiter waits already: make another one")
	errTime    = fmt.Errorf("the time is over: %w", context.DeadlineExceeded)
)

// Wait waits until everything is there; see the package's comment for what else ends it. It returns nil, or an *Error.
// Called again after it has failed, it waits again; after it has succeeded it returns nil at once. While it
// waits, another call is an error.
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
	// A context of its own for the time: a deadline of ctx may be the earlier one, and Continue is for this alone.
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

// interrupt ends a context by a signal, until stop is called. A signal that the process ignores stays ignored.
func interrupt(cancel context.CancelCauseFunc) (stop func()) {
	signals := slices.DeleteFunc([]os.Signal{syscall.SIGTERM, os.Interrupt}, signal.Ignored)
	if len(signals) == 0 {
		return func() {} // Notify without any means all
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

// A result is the end of one condition's wait.
type result struct {
	c        *condition
	err      error
	at       time.Time
	attempts int
}

// fresh is how old an answer may be when the wait ends: ready means now.
const fresh = 250 * time.Millisecond

// all returns nil in a moment in which every condition holds, or the cause of the end.
func (w *Waiter) all(ctx context.Context, began time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said := teller{log: w.logger(), began: began}
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	var lost error                   // with Continue: a condition that can never hold
	at := map[*condition]time.Time{} // of the answer
	settled := map[*condition]bool{} // it is not asked again
	again := false
	for pending := w.conditions; len(pending) > 0; again = true {
		results := make(chan result, len(pending)) // so that one that ends too late is not stuck
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
			break // all held twice
		}
		pending = slices.DeleteFunc(slices.Clone(w.conditions), func(c *condition) bool { return settled[c] || time.Since(at[c]) <= fresh })
	}
	return lost
}

// settle notes the end of a condition's wait. keep: the condition is to hold at the end too.
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

// ended notes how a wait went, and makes the error.
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

// answered notes the last answer of a condition; nil: it holds.
func (w *Waiter) answered(c *condition, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.missing, c)
		return
	}
	w.missing[c] = err
}

// Missing lists what the wait waits for at this moment, in the order of the options; before it has begun, everything.
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

// Done is closed once a wait has ended well: everything was there, or Continue goes on without.
func (w *Waiter) Done() <-chan struct{} { return w.done }

func (w *Waiter) logger() *slog.Logger {
	if w.log == nil {
		return slog.Default() // of now: a program may set it after New
	}
	return w.log
}

// sayEvery is the least time between two lines.
const sayEvery = time.Second

// A teller writes what is waited for: when that has changed, and each time the wait has become longer by half.
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
