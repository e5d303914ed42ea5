package resilience

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
)

// A Policy applies its options to calls. It may be used by any number of goroutines. It should live as long as
// the process, because a new policy knows nothing of earlier failures.
type Policy struct {
	*shared
	target *target
}

// shared is the state that the policies of all targets share.
type shared struct {
	options        Options
	budget         *Budget
	began          time.Time // time of New
	targets        *targets
	plain, hedging failsafe.Executor[*outcome] // nil if a call makes a single try
}

// New returns a policy, or an error that names every invalid option. It copies the options, but not the values
// to which they point. Callers must not change these values afterwards.
func New(o Options) (*Policy, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Classify == nil {
		o.Classify = Classify
	}
	s := &shared{options: o, budget: o.Budget, began: time.Now()}
	if s.budget == nil {
		s.budget = ProcessBudget()
	}
	if o.MaxTargets == 0 {
		o.MaxTargets = defaultTargets
	}
	s.targets = newTargets(o.MaxTargets, func(name string) *Policy { return &Policy{shared: s, target: newTarget(name, s)} })
	s.plain, s.hedging = executors(o)
	return s.targets.root, nil
}

// For returns the policy of one target: the same options and budget, but a breaker, bulkhead and limiter of its
// own. Events contain the name as their target. The same name always returns the same state, unless that was
// dropped in favour of other targets: see Options.MaxTargets. [Transport] calls this method for each host.
func (p *Policy) For(target string) *Policy { return p.targets.get(target) }

// executors builds the loops of failsafe-go. The loops only wait, and start and cancel tries; call.repeat and
// call.try make all decisions.
func executors(o Options) (plain, hedging failsafe.Executor[*outcome]) {
	var policies []failsafe.Policy[*outcome]
	if o.Retry != nil {
		policies = append(policies, retrypolicy.NewBuilder[*outcome]().
			HandleIf(func(o *outcome, _ error) bool { return o != nil && o.call.repeat(o) }). // failsafe-go calls this once after each round
			WithDelayFunc(func(e failsafe.ExecutionAttempt[*outcome]) time.Duration { return e.LastResult().delay }).
			WithMaxRetries(-1).
			Build())
		plain = failsafe.With(policies...)
	}
	if o.Hedge != nil {
		policies = append(policies, hedgepolicy.NewBuilderWithDelay[*outcome](o.Hedge.Delay).
			CancelIf(func(o *outcome, _ error) bool { return o == nil || o.final }).
			WithMaxHedges(o.Hedge.Max).
			Build())
		hedging = failsafe.With(policies...)
	}
	return plain, hedging
}

// starting reports whether Options.Start has not passed yet, i.e. dependencies may still be starting.
func (s *shared) starting() bool {
	return s.options.Start > 0 && time.Since(s.began) < s.options.Start
}

// Do calls f under the policy. f must return soon after its context ends, because nothing else can stop it.
// That context also ends when f returns. Do returns the result of the last try unchanged, or an error of this
// package: [ErrOpen], [ErrFull], [ErrLimited], [ErrTimeout].
//
// Do calls f again only if Options.Idempotent is set or ctx comes from [WithIdempotent]; with Options.Single,
// it also calls f again after an error which shows that nothing was sent. With a Hedge, several goroutines may
// call f at the same time. If an error of f, or one that it wraps, has a method RetryAfter() time.Duration, the
// result of that method acts like the header Retry-After; a negative value forbids a repetition.
//
// A call that its caller cancels does not count as a failure of the dependency. A call whose deadline passes
// during a try counts as one.
func Do[T any](ctx context.Context, p *Policy, f func(context.Context) (T, error)) (T, error) {
	c := &call{Policy: p, idempotent: p.options.Idempotent || isIdempotent(ctx), single: p.options.Single, replayable: true}
	c.do = func(ctx context.Context, _ int, o *outcome) {
		v, err := f(ctx)
		o.value, o.err, o.class = v, err, p.options.Classify(err)
		o.after = retryAfterOf(err)
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	o := c.run(ctx)
	v, _ := o.value.(T)
	return v, o.err
}

// DoOr is [Do] with a fallback: if Do returns an error, DoOr calls fallback with that error and returns
// its result. It does not call fallback after ctx has ended.
func DoOr[T any](ctx context.Context, p *Policy, f func(context.Context) (T, error), fallback func(context.Context, error) (T, error)) (T, error) {
	v, err := Do(ctx, p, f)
	if err == nil || ctx.Err() != nil {
		return v, err
	}
	p.emit(ctx, Event{Decision: DecidedFallback, Target: p.target.name, Err: err})
	return fallback(ctx, err)
}

type idempotentKey struct{}

// WithIdempotent returns a context whose calls may be repeated and hedged, because making them twice
// has the same effect as making them once.
func WithIdempotent(ctx context.Context) context.Context {
	return context.WithValue(ctx, idempotentKey{}, true)
}

func isIdempotent(ctx context.Context) bool { return ctx.Value(idempotentKey{}) != nil }
