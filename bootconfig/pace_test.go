package bootconfig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Each case states the shortest and the longest pause before the next fetch.
func TestPace(t *testing.T) {
	away := errors.New("away")
	full := func(wait time.Duration, failures int, answered bool) pace {
		return pace{refresh: time.Minute, wait: wait, failures: failures, answered: answered}
	}
	tests := map[string]struct {
		p             pace
		err           error
		changed       bool
		took          time.Duration
		from, to      time.Duration
		afterFailures int
	}{
		"an answer":                             {full(0, 0, true), nil, false, 0, 30 * time.Second, 90 * time.Second, 0},
		"a change without long poll":            {full(0, 0, true), nil, true, 0, 30 * time.Second, 90 * time.Second, 0},
		"a long poll that was held":             {full(time.Minute, 0, true), nil, false, time.Minute, 0, 5 * time.Second, 0},
		"a long poll that brought a change":     {full(time.Minute, 0, true), nil, true, time.Millisecond, 0, 5 * time.Second, 0},
		"a long poll of a centre without":       {full(time.Minute, 0, true), nil, false, time.Millisecond, 30 * time.Second, 90 * time.Second, 0},
		"the first failure of a start":          {full(0, 0, false), away, false, 0, 0, 500 * time.Millisecond, 1},
		"the fifth failure of a start":          {full(0, 4, false), away, false, 0, 0, 8 * time.Second, 5},
		"the hundredth failure of a start":      {full(0, 99, false), away, false, 0, 0, 5 * time.Minute, 100},
		"the first failure later":               {full(0, 0, true), away, false, 0, 0, time.Minute, 1},
		"the second failure later":              {full(0, 1, true), away, false, 0, 0, 2 * time.Minute, 2},
		"the hundredth failure later":           {full(0, 99, true), away, false, 0, 0, 5 * time.Minute, 100},
		"a refresh once a day, many failures":   {pace{refresh: 24 * time.Hour, failures: 1 << 30, answered: true}, away, false, 0, 0, 24 * time.Hour, 1<<30 + 1},
		"the centre says when":                  {full(0, 0, true), &RetryAfterError{2 * time.Minute, away}, false, 0, 2 * time.Minute, 3 * time.Minute, 1},
		"the centre says next year":             {full(0, 0, true), &RetryAfterError{8760 * time.Hour, away}, false, 0, time.Hour, time.Hour + time.Minute, 1},
		"the centre says yesterday":             {full(0, 0, true), fmt.Errorf("x: %w", &RetryAfterError{-24 * time.Hour, away}), false, 0, 0, time.Minute, 1},
		"an answer ends the row of failures":    {full(0, 7, true), nil, false, 0, 30 * time.Second, 90 * time.Second, 0},
		"a long poll at a small refresh is apt": {pace{refresh: time.Second, wait: time.Second, answered: true}, nil, true, 0, 0, 100 * time.Millisecond, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			lo, hi := tt.p, tt.p
			lo.random, hi.random = func() float64 { return 0 }, func() float64 { return 1 }
			if got := lo.next(tt.err, tt.changed, tt.took); got != tt.from {
				t.Errorf("earliest %v, want %v", got, tt.from)
			}
			if got := hi.next(tt.err, tt.changed, tt.took); got != tt.to {
				t.Errorf("latest %v, want %v", got, tt.to)
			}
			if lo.failures != tt.afterFailures {
				t.Errorf("%d failures, want %d", lo.failures, tt.afterFailures)
			}
		})
	}
}

var fleetSize = flag.Int("fleet", 2000, "processes of the test of a fleet; 10000 take a minute")

// Many processes hold a long poll when the server stops, for two seconds or for two minutes. When it is back,
// their calls come spread over time instead of all at once.
func TestAFleetDoesNotStormACentreThatRestarts(t *testing.T) {
	fleet := int64(*fleetSize)
	for _, away := range []time.Duration{2 * time.Second, 2 * time.Minute} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls, answers atomic.Int64
				var down atomic.Bool
				var ended atomic.Value // contains a channel
				ended.Store(make(chan struct{}))
				centre := script(func(ctx context.Context, r Request) (Document, error) {
					calls.Add(1)
					if down.Load() {
						return Document{}, errors.New("connection refused")
					}
					if r.Version == "" {
						return Document{"1", good(1)}, nil
					}
					hold := time.NewTimer(r.Wait)
					defer hold.Stop()
					select {
					case <-hold.C:
						answers.Add(1)
						return Document{}, ErrUnchanged
					case <-ended.Load().(chan struct{}):
						return Document{}, errors.New("EOF")
					case <-ctx.Done():
						return Document{}, ctx.Err()
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				for range fleet {
					if _, err := Open(ctx, Options[settings]{Provider: centre, LongPoll: time.Minute}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(30 * time.Second)
				if n := calls.Load(); n != 2*fleet {
					t.Errorf("%d calls before; want %d: a document and a long poll each", n, 2*fleet)
				}
				down.Store(true)
				close(ended.Load().(chan struct{}))
				var most int64
				for at := time.Duration(0); at < away+time.Minute; at += time.Second {
					if at == away {
						down.Store(false)
						ended.Store(make(chan struct{}))
					}
					before := calls.Load()
					time.Sleep(time.Second)
					most = max(most, calls.Load()-before)
				}
				// The first retries are spread evenly over a minute, which is a sixtieth of the fleet per
				// second. The second retries are spread over two minutes, which is half as many per second. The
				// limit allows for random variation: six standard deviations of a Poisson distribution.
				mean := float64(fleet) / 60 * 1.5
				if limit := mean + 6*math.Sqrt(mean); float64(most) > limit {
					t.Errorf("%d calls in one second; want at most %.0f", most, limit)
				}
				t.Logf("centre away for %v: at most %d calls in a second of %d processes", away, most, fleet)
				cancel()
			})
		})
	}
}
