package resilience

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
)

// A target is the state for one dependency. Fields of parts that the options turn off are nil.
type target struct {
	name     string
	shared   *shared
	breaker  circuitbreaker.CircuitBreaker[any]
	bulkhead bulkhead.Bulkhead[any]
	adaptive adaptivelimiter.AdaptiveLimiter[any]
}

func newTarget(name string, s *shared) *target {
	t := &target{name: name, shared: s}
	if b := s.options.Breaker; b != nil {
		on := func(d Decision) func(circuitbreaker.StateChangedEvent) {
			return func(e circuitbreaker.StateChangedEvent) {
				s.emit(e.Context(), Event{Decision: d, Target: name})
			}
		}
		t.breaker = circuitbreaker.NewBuilder[any]().
			WithFailureRateThreshold(b.FailureRatio, uint(b.MinTries), b.Window).
			WithDelay(b.OpenFor).WithJitterFactor(0.25).
			WithSuccessThreshold(uint(max(1, b.Probes))).
			OnOpen(on(DecidedOpen)).OnHalfOpen(on(DecidedHalfOpen)).OnClose(on(DecidedClose)).
			Build()
	}
	if b := s.options.Bulkhead; b != nil {
		t.bulkhead = bulkhead.New[any](uint(b.Max))
	}
	if a := s.options.Adaptive; a != nil {
		t.adaptive = adaptivelimiter.NewBuilder[any]().
			WithLimits(uint(a.Min), uint(a.Max), uint(a.Initial)).
			OnLimitChanged(func(e adaptivelimiter.LimitChangedEvent) {
				s.emit(context.Background(), Event{Decision: DecidedLimit, Target: name, Limit: int(e.NewLimit)})
			}).
			Build()
	}
	return t
}

// openFor returns the time until an open breaker becomes half-open; 0 if it is not open.
func (t *target) openFor() time.Duration {
	if t.breaker == nil {
		return 0
	}
	return t.breaker.RemainingDelay()
}

// admit waits for a slot as long as the options allow, or returns the error with which a policy rejects the try.
// For each admitted try, done must be called.
func (t *target) admit(ctx context.Context) (adaptivelimiter.Permit, error) {
	if t.openFor() > 0 { // do not wait for a slot that could not be used
		return nil, t.reject(ErrOpen)
	}
	if t.bulkhead != nil {
		if t.bulkhead.AcquirePermitWithMaxWait(ctx, t.shared.options.Bulkhead.MaxWait) != nil {
			return nil, t.reject(ErrFull)
		}
	}
	var permit adaptivelimiter.Permit
	if t.adaptive != nil {
		var err error
		if permit, err = t.adaptive.AcquirePermitWithMaxWait(ctx, t.shared.options.Adaptive.MaxWait); err != nil {
			t.leave(nil, false)
			return nil, t.reject(ErrLimited)
		}
	}
	// The breaker comes last, because a half-open breaker needs the result of each try that it admits, so no
	// other policy may reject the try afterwards.
	if t.breaker != nil && !t.breaker.TryAcquirePermit() {
		t.leave(permit, false)
		return nil, t.reject(ErrOpen)
	}
	return permit, nil
}

// leave returns the slots of bulkhead and limiter. If measured is true, the limiter takes the latency of the try
// into account.
func (t *target) leave(permit adaptivelimiter.Permit, measured bool) {
	if t.bulkhead != nil {
		t.bulkhead.ReleasePermit()
	}
	switch {
	case permit == nil:
	case measured:
		permit.Record()
	default:
		permit.Drop()
	}
}

// done records the result of an admitted try. The limiter uses only the latency of answered tries: a refused
// connection is fast, but does not show how much load the dependency can take.
func (t *target) done(ctx context.Context, permit adaptivelimiter.Permit, o *outcome) {
	t.leave(permit, o.class == Answered && !o.abandoned)
	if t.breaker == nil {
		return
	}
	forgiven := o.class == Absent && !o.abandoned && t.shared.starting()
	switch {
	case forgiven:
		t.shared.emit(ctx, Event{Decision: DecidedForgive, Target: t.name, Class: o.class, Try: int(o.call.tries.Load()), Err: o.err})
		t.unproven()
	case o.abandoned:
		t.unproven()
	case classes[o.class].fails:
		t.breaker.RecordFailure()
	default:
		t.breaker.RecordSuccess()
	}
}

// unproven handles a try that shows nothing about the dependency. Usually it counts nothing. If the breaker is
// half-open, it counts a failure, because the try may be a probe: a probe that is never counted would keep its
// permit for ever, and the breaker would stay half-open.
func (t *target) unproven() {
	if t.breaker.IsHalfOpen() {
		t.breaker.RecordFailure()
	}
}

// targets holds the policies of at most max targets. A new target replaces the least recently used one.
type targets struct {
	root   *Policy // the policy for the empty name; never dropped
	create func(name string) *Policy
	max    int

	mu     sync.Mutex
	byName map[string]*list.Element // elements hold a *Policy
	order  list.List                // the most recently used element first
}

func newTargets(most int, create func(name string) *Policy) *targets {
	return &targets{root: create(""), create: create, max: most, byName: map[string]*list.Element{}}
}

func (ts *targets) get(name string) *Policy {
	if name == "" {
		return ts.root
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if e, ok := ts.byName[name]; ok {
		ts.order.MoveToFront(e)
		return e.Value.(*Policy)
	}
	if ts.order.Len() >= ts.max {
		oldest := ts.order.Back()
		delete(ts.byName, ts.order.Remove(oldest).(*Policy).target.name)
	}
	p := ts.create(name)
	ts.byName[name] = ts.order.PushFront(p)
	return p
}
