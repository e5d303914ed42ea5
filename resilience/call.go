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
	single     bool // the call makes at most one request, so it may be repeated if nothing was sent
	replayable bool // the body can be sent again

	// do makes try n and sets value, err, class and after of the outcome.
	do func(ctx context.Context, n int, o *outcome)
	// release frees the resources of a result that is not returned. May be nil. If reuse is true, it
	// should keep the connection for the next try, as long as that takes no time.
	release func(o *outcome, reuse bool)

	ctx     context.Context // the caller's context, limited by Options.Timeout
	began   time.Time
	round   int // tries made one after the other; only one goroutine accesses it at a time
	tries   atomic.Int32
	running atomic.Int32 // number of tries in progress in this round
	hedged  bool

	mu   sync.Mutex
	over bool       // the call has ended, and later results are released
	held []*outcome // results to release, unless one of them becomes the call's
	last error      // error of the latest try that failed
}

// An outcome says how a try ended.
type outcome struct {
	call      *call
	value     any
	err       error
	class     Class
	after     time.Duration // how long the dependency asks to be left alone; negative: for ever
	rejected  bool          // the try was not made
	abandoned bool          // the try was cancelled, by the caller or because another one was faster
	final     bool          // for the hedge: do not wait for other tries
	spent     bool          // another round replaced this result
	panicked  any
	delay     time.Duration // before the next round
}

func (o *outcome) good() bool {
	return o.class == Answered && !o.rejected && !o.abandoned && o.panicked == nil
}

// begin starts the call's clock. The context that it returns has the call's deadline.
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
		panic(o.panicked) // in the caller's goroutine, which may recover
	}
	c.emit(ctx, Event{Decision: Done, Target: c.target.name, Class: o.class, Try: int(c.tries.Load()), Duration: time.Since(c.began), Err: o.err})
	return o
}

// retried makes the first try outside the retry loop, because most calls need no retry and the loop
// costs more than everything else.
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

// finish releases all results except o, including later ones.
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

// hold keeps a result until it is known whether the call returns it.
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

// try makes one try. Without a hedge, tries follow one another.
func (c *call) try(ctx context.Context, hedge bool) *outcome {
	o := &outcome{call: c}
	if !c.hedged {
		c.attempt(ctx, hedge, o)
		return o
	}
	c.running.Add(1)
	func() {
		// The hedge loop runs this in a goroutine of its own, where a panic would end the process.
		defer func() {
			if v := recover(); v != nil {
				o.panicked, o.class = v, Failed
			}
		}()
		c.attempt(ctx, hedge, o)
	}()
	// A failed hedge must not win over a first try that is only slow.
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
		if ctx.Err() != nil { // ctx ended while the try waited for a slot
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
		o.class = Failed // if Classify returned an unknown class
	}
	if o.err != nil && over(tryCtx) {
		c.blame(ctx, tryCtx, o)
	}
	c.hold(o)
}

// over reports whether a context has ended, or is about to end because its deadline has passed and its
// timer is late. In between, a server that was told the deadline, as gRPC servers are, may have ended
// the call. In that case over waits for the timer, because only the timer sets the cause. A context
// that has a deadline and never ends is a mistake of its author, and costs a second.
func over(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return ctx.Err() != nil
}

// blame decides what caused an error that arrived together with the end of the context.
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

// ended returns the error of a call whose context has ended.
func (c *call) ended() error {
	cause := context.Cause(c.ctx)
	if t, ok := errors.AsType[*timeoutError](cause); ok && t.field == "Timeout" {
		c.mu.Lock()
		defer c.mu.Unlock()
		return &timeoutError{policy: t.policy, field: t.field, limit: t.limit, before: c.last}
	}
	return cause
}

// mayHedge takes the token for a hedge.
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

// repeat decides, once after each round, whether there is another one, and when.
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

// obstacle returns the reason why the call is not repeated. If there is none, it returns "", sets
// o.delay and takes the token for the retry.
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
	// Clients that were told the same time by Retry-After must not all return at that time.
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
