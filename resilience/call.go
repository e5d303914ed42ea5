package resilience

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go"
)

// A call is one call with all its tries.
type call struct {
	*Policy
	idempotent bool
	single     bool // each try makes at most one request, so the call may be repeated if that request was not sent
	replayable bool // the body can be sent again

	// do makes try n, and sets the fields value, err, class and after of the outcome.
	do func(ctx context.Context, n int, o *outcome)
	// release frees the resources of a result that is not returned. May be nil. If reuse is true, it should keep
	// the connection for the next try, if it can do so without delaying the call.
	release func(o *outcome, reuse bool)

	ctx     context.Context // the caller's context, limited by Options.Timeout
	began   time.Time
	round   int // number of rounds that have ended; only one goroutine accesses it at a time
	tries   atomic.Int32
	running atomic.Int32 // number of tries in progress in this round
	hedged  bool

	mu   sync.Mutex
	over bool       // the call has ended; results that arrive later are released at once
	held []*outcome // results to release, except the one that the call returns
	last error      // error of the latest try that failed
}

// An outcome is the result of a try.
type outcome struct {
	call      *call
	value     any
	err       error
	class     Class
	after     time.Duration // time that the dependency wants before the next try; negative: it forbids another try
	rejected  bool          // a policy did not admit the try, so it was not made
	abandoned bool          // the try was cancelled, by the caller or because another one was faster
	final     bool          // for the hedge policy: do not wait for other tries of the round
	spent     bool          // another round follows, whose result replaces this one
	panicked  any
	delay     time.Duration // pause before the next round
}

func (o *outcome) good() bool {
	return o.class == Answered && !o.rejected && !o.abandoned && o.panicked == nil
}

// begin records the start of the call, and returns the context with the call's deadline.
func (c *call) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	c.began = time.Now()
	cancel := context.CancelFunc(func() {})
	if t := c.options.Timeout; t > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, t, &timeoutError{policy: c.options.Name, field: "Timeout", limit: t})
	}
	c.ctx = ctx
	return ctx, cancel
}

// run makes the tries and returns the call's outcome.
func (c *call) run(ctx context.Context) *outcome {
	c.budget.deposit()
	executor := c.plain
	if c.hedging != nil && c.idempotent && c.replayable {
		executor, c.hedged = c.hedging, true
	}
	var o *outcome
	switch {
	case ctx.Err() != nil:
	case c.hedged:
		o, _ = executor.WithContext(ctx).GetWithExecution(func(e failsafe.Execution[*outcome]) (*outcome, error) {
			return c.try(e.Context(), e.IsHedge()), nil
		})
	default:
		o = c.retried(ctx, executor)
	}
	// If ctx ends between two rounds, failsafe-go returns nil, or the result of the previous round.
	if o == nil || o.spent {
		o = &outcome{call: c, class: Lost, abandoned: true, err: c.ended()}
	}
	c.finish(o)
	if o.panicked != nil {
		panic(o.panicked) // in the caller's goroutine, where the caller can recover
	}
	c.emit(ctx, Event{Decision: Done, Target: c.target.name, Class: o.class, Try: int(c.tries.Load()), Duration: time.Since(c.began), Err: o.err})
	return o
}

// retried makes the tries one after the other. It makes the first one outside the retry loop of failsafe-go,
// because that loop costs more than the rest of a call, and most calls need no retry.
func (c *call) retried(ctx context.Context, executor failsafe.Executor[*outcome]) *outcome {
	o := c.try(ctx, false)
	if executor == nil || o.good() {
		return o
	}
	first := o
	o, _ = executor.WithContext(ctx).Get(func() (*outcome, error) {
		if o := first; o != nil {
			first = nil
			return o, nil
		}
		return c.try(ctx, false), nil
	})
	return o
}

// finish ends the call: it releases all results except o, and causes [call.hold] to release results that arrive later.
func (c *call) finish(o *outcome) {
	c.mu.Lock()
	c.over = true
	held := c.held
	c.mu.Unlock()
	for _, other := range held {
		if other != o {
			c.release(other, false)
		}
	}
}

// hold keeps a result in c.held until it is known whether the call returns it. If the call has already ended, it
// releases the result.
func (c *call) hold(o *outcome) {
	c.mu.Lock()
	if o.err != nil && c.ctx.Err() == nil {
		c.last = o.err
	}
	late := c.over
	if !late && c.release != nil {
		c.held = append(c.held, o)
	}
	c.mu.Unlock()
	if late && c.release != nil {
		c.release(o, false)
	}
}

// try makes one try. If the call is hedged, several tries may run at the same time.
func (c *call) try(ctx context.Context, hedge bool) *outcome {
	o := &outcome{call: c}
	if !c.hedged {
		c.attempt(ctx, hedge, o)
		return o
	}
	c.running.Add(1)
	func() {
		// The hedge loop runs this in a separate goroutine, where a panic would end the process.
		defer func() {
			if v := recover(); v != nil {
				o.panicked, o.class = v, Failed
			}
		}()
		c.attempt(ctx, hedge, o)
	}()
	// A failed try must not end the round while another try, which is only slow, may still succeed.
	o.final = c.running.Add(-1) == 0 || o.good() || o.panicked != nil
	return o
}

// attempt makes the try if the policies admit it, and records its result.
func (c *call) attempt(ctx context.Context, hedge bool, o *outcome) {
	if hedge && !c.mayHedge(o) {
		return
	}
	permit, err := c.target.admit(ctx)
	if err != nil {
		o.rejected, o.err, o.class = true, err, Failed
		if ctx.Err() != nil { // ctx ended while the try was waiting for a slot
			o.abandoned, o.class, o.err = true, Lost, c.ended()
			return
		}
		c.emit(ctx, Event{Decision: DecidedReject, Target: c.target.name, Reason: reasonOf(err), Try: int(c.tries.Load()), Class: o.class})
		return
	}
	o.class = Failed
	defer func() { c.target.done(ctx, permit, o) }() // also if do panics
	tryCtx := ctx
	if t := c.options.TryTimeout; t > 0 {
		var cancel context.CancelFunc
		tryCtx, cancel = context.WithTimeoutCause(ctx, t, &timeoutError{policy: c.options.Name, field: "TryTimeout", limit: t})
		defer cancel()
	}
	c.do(tryCtx, int(c.tries.Add(1)), o)
	if o.class < 0 || int(o.class) >= len(classes) {
		o.class = Failed // Classify returned an unknown class
	}
	if o.err != nil && over(tryCtx) {
		c.blame(ctx, tryCtx, o)
	}
	c.hold(o)
}

// over reports whether a context has ended. If its deadline has passed but its timer is late, over waits for the
// timer, because only the timer sets the context's cause. This happens if a server that knows the deadline, as
// gRPC servers do, ends the call before our timer fires. The wait is limited to a second, for a faulty context
// that has a deadline and never ends.
func over(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return ctx.Err() != nil
}

// blame sets the error and the class of a try that failed after its context had ended: the call's time is over,
// the try was cancelled, or the try's time is over.
func (c *call) blame(ctx, tryCtx context.Context, o *outcome) {
	o.class = Lost
	switch {
	case errors.Is(c.ctx.Err(), context.DeadlineExceeded):
		o.err = c.ended()
	case ctx.Err() != nil: // the caller gave up, or another try was faster
		o.abandoned = true
		if c.ctx.Err() != nil {
			o.err = c.ended()
		}
	default:
		o.err = context.Cause(tryCtx)
	}
}

// ended returns the error of a call whose context has ended: the context's cause. If that is Options.Timeout, it
// also contains the error of the last failed try.
func (c *call) ended() error {
	cause := context.Cause(c.ctx)
	if t, ok := errors.AsType[*timeoutError](cause); ok && t.field == "Timeout" {
		c.mu.Lock()
		defer c.mu.Unlock()
		return &timeoutError{policy: t.policy, field: t.field, limit: t.limit, before: c.last}
	}
	return cause
}

// mayHedge takes a token for a hedge from the budget, and reports whether the budget had a token. If it had
// none, mayHedge marks the outcome as rejected.
func (c *call) mayHedge(o *outcome) bool {
	e := Event{Decision: DecidedHedge, Target: c.target.name, Try: int(c.tries.Load())}
	_, ok := c.budget.withdraw(0)
	if !ok {
		e.Decision, e.Reason = DecidedNoHedge, "budget"
		o.rejected, o.err, o.class = true, errNoHedge, Failed
	}
	c.emit(c.ctx, e)
	return ok
}

// repeat is called once after each round. It reports whether another round follows, and sets o.delay to the pause
// before it.
func (c *call) repeat(o *outcome) bool {
	c.round++
	if o.rejected || o.abandoned || o.panicked != nil || c.ctx.Err() != nil || classes[o.class].repeat == never {
		return false
	}
	e := Event{Decision: DecidedRetry, Target: c.target.name, Class: o.class, Try: int(c.tries.Load()), Err: o.err}
	if e.Reason = c.obstacle(o); e.Reason != "" {
		e.Decision = DecidedNoRetry
	}
	e.Delay = o.delay
	c.emit(c.ctx, e)
	if e.Reason != "" {
		return false
	}
	o.spent = true
	c.releaseRound(o)
	return true
}

// releaseRound releases the results of a round before the next one begins.
func (c *call) releaseRound(o *outcome) {
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	for _, h := range held {
		c.release(h, h == o)
	}
}

// obstacle returns the reason why the call is not repeated. If nothing prevents a repetition, it returns "", sets
// o.delay and takes a token from the budget.
func (c *call) obstacle(o *outcome) (reason string) {
	retry := c.options.Retry
	patient := o.class == Absent && c.starting()
	switch {
	case !c.idempotent && !(c.single && classes[o.class].repeat == ifUnsent):
		return "not idempotent"
	case !c.replayable:
		return "body cannot be sent again"
	case c.round >= retry.Tries && !patient:
		return "tries"
	case o.after < 0 || o.after > retry.MaxRetryAfter:
		return "retry-after"
	}
	// The backoff is added, so that clients which got the same Retry-After do not all return at that time.
	delay := o.after + backoff(retry, c.round)
	if c.target.openFor() > delay {
		return "breaker open"
	}
	left := retry.MaxDelay
	if deadline, ok := c.ctx.Deadline(); ok {
		if delay >= time.Until(deadline) {
			return "deadline"
		}
		left = min(left, time.Until(deadline))
	}
	wait, ok := c.budget.withdraw(left)
	if !ok {
		return "budget"
	}
	o.delay = max(delay, wait)
	return ""
}

// backoff is exponential with full jitter:
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
func backoff(r *Retry, round int) time.Duration {
	limit := r.MinDelay
	for range round - 1 {
		if limit > r.MaxDelay/2 {
			limit = r.MaxDelay
			break
		}
		limit *= 2
	}
	return time.Duration(rand.Int64N(int64(min(limit, r.MaxDelay)) + 1))
}
