package drain

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwait(t *testing.T) {
	type at = time.Duration
	// open says how many sockets there are, as time goes on.
	open := func(until at) func() (int, error) {
		start := time.Now()
		return func() (int, error) {
			if time.Since(start) < until {
				return 1, nil
			}
			return 0, nil
		}
	}
	tests := map[string]struct {
		options Options
		ended   at // 0: nothing proves it
		cancel  at
		sockets at // the last one closes then
		broken  bool
		want    Reason
		after   at
	}{
		"proof ends the wait at once":                              {options: Options{Least: 5 * time.Second}, ended: time.Millisecond, sockets: time.Hour, want: Proved, after: time.Millisecond},
		"an application without sockets gets the drain time":       {options: Options{Least: 5 * time.Second}, want: Silent, after: 5 * time.Second},
		"one with a socket gets as long as it has it":              {options: Options{Least: 5 * time.Second}, sockets: 8 * time.Second, want: Silent, after: 8 * time.Second},
		"proof counts while sockets are looked at":                 {options: Options{Least: time.Second}, ended: 3 * time.Second, sockets: time.Hour, want: Proved, after: 3 * time.Second},
		"what cannot be looked at is no evidence":                  {options: Options{Least: time.Second}, broken: true, cancel: 9 * time.Second, want: Interrupted, after: 9 * time.Second},
		"on zero connections: after the minimum, not the longer":   {options: Options{Least: 50 * time.Second, OnZero: true, Minimum: 2 * time.Second}, want: Idle, after: 2 * time.Second},
		"on zero connections: as long as there are some":           {options: Options{OnZero: true, Minimum: 2 * time.Second}, sockets: 4 * time.Second, want: Idle, after: 4 * time.Second},
		"on zero connections: an Envoy that does not answer stays": {options: Options{OnZero: true}, broken: true, cancel: time.Second, want: Interrupted, after: time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				var ended chan struct{}
				if tt.ended > 0 {
					ended = make(chan struct{})
					time.AfterFunc(tt.ended, func() { close(ended) })
				}
				count := open(tt.sockets)
				if tt.broken {
					count = func() (int, error) { return 0, errors.New("broken") }
				}
				begin := time.Now()
				got := Await(ctx, Evidence{Ended: ended, Sockets: count,
					Connections: func(context.Context) (int, error) { return count() }}, tt.options)
				if took := time.Since(begin); got != tt.want || took != tt.after {
					t.Errorf("Await: %q after %s, want %q after %s", got, took, tt.want, tt.after)
				}
			})
		})
	}
}
