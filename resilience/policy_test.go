package resilience

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyIdempotentCallsAreRepeated(t *testing.T) {
	tests := map[string]struct {
		err    error
		mark   bool // use a context of WithIdempotent
		all    bool // Options.Idempotent
		single bool
		calls  int
		reason string
	}{
		"a call of unknown kind that was lost is made once":           {err: errBoom, calls: 1, reason: "not idempotent"},
		"its context says that it is idempotent":                      {err: errBoom, mark: true, calls: 3, reason: "tries"},
		"its policy says so":                                          {err: errBoom, all: true, calls: 3, reason: "tries"},
		"a refused connection may be the last of several requests":    {err: errRefused, calls: 1, reason: "not idempotent"},
		"a refused connection of a single request says: not sent":     {err: errRefused, single: true, calls: 3, reason: "tries"},
		"a reset connection of a single request leaves it open":       {err: errReset, single: true, calls: 1, reason: "not idempotent"},
		"a reset connection of an idempotent call is repeated":        {err: errReset, mark: true, calls: 3, reason: "tries"},
		"an error that says to come back late is not repeated before": {err: later(time.Hour), mark: true, calls: 1, reason: "retry-after"},
		"an error that says never to come back is not repeated":       {err: later(-1), mark: true, calls: 1, reason: "retry-after"},
	}
	for name, tt := range tests {
		bubble(t, name, func(t *testing.T) {
			p, events := policy(t, Options{Retry: twoRetries, Idempotent: tt.all, Single: tt.single})
			ctx := t.Context()
			if tt.mark {
				ctx = WithIdempotent(ctx)
			}
			f, calls := failing(10, tt.err)
			if _, err := Do(ctx, p, f); !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if *calls != tt.calls {
				t.Errorf("%d calls, want %d", *calls, tt.calls)
			}
			if no := events.of(DecidedNoRetry); len(no) != 1 || no[0].Reason != tt.reason {
				t.Errorf("no-retry %+v, want one with the reason %q", no, tt.reason)
			}
			if got := len(events.of(DecidedRetry)); got != tt.calls-1 {
				t.Errorf("%d events of retries, want %d", got, tt.calls-1)
			}
		})
	}
}

// later is an error with a method RetryAfter.
type later time.Duration

func (l later) Error() string             { return "later" }
func (l later) RetryAfter() time.Duration { return time.Duration(l) }

func TestARetryWaits(t *testing.T) {
	bubble(t, "no longer than the backoff", func(t *testing.T) {
		p, events := policy(t, Options{Idempotent: true, Retry: &Retry{Tries: 10, MinDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}})
		f, _ := failing(9, errBoom)
		began := time.Now()
		if v, err := Do(t.Context(), p, f); v != "done" || err != nil {
			t.Fatalf("%q, %v", v, err)
		}
		var sum time.Duration
		for i, e := range events.of(DecidedRetry) {
			if limit := min(10*time.Millisecond<<i, 50*time.Millisecond); e.Delay > limit {
				t.Errorf("retry %d after %v, at most %v", i+1, e.Delay, limit)
			}
			sum += e.Delay
		}
		if took := time.Since(began); took != sum {
			t.Errorf("the call took %v, its delays %v", took, sum)
		}
	})
	bubble(t, "at least what the dependency wants", func(t *testing.T) {
		p, events := policy(t, Options{Idempotent: true, Retry: twoRetries})
		f, _ := failing(1, later(3*time.Second))
		if _, err := Do(t.Context(), p, f); err != nil {
			t.Fatal(err)
		}
		if e := events.of(DecidedRetry); len(e) != 1 || e[0].Delay < 3*time.Second || e[0].Delay > 3*time.Second+twoRetries.MinDelay {
			t.Errorf("retries %+v, want one 3 s later", e)
		}
	})
	bubble(t, "not when the deadline is nearer", func(t *testing.T) {
		p, events := policy(t, Options{Idempotent: true, Retry: twoRetries})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		f, calls := failing(1, later(3*time.Second))
		began := time.Now()
		if _, err := Do(ctx, p, f); err != later(3*time.Second) || *calls != 1 {
			t.Errorf("%v after %d calls, want the error of the one try", err, *calls)
		}
		if time.Since(began) != 0 {
			t.Errorf("it took %v to find out that nothing can be done", time.Since(began))
		}
		if e := events.of(DecidedNoRetry); len(e) != 1 || e[0].Reason != "deadline" {
			t.Errorf("no-retry %+v", e)
		}
	})
}

// With any policy, and however long tries take, a call ends by its deadline.
func TestNoCallExceedsItsDeadline(t *testing.T) {
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			upTo := func(d time.Duration) time.Duration { return 1 + time.Duration(r.Int64N(int64(d))) }
			maybe := func() bool { return r.IntN(2) == 0 }
			o := Options{Idempotent: true}
			if maybe() {
				o.Timeout = upTo(3 * time.Second)
				o.TryTimeout = upTo(o.Timeout)
			}
			if maybe() {
				lowest := upTo(time.Second)
				o.Retry = &Retry{Tries: 2 + r.IntN(5), MinDelay: lowest, MaxDelay: lowest + upTo(time.Second), MaxRetryAfter: upTo(10 * time.Second)}
			}
			if maybe() {
				o.Hedge = &Hedge{Delay: upTo(time.Second), Max: 1 + r.IntN(3)}
			}
			if maybe() {
				o.Bulkhead = &Bulkhead{Max: 1, MaxWait: upTo(3 * time.Second)}
			}
			if maybe() {
				o.Adaptive = &Adaptive{Min: 1, Initial: 1, Max: 1, MaxWait: upTo(3 * time.Second)}
			}
			if maybe() {
				o.Breaker = &Breaker{FailureRatio: 0.5, MinTries: 2, Window: time.Second, OpenFor: upTo(time.Second)}
			}
			if maybe() {
				o.Budget = budget(t, BudgetOptions{PerSecond: 0.5, Burst: 1})
			}
			if o.Retry != nil || o.Breaker != nil {
				o.Start = upTo(2 * time.Second)
			}
			p, _ := policy(t, o)
			var random sync.Mutex
			f := func(ctx context.Context) (int, error) {
				random.Lock()
				took, result := upTo(2*time.Second), []error{nil, errBoom, errRefused, later(time.Second)}[r.IntN(4)]
				random.Unlock()
				select {
				case <-time.After(took):
					return 1, result
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
			var wg sync.WaitGroup
			for range 3 {
				random.Lock() // tries of earlier calls may still be running
				deadline := upTo(4 * time.Second)
				random.Unlock()
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					limit := deadline
					if o.Timeout > 0 {
						limit = min(limit, o.Timeout)
					}
					began := time.Now()
					_, err := Do(ctx, p, f)
					if took := time.Since(began); took > limit {
						t.Errorf("seed %d: %v, and the deadline was %v: %v\n%+v", seed, took, limit, err, o)
					}
				})
			}
			wg.Wait()
		})
	}
}

// A lateContext ends some time after its deadline. Every context ends late, but this one so late that a test
// can notice it.
type lateContext struct {
	context.Context
	deadline time.Time
	done     chan struct{}
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c lateContext) Done() <-chan struct{}       { return c.done }
func (c lateContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestTimeouts(t *testing.T) {
	hang := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		p, events := policy(t, Options{Timeout: 5 * time.Second, TryTimeout: 2 * time.Second, Idempotent: true, Retry: &Retry{Tries: 9, MinDelay: 1, MaxDelay: 1}})
		began := time.Now()
		_, err := Do(t.Context(), p, hang)
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v is no ErrTimeout and DeadlineExceeded", err)
		}
		if want := "resilience: test: no result within Timeout, 5s; the try before: resilience: test: no result within TryTimeout, 2s"; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		if timeout, ok := err.(interface{ Timeout() bool }); !ok || !timeout.Timeout() {
			t.Error("a net.Error of a time-out was expected")
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if tries := events.of(Done)[0].Try; tries != 3 {
			t.Errorf("%d tries, want 3", tries)
		}
	})
	bubble(t, "of a deadline that the server sees before the timer here", func(t *testing.T) {
		for ends, want := range map[bool]error{true: context.DeadlineExceeded, false: errReset} {
			p, _ := policy(t, Options{})
			ctx := lateContext{t.Context(), time.Now().Add(time.Minute), make(chan struct{})}
			_, err := Do(ctx, p, func(ctx context.Context) (string, error) {
				time.Sleep(time.Minute)
				if ends {
					time.AfterFunc(time.Millisecond, func() { close(ctx.(lateContext).done) })
				}
				return "", errReset
			})
			if !errors.Is(err, want) {
				t.Errorf("its timer ends: %v: %v, want %v", ends, err, want)
			}
		}
	})
	t.Run("of a context that has ended before the call", func(t *testing.T) {
		p, _ := policy(t, Options{Retry: twoRetries})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f, calls := failing(0, nil)
		if _, err := Do(ctx, p, f); err != context.Canceled || *calls != 0 {
			t.Errorf("%v after %d calls", err, *calls)
		}
	})
	bubble(t, "of a caller who cancels between two tries", func(t *testing.T) {
		for _, hedge := range []*Hedge{nil, {Delay: time.Millisecond, Max: 1}} {
			p, _ := policy(t, Options{Idempotent: true, Hedge: hedge, Retry: twoRetries})
			ctx, cancel := context.WithCancel(t.Context())
			f := func(context.Context) (string, error) {
				time.Sleep(2 * time.Millisecond) // long enough for a hedge
				time.AfterFunc(time.Second, cancel)
				return "", later(2 * time.Second)
			}
			if v, err := Do(ctx, p, f); err != context.Canceled || v != "" {
				t.Errorf("hedge %v: %q, %v, want context.Canceled", hedge, v, err)
			}
		}
	})
}

func TestBreaker(t *testing.T) {
	breaker := &Breaker{FailureRatio: 0.5, MinTries: 4, Window: 10 * time.Second, OpenFor: 4 * time.Second}
	fails := func(p *Policy, err error) {
		for range 4 {
			Do(context.Background(), p, func(context.Context) (int, error) { return 0, err })
		}
	}
	ok := func(context.Context) (int, error) { return 1, nil }
	bubble(t, "opens, probes and closes", func(t *testing.T) {
		p, events := policy(t, Options{Breaker: breaker})
		fails(p, errBoom)
		_, err := Do(t.Context(), p, ok)
		if !errors.Is(err, ErrOpen) || err.Error() != "resilience: test: circuit breaker open" {
			t.Errorf("error %v", err)
		}
		time.Sleep(5 * time.Second) // the breaker is open for at most 4 s plus a quarter
		if v, err := Do(t.Context(), p, ok); v != 1 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
		if got, want := events.decisions(), []Decision{DecidedOpen, DecidedReject, DecidedHalfOpen, DecidedClose}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
	bubble(t, "of one target says nothing of others", func(t *testing.T) {
		p, _ := policy(t, Options{Breaker: breaker})
		fails(p.For("a"), errBoom)
		if _, err := Do(t.Context(), p.For("a"), ok); !errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), "test: a: ") {
			t.Errorf("a: %v", err)
		}
		if _, err := Do(t.Context(), p.For("b"), ok); err != nil {
			t.Errorf("b: %v", err)
		}
	})
	bubble(t, "takes no offence at calls that were cancelled", func(t *testing.T) {
		p, events := policy(t, Options{Breaker: breaker})
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			Do(ctx, p, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		}
		if got := events.decisions(); len(got) != 0 {
			t.Errorf("%v", got)
		}
	})
	bubble(t, "counts deadlines that pass", func(t *testing.T) {
		p, events := policy(t, Options{Breaker: breaker})
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			Do(ctx, p, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
			cancel()
		}
		if got, want := events.decisions(), []Decision{DecidedOpen}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
	t.Run("opens again, and does not stay half-open, after a probe that was cancelled or panicked", func(t *testing.T) {
		for name, probe := range map[string]func(context.Context) (int, error){
			"cancelled": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			"panicked":  func(context.Context) (int, error) { panic("probe") },
		} {
			synctest.Test(t, func(t *testing.T) {
				p, events := policy(t, Options{Breaker: breaker})
				fails(p, errBoom)
				for range 3 {
					time.Sleep(5 * time.Second)
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)
					func() {
						defer func() { recover() }()
						Do(ctx, p, probe)
					}()
				}
				time.Sleep(5 * time.Second)
				if v, err := Do(t.Context(), p, ok); v != 1 || err != nil {
					t.Errorf("%s: %d, %v, after %v", name, v, err, events.decisions())
				}
			})
		}
	})
	bubble(t, "ends the tries of a call that opened it", func(t *testing.T) {
		p, events := policy(t, Options{Breaker: &Breaker{FailureRatio: 1, MinTries: 2, Window: time.Second, OpenFor: time.Second}, Idempotent: true, Retry: twoRetries})
		f, calls := failing(10, errBoom)
		if _, err := Do(t.Context(), p, f); err != errBoom || *calls != 2 {
			t.Errorf("%v after %d calls, want the error of the second", err, *calls)
		}
		if no := events.of(DecidedNoRetry); len(no) != 1 || no[0].Reason != "breaker open" {
			t.Errorf("no-retry %+v", no)
		}
	})
}

func TestStart(t *testing.T) {
	breaker := &Breaker{FailureRatio: 0.5, MinTries: 3, Window: 10 * time.Second, OpenFor: time.Second}
	refuse := func(context.Context) (int, error) { return 0, errRefused }
	bubble(t, "a refused connection does not open the breaker", func(t *testing.T) {
		p, events := policy(t, Options{Breaker: breaker, Start: 10 * time.Second})
		for range 10 {
			Do(t.Context(), p, refuse)
		}
		if len(events.of(DecidedOpen)) != 0 || len(events.of(DecidedForgive)) != 10 {
			t.Errorf("within Start: %v", events.decisions())
		}
		time.Sleep(10 * time.Second)
		for range 3 {
			Do(t.Context(), p, refuse)
		}
		if len(events.of(DecidedOpen)) != 1 {
			t.Errorf("after Start: %v", events.decisions())
		}
	})
	bubble(t, "another failure does", func(t *testing.T) {
		p, events := policy(t, Options{Breaker: breaker, Start: 10 * time.Second})
		for range 3 {
			Do(t.Context(), p, func(context.Context) (int, error) { return 0, errReset })
		}
		if len(events.of(DecidedOpen)) != 1 {
			t.Errorf("%v", events.decisions())
		}
	})
	bubble(t, "a proxy that listens after 4 s is waited for", func(t *testing.T) {
		o := ForStart("test")
		o.Idempotent, o.Budget = true, budget(t, ProcessBudget().options)
		p, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		began, calls := time.Now(), 0
		_, err = Do(t.Context(), p, func(context.Context) (int, error) {
			if calls++; time.Since(began) < 4*time.Second {
				return 0, errRefused
			}
			return 1, nil
		})
		if err != nil || calls <= o.Retry.Tries {
			t.Errorf("%v after %d calls and %v", err, calls, time.Since(began))
		}
	})
	bubble(t, "but one that is still away after Start is not", func(t *testing.T) {
		p, events := policy(t, Options{Start: time.Second, Idempotent: true, Retry: twoRetries})
		began := time.Now()
		if _, err := Do(t.Context(), p, refuse); err != errRefused {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took < time.Second || took > time.Second+twoRetries.MaxDelay {
			t.Errorf("it gave up after %v", took)
		}
		if no := events.of(DecidedNoRetry); len(no) != 1 || no[0].Reason != "tries" {
			t.Errorf("no-retry %+v", no)
		}
	})
}

func TestBulkheadAndAdaptiveLimit(t *testing.T) {
	tests := map[string]struct {
		options Options
		want    error
		reason  string
	}{
		"bulkhead":                         {Options{Bulkhead: &Bulkhead{Max: 2}}, ErrFull, "bulkhead full"},
		"bulkhead with a wait":             {Options{Bulkhead: &Bulkhead{Max: 2, MaxWait: time.Second}}, ErrFull, "bulkhead full"},
		"adaptive":                         {Options{Adaptive: &Adaptive{Min: 1, Initial: 2, Max: 2}}, ErrLimited, "limit"},
		"both, of which the limit is less": {Options{Bulkhead: &Bulkhead{Max: 3}, Adaptive: &Adaptive{Min: 1, Initial: 2, Max: 2}}, ErrLimited, "limit"},
		"adaptive with a wait":             {Options{Adaptive: &Adaptive{Min: 1, Initial: 2, Max: 2, MaxWait: time.Second}}, ErrLimited, "limit"},
	}
	for name, tt := range tests {
		bubble(t, name, func(t *testing.T) {
			tt.options.Retry, tt.options.Idempotent = twoRetries, true
			p, events := policy(t, tt.options)
			hold := make(chan struct{})
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { Do(t.Context(), p, func(context.Context) (int, error) { <-hold; return 0, nil }) })
			}
			synctest.Wait()
			f, calls := failing(0, nil)
			for range 2 { // a rejected call must not keep a slot
				if _, err := Do(t.Context(), p, f); !errors.Is(err, tt.want) || *calls != 0 {
					t.Errorf("%v after %d calls, want %v", err, *calls, tt.want)
				}
			}
			if r := events.of(DecidedReject); len(r) != 2 || r[0].Reason != tt.reason {
				t.Errorf("rejections %+v, want one of each call, which is not repeated", r)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			waits := tt.options.Bulkhead != nil && tt.options.Bulkhead.MaxWait > 0 || tt.options.Adaptive != nil && tt.options.Adaptive.MaxWait > 0
			if _, err := Do(ctx, p, f); waits && err != context.DeadlineExceeded {
				t.Errorf("a caller whose deadline passes in the queue gets %v", err)
			}
			close(hold)
			wg.Wait()
			if v, err := Do(t.Context(), p, f); v != "done" || err != nil {
				t.Errorf("when there is a place again: %q, %v", v, err)
			}
			// A call that panics must return its slot too.
			for range 3 {
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic is lost")
						}
					}()
					Do(t.Context(), p, func(context.Context) (int, error) { panic("try") })
				}()
			}
			if v, err := Do(t.Context(), p, f); v != "done" || err != nil {
				t.Errorf("after panics: %q, %v", v, err)
			}
		})
	}
}

func TestTheAdaptiveLimitFollowsLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, events := policy(t, Options{Adaptive: &Adaptive{Min: 1, Initial: 20, Max: 40, MaxWait: time.Minute}})
		latency := new(atomic.Int64)
		var wg sync.WaitGroup
		work := func(calls int) {
			for range 20 {
				wg.Go(func() {
					for range calls {
						Do(t.Context(), p, func(context.Context) (int, error) {
							time.Sleep(time.Duration(latency.Load()))
							return 0, nil
						})
					}
				})
			}
			wg.Wait()
		}
		latency.Store(int64(10 * time.Millisecond))
		work(2000)
		before := events.of(DecidedLimit)
		latency.Store(int64(200 * time.Millisecond))
		work(200)
		after := events.of(DecidedLimit)[len(before):]
		if len(before) == 0 || len(after) == 0 || after[0].Limit >= before[len(before)-1].Limit {
			t.Errorf("the limit did not fall when latency rose twentyfold: before %+v\nafter %+v", before, after)
		}
	})
}

func TestHedge(t *testing.T) {
	hedge := &Hedge{Delay: 100 * time.Millisecond, Max: 1}
	// by returns a function whose nth call calls the nth of fs, and the number of calls.
	by := func(fs ...func(context.Context) (string, error)) (func(context.Context) (string, error), *atomic.Int32) {
		n := new(atomic.Int32)
		return func(ctx context.Context) (string, error) { return fs[n.Add(1)-1](ctx) }, n
	}
	after := func(d time.Duration, v string, err error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			select {
			case <-time.After(d):
				return v, err
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
	}
	tests := map[string]struct {
		options Options
		tries   []func(context.Context) (string, error)
		value   string
		err     error
		took    time.Duration
		want    []Decision
	}{
		"a fast call has none": {
			tries: []func(context.Context) (string, error){after(99*time.Millisecond, "first", nil)},
			value: "first", took: 99 * time.Millisecond,
		},
		"the faster one wins": {
			tries: []func(context.Context) (string, error){after(time.Hour, "first", nil), after(10*time.Millisecond, "second", nil)},
			value: "second", took: 110 * time.Millisecond, want: []Decision{DecidedHedge},
		},
		"one that fails does not win over one that is slow": {
			tries: []func(context.Context) (string, error){after(time.Second, "first", nil), after(10*time.Millisecond, "", errBoom)},
			value: "first", took: time.Second, want: []Decision{DecidedHedge},
		},
		"a call that fails before the delay fails at once": {
			tries: []func(context.Context) (string, error){after(10*time.Millisecond, "", errBoom)},
			err:   errBoom, took: 10 * time.Millisecond,
		},
		"both fail": {
			tries: []func(context.Context) (string, error){after(time.Second, "", errBoom), after(10*time.Millisecond, "", errReset)},
			err:   errBoom, took: time.Second, want: []Decision{DecidedHedge},
		},
		"the budget is empty": {
			options: Options{Budget: &Budget{options: BudgetOptions{PerSecond: 0.001, Burst: 1}}},
			tries:   []func(context.Context) (string, error){after(time.Second, "first", nil)},
			value:   "first", took: time.Second, want: []Decision{DecidedNoHedge},
		},
		"what is not idempotent is not hedged": {
			options: Options{Single: true},
			tries:   []func(context.Context) (string, error){after(time.Second, "first", nil)},
			value:   "first", took: time.Second,
		},
		"the deadline ends both": {
			options: Options{Timeout: 500 * time.Millisecond},
			tries:   []func(context.Context) (string, error){after(time.Hour, "", nil), after(time.Hour, "", nil)},
			err:     ErrTimeout, took: 500 * time.Millisecond, want: []Decision{DecidedHedge},
		},
	}
	for name, tt := range tests {
		bubble(t, name, func(t *testing.T) {
			tt.options.Hedge = hedge
			tt.options.Idempotent = !tt.options.Single
			p, events := policy(t, tt.options)
			f, n := by(tt.tries...)
			began := time.Now()
			v, err := Do(t.Context(), p, f)
			if v != tt.value || !errors.Is(err, tt.err) {
				t.Errorf("%q, %v, want %q, %v", v, err, tt.value, tt.err)
			}
			if took := time.Since(began); took != tt.took {
				t.Errorf("it took %v, want %v", took, tt.took)
			}
			if int(n.Load()) != len(tt.tries) {
				t.Errorf("%d tries, want %d", n.Load(), len(tt.tries))
			}
			if got := events.decisions(); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	t.Run("a panic comes to the caller", func(t *testing.T) {
		p, _ := policy(t, Options{Hedge: hedge, Idempotent: true})
		defer func() {
			if v := recover(); v != "try" {
				t.Errorf("recovered %v", v)
			}
		}()
		Do(t.Context(), p, func(context.Context) (int, error) { panic("try") })
	})
	bubble(t, "a slower one is no failure for the breaker", func(t *testing.T) {
		p, events := policy(t, Options{Hedge: hedge, Idempotent: true, Breaker: &Breaker{FailureRatio: 0.1, MinTries: 1, Window: time.Minute, OpenFor: time.Second}})
		for range 5 {
			f, _ := by(after(time.Hour, "first", nil), after(time.Millisecond, "second", nil))
			if _, err := Do(t.Context(), p, f); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(events.of(DecidedOpen)) != 0 {
			t.Errorf("%v", events.decisions())
		}
	})
}

func TestFallback(t *testing.T) {
	p, events := policy(t, Options{})
	stale := func(_ context.Context, err error) (string, error) { return "stale: " + err.Error(), nil }
	f, _ := failing(1, errBoom)
	if v, err := DoOr(t.Context(), p, f, stale); v != "stale: boom" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := DoOr(t.Context(), p, f, stale); v != "done" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := DoOr(ctx, p, f, stale); v != "" || err != context.Canceled {
		t.Errorf("a caller that is gone gets %q, %v", v, err)
	}
	if e := events.of(DecidedFallback); len(e) != 1 || e[0].Err != errBoom {
		t.Errorf("%+v", e)
	}
}

func TestTargetsAreBounded(t *testing.T) {
	p, _ := policy(t, Options{MaxTargets: 2, Breaker: &Breaker{FailureRatio: 1, MinTries: 1, Window: time.Second, OpenFor: time.Hour}})
	a, b := p.For("a"), p.For("b")
	if p.For("a") != a {
		t.Error("the same target has two states")
	}
	p.For("c") // forgets b, which was used least recently
	if p.For("a") != a || p.For("b") == b {
		t.Error("not the least recently used target was forgotten")
	}
	if p.For("") != p || a.For("") != p {
		t.Error("no name is not the policy itself")
	}
	for i := range 10_000 {
		p.For(strings.Repeat("x", i%50) + string(rune('a'+i%26)))
	}
	if n := len(p.targets.byName); n != 2 || p.targets.order.Len() != 2 {
		t.Errorf("%d targets are kept, want 2", n)
	}
}
