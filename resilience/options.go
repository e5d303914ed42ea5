package resilience

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Options of a policy. The zero value of a field turns its function off, unless the comment of the field says
// otherwise. Only Name must be set. [Default], [ForStart] and [ForReads] return combinations that work together,
// which can be used unchanged or adapted.
type Options struct {
	// Name of the policy in events and metrics, such as "orders". Must be set.
	Name string

	// Timeout limits a whole call: all tries and the waits between them. It can only shorten the
	// deadline of the caller's context. In HTTP it ends when the response's header has arrived; the
	// body is limited only by the request's context.
	Timeout time.Duration
	// TryTimeout limits each try.
	TryTimeout time.Duration

	// Start is the time after [New] for which a dependency, or a proxy before it, may still be starting. Until
	// then the breaker does not count an Absent result, such as a refused connection, as a failure. If Retry is
	// set, such a call is retried until its deadline, regardless of Retry.Tries, while the budget has tokens.
	Start time.Duration

	Retry    *Retry
	Hedge    *Hedge
	Breaker  *Breaker
	Bulkhead *Bulkhead
	Adaptive *Adaptive

	// Budget bounds retries and hedges together. Default: [ProcessBudget].
	Budget *Budget

	// Idempotent declares that every call may be repeated. Without it, only calls with a context of
	// [WithIdempotent] may be repeated, and in HTTP also requests with an idempotent method.
	Idempotent bool
	// Single declares that each call of [Do] makes at most one request. Such a call may also be repeated if the
	// error shows that the request was not sent. [Transport] always sets it.
	Single bool

	// Classify classifies the error of a try. Default: [Classify].
	Classify func(error) Class

	// MaxTargets bounds the number of targets (hosts) that are remembered, each with a breaker,
	// bulkhead and limiter of its own. Beyond it, the least recently used target is forgotten with its
	// state. Default 10,000, at most 1,000,000.
	MaxTargets int

	// Logger logs every decision: breaker changes at Warn and Info, others at Debug, because every call
	// may cause one. Default: none.
	Logger *slog.Logger
	// Observe is called with every decision and at the end of each call, by the calling goroutine: it
	// must be fast, and safe for concurrent use. Package otelresilience provides a function that
	// records OpenTelemetry metrics.
	Observe func(context.Context, Event)
}

// Retry repeats a call that failed. The wait before try n+1 is random between 0 and the
// smaller of MaxDelay and MinDelay*2^(n-1), so that clients which failed together do not
// come back together.
type Retry struct {
	Tries    int           // including the first; 2 to 100
	MinDelay time.Duration // above 0
	MaxDelay time.Duration // at least MinDelay; also the longest wait of a retry for the budget
	// MaxRetryAfter is the longest Retry-After of a server, or push-back of gRPC, to wait for. If the dependency
	// asks for a longer time, the call is not repeated at all, because an earlier try is not wanted. 0: never
	// wait.
	MaxRetryAfter time.Duration
}

// Hedge starts another try while earlier ones are slow, and takes the first answer. Only calls that may be
// repeated are hedged; each hedge takes a token from the budget.
type Hedge struct {
	Delay time.Duration // since the previous try; above 0. A good value is the 95th percentile of the usual latency.
	Max   int           // hedges besides the first try; 1 to 10
}

// Breaker is a circuit breaker for each target: calls are rejected with [ErrOpen] while the
// target is known to fail.
type Breaker struct {
	FailureRatio float64       // ratio of failed to all tries in Window at which the breaker opens; above 0, at most 1
	MinTries     int           // minimum number of tries in Window before it opens; 1 to 1,000,000
	Window       time.Duration // at least 10ms
	OpenFor      time.Duration // time before it lets Probes tries through; varied by up to a quarter, so that the breakers of a fleet do not probe at once
	Probes       int           // number of tries that must succeed to close it; default 1
}

// Bulkhead bounds the tries in flight to a target. In HTTP a try is in flight until the response's
// header has arrived.
type Bulkhead struct {
	Max     int           // 1 to 1,000,000
	MaxWait time.Duration // for a slot; 0: rejected with [ErrFull] at once
}

// Adaptive bounds the tries in flight to a target. The limit falls while the latency of the target rises.
type Adaptive struct {
	Min, Max, Initial int           // limits; 1 <= Min <= Initial <= Max <= 1,000,000
	MaxWait           time.Duration // for a slot; 0: rejected with [ErrLimited] at once
}

// HTTPOptions of a [Transport].
type HTTPOptions struct {
	Options // Options.Classify must be nil: set Classify below

	// Classify classifies a response or an error. Default: [ClassifyHTTP].
	Classify func(*http.Response, error) Class

	// BufferBody is the maximum size in bytes of a request body that is read into memory, so that it
	// can be sent again although the request has no GetBody. A larger body is sent only once. At most
	// 64 MiB.
	BufferBody int64

	// Fallback is called when a call has finally failed, and returns the result of the call in its place. The
	// error argument is the error of the last try, or a [StatusError] if the last try ended with a response;
	// that response has been closed. A response without a Body gets an empty one.
	Fallback func(*http.Request, error) (*http.Response, error)
}

const (
	defaultTargets = 10_000
	manyTargets    = 1_000_000
	largestBuffer  = 64 << 20
)

// Default returns options for calls between services: three tries, a circuit breaker, and ten seconds
// in which a proxy beside the process may still be starting.
func Default(name string) Options {
	return Options{
		Name:       name,
		Timeout:    15 * time.Second,
		TryTimeout: 5 * time.Second,
		Start:      10 * time.Second,
		Retry:      &Retry{Tries: 3, MinDelay: 25 * time.Millisecond, MaxDelay: time.Second, MaxRetryAfter: 5 * time.Second},
		Breaker:    &Breaker{FailureRatio: 0.5, MinTries: 20, Window: 10 * time.Second, OpenFor: 5 * time.Second, Probes: 2},
	}
}

// ForStart returns options for calls without which a process cannot start, such as fetching its configuration. A
// call waits up to a minute for a dependency that is not there yet, and retries as often as the budget allows.
// There is no breaker, because the process has no alternative to waiting.
func ForStart(name string) Options {
	o := Default(name)
	o.Timeout, o.Start, o.Breaker = time.Minute, time.Minute, nil
	return o
}

// ForReads returns [Default] with a hedge, for reads whose latency matters: a second try starts after
// delay, which should be the 95th percentile of the usual latency.
func ForReads(name string, delay time.Duration) Options {
	o := Default(name)
	o.Hedge = &Hedge{Delay: delay, Max: 1}
	return o
}

// check returns an error that names every invalid field and its valid values.
func (o Options) check() error {
	var errs []error
	if o.Name == "" {
		errs = append(errs, errors.New(`Options.Name is empty: must be what events and metrics call the policy, such as "orders"`))
	}
	errs = append(errs,
		notNegative("Options.Timeout", o.Timeout),
		notNegative("Options.TryTimeout", o.TryTimeout),
		notNegative("Options.Start", o.Start),
		inRange("Options.MaxTargets", float64(o.MaxTargets), 0, manyTargets),
	)
	if o.Timeout > 0 && o.TryTimeout > o.Timeout {
		errs = append(errs, fmt.Errorf("Options.TryTimeout is %v: must be at most Options.Timeout, %v", o.TryTimeout, o.Timeout))
	}
	if o.Start > 0 && o.Retry == nil && o.Breaker == nil {
		errs = append(errs, errors.New("Options.Start has no effect without Options.Retry or Options.Breaker: set one of them"))
	}
	if o.Budget != nil && o.Budget.options == (BudgetOptions{}) {
		errs = append(errs, errors.New("Options.Budget is a zero Budget: must be one of NewBudget"))
	}
	if o.Retry != nil {
		errs = append(errs, o.Retry.check()...)
	}
	if o.Hedge != nil {
		errs = append(errs, positive("Hedge.Delay", o.Hedge.Delay), inRange("Hedge.Max", float64(o.Hedge.Max), 1, 10))
	}
	if o.Breaker != nil {
		errs = append(errs, o.Breaker.check()...)
	}
	if o.Bulkhead != nil {
		errs = append(errs, inRange("Bulkhead.Max", float64(o.Bulkhead.Max), 1, 1_000_000), notNegative("Bulkhead.MaxWait", o.Bulkhead.MaxWait))
	}
	if o.Adaptive != nil {
		errs = append(errs, o.Adaptive.check()...)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("resilience: %w", err)
	}
	return nil
}

func (r Retry) check() []error {
	errs := []error{
		inRange("Retry.Tries", float64(r.Tries), 2, 100),
		positive("Retry.MinDelay", r.MinDelay),
		notNegative("Retry.MaxRetryAfter", r.MaxRetryAfter),
	}
	if r.MaxDelay < r.MinDelay {
		errs = append(errs, fmt.Errorf("Retry.MaxDelay is %v: must be at least Retry.MinDelay, %v", r.MaxDelay, r.MinDelay))
	}
	return errs
}

func (b Breaker) check() []error {
	errs := []error{
		inRange("Breaker.FailureRatio", b.FailureRatio, 0, 1),
		inRange("Breaker.MinTries", float64(b.MinTries), 1, 1_000_000),
		inRange("Breaker.Probes", float64(b.Probes), 0, 1000),
		positive("Breaker.OpenFor", b.OpenFor),
	}
	if b.FailureRatio == 0 {
		errs = append(errs, errors.New("Breaker.FailureRatio is 0: must be above 0, or successes would open the breaker"))
	}
	if b.Window < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("Breaker.Window is %v: must be at least 10ms", b.Window))
	}
	return errs
}

func (a Adaptive) check() []error {
	errs := []error{notNegative("Adaptive.MaxWait", a.MaxWait)}
	if !(1 <= a.Min && a.Min <= a.Initial && a.Initial <= a.Max && a.Max <= 1_000_000) {
		errs = append(errs, fmt.Errorf("Adaptive.Min, Initial and Max are %d, %d and %d: must be 1 <= Min <= Initial <= Max <= 1000000", a.Min, a.Initial, a.Max))
	}
	return errs
}

func (o HTTPOptions) check() error {
	var errs []error
	if o.Options.Classify != nil {
		errs = append(errs, errors.New("Options.Classify has no effect on HTTP: set HTTPOptions.Classify, which sees the response too"))
	}
	errs = append(errs, inRange("HTTPOptions.BufferBody", float64(o.BufferBody), 0, largestBuffer))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("resilience: %w", err)
	}
	return nil
}

// inRange returns an error if v is not between least and most. Integers are exact as floats up to 2^53. NaN is in
// no range.
func inRange(field string, v, least, most float64) error {
	if v >= least && v <= most {
		return nil
	}
	return fmt.Errorf("%s is %v: must be %.0f to %.0f", field, v, least, most)
}

func positive(field string, d time.Duration) error {
	if d > 0 {
		return nil
	}
	return fmt.Errorf("%s is %v: must be above 0", field, d)
}

func notNegative(field string, d time.Duration) error {
	if d >= 0 {
		return nil
	}
	return fmt.Errorf("%s is %v: must not be negative", field, d)
}
