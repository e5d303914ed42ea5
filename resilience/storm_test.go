package resilience

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// 100 clients, each with the budget of one process, call a server that is dead for 20 seconds.
func TestADeadServerGetsNoStorm(t *testing.T) {
	tests := map[string]struct {
		options BudgetOptions
		hedge   *Hedge
		every   time.Duration // mean time between the calls of a client
	}{
		"the process's budget, many calls": {ProcessBudget().options, nil, 100 * time.Millisecond},
		"the process's budget, few calls":  {ProcessBudget().options, nil, time.Second},
		"no ratio":                         {BudgetOptions{PerSecond: 2, Burst: 5}, nil, 100 * time.Millisecond},
		"no rate":                          {BudgetOptions{Ratio: 0.1, Burst: 5}, nil, 100 * time.Millisecond},
		"with hedges":                      {BudgetOptions{Ratio: 0.1, PerSecond: 1, Burst: 10}, &Hedge{Delay: time.Millisecond, Max: 2}, 100 * time.Millisecond},
	}
	for name, tt := range tests {
		bubble(t, name, func(t *testing.T) {
			const clients, lasts = 100, 20 * time.Second
			var calls, requests atomic.Int64
			var wg sync.WaitGroup
			for client := range clients {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(client), 7))
					p, _ := policy(t, Options{
						Idempotent: true, Budget: budget(t, tt.options), Hedge: tt.hedge, Start: lasts,
						Retry: &Retry{Tries: 10, MinDelay: time.Millisecond, MaxDelay: time.Second},
					})
					p.options.Observe = nil
					var mine sync.WaitGroup
					for began := time.Now(); time.Since(began) < lasts; time.Sleep(time.Duration(r.Int64N(int64(2 * tt.every)))) {
						calls.Add(1)
						left := lasts - time.Since(began)
						mine.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), min(left, 5*time.Second))
							defer cancel()
							Do(ctx, p, func(ctx context.Context) (int, error) {
								requests.Add(1)
								select {
								case <-time.After(2 * time.Millisecond):
								case <-ctx.Done():
								}
								return 0, errRefused
							})
						})
					}
					mine.Wait()
				})
			}
			wg.Wait()
			repeated := float64(requests.Load() - calls.Load())
			most := clients*(float64(tt.options.Burst)+tt.options.PerSecond*lasts.Seconds()) + tt.options.Ratio*float64(calls.Load())
			if repeated > most+0.5 { // 0.5 allows for rounding errors of the sum of ratios
				t.Errorf("%.0f requests beyond the %d calls; the budget is %.0f", repeated, calls.Load(), most)
			}
			if repeated < most/10 {
				t.Errorf("%.0f requests beyond the %d calls, of a budget of %.0f: the test does not come near it", repeated, calls.Load(), most)
			}
			t.Logf("%d calls, %.0f repeated, budget %.0f", calls.Load(), repeated, most)
		})
	}
}

// If many clients fail at the same moment, their retries are spread over the backoff.
func TestRetriesOfAFleetAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 1000
		var mu sync.Mutex
		at := map[time.Duration]int{} // number of retries in each 10 ms
		began := time.Now()
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				p, _ := policy(t, Options{Idempotent: true, Retry: &Retry{Tries: 2, MinDelay: time.Second, MaxDelay: time.Second}})
				first := true
				Do(t.Context(), p, func(context.Context) (int, error) {
					if !first {
						mu.Lock()
						at[time.Since(began)/(10*time.Millisecond)]++
						mu.Unlock()
					}
					first = false
					return 0, errRefused
				})
			})
		}
		wg.Wait()
		for when, n := range at {
			if n > 40 { // the mean is 10
				t.Errorf("%d of %d clients come back within the same 10 ms, %v after the failure", n, clients, when*10*time.Millisecond)
			}
		}
	})
}

func TestABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget(t, BudgetOptions{PerSecond: 2, Burst: 2})
		take := func(patience time.Duration) string {
			wait, ok := b.withdraw(patience)
			return fmt.Sprint(wait, " ", ok)
		}
		for i, want := range []string{"0s true", "0s true", "500ms true", "1s true", "0s false"} {
			if got := take(time.Second); got != want {
				t.Errorf("token %d: %s, want %s", i+1, got, want)
			}
		}
		time.Sleep(time.Hour) // the budget must not grow beyond Burst
		for i, want := range []string{"0s true", "0s true", "0s false"} {
			if got := take(0); got != want {
				t.Errorf("an hour later, token %d: %s, want %s", i+1, got, want)
			}
		}
		b = budget(t, BudgetOptions{Ratio: 0.5, Burst: 1})
		for i, want := range []string{"0s true", "0s false", "0s true"} {
			if got := take(time.Hour); got != want {
				t.Errorf("of a ratio, token %d: %s, want %s", i+1, got, want)
			}
			b.deposit()
			b.deposit()
			if i == 0 {
				b.tokens = 0
			}
		}
	})
}
