package proxy

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"outrider.dev/internal/core/agent/config"
)

func TestAwaitEvidence(t *testing.T) {
	type at = time.Duration
	// open returns a counter of sockets that is 1 until the given time, and then 0.
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
		limits  drainLimits
		ended   at // when the applications provably end; 0: no proof
		cancel  at
		sockets at // when the last socket closes
		broken  bool
		want    drainReason
		after   at
	}{
		"proof ends the wait at once":                              {limits: drainLimits{least: 5 * time.Second}, ended: time.Millisecond, sockets: time.Hour, want: proved, after: time.Millisecond},
		"an application without sockets gets the drain time":       {limits: drainLimits{least: 5 * time.Second}, want: silent, after: 5 * time.Second},
		"one with a socket gets as long as it has it":              {limits: drainLimits{least: 5 * time.Second}, sockets: 8 * time.Second, want: silent, after: 8 * time.Second},
		"proof counts while sockets are looked at":                 {limits: drainLimits{least: time.Second}, ended: 3 * time.Second, sockets: time.Hour, want: proved, after: 3 * time.Second},
		"what cannot be looked at is no evidence":                  {limits: drainLimits{least: time.Second}, broken: true, cancel: 9 * time.Second, want: interrupted, after: 9 * time.Second},
		"on zero connections: after the minimum, not the longer":   {limits: drainLimits{least: 50 * time.Second, onZero: true, minimum: 2 * time.Second}, want: idle, after: 2 * time.Second},
		"on zero connections: as long as there are some":           {limits: drainLimits{onZero: true, minimum: 2 * time.Second}, sockets: 4 * time.Second, want: idle, after: 4 * time.Second},
		"on zero connections: an Envoy that does not answer stays": {limits: drainLimits{onZero: true}, broken: true, cancel: time.Second, want: interrupted, after: time.Second},
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
				got := awaitEvidence(ctx, evidence{ended: ended, sockets: count,
					connections: func(context.Context) (int, error) { return count() }}, tt.limits)
				if took := time.Since(begin); got != tt.want || took != tt.after {
					t.Errorf("awaitEvidence: %q after %s, want %q after %s", got, took, tt.want, tt.after)
				}
			})
		})
	}
}

// The shown lines include the cause of a crash, however many stack frames follow it.
func TestShownTailSaysWhatHappened(t *testing.T) {
	before := []string{"listener #1 added", `{"level":"critical","component":"backtrace","message":"Caught Segmentation fault, suspect faulting address 0x0"}`}
	frames := slices.Repeat([]string{`{"level":"critical","component":"backtrace","message":"#12: [0x55adf8f26724]"}`}, 64)
	state := slices.Repeat([]string{"    'content-type', 'application/grpc'"}, 90)
	if got := shownTail(slices.Concat(before, frames, state)); !slices.Equal(got, before) {
		t.Errorf("shown: %q", got)
	}
	if got := shownTail(slices.Repeat([]string{"a line"}, 100)); len(got) != shown {
		t.Errorf("%d lines of 100 are shown", len(got))
	}
}

// An outbound connection is handed from the capture's listener to the one of its destination. It counts there too while
// its first bytes are to come: without them, it would be cut.
func TestCountsOfADirection(t *testing.T) {
	ports := config.Ports{Outbound: 15001, Inbound: 15006, RelayInbound: 15016, Prometheus: 15090}
	stats := map[string]uint64{
		"http.outbound.downstream_rq_active": 1, "http.outbound.downstream_cx_active": 20, "listener.0.0.0.0_15001.downstream_pre_cx_active": 300,
		"http.inbound.downstream_rq_active": 2, "http.inbound.downstream_cx_active": 40, "listener.0.0.0.0_15006.downstream_pre_cx_active": 600,
		"listener.0.0.0.0_80.downstream_pre_cx_active": 10_000, "listener.10.96.0.10_443.downstream_pre_cx_active": 20_000,
		"listener.127.0.0.1_15016.downstream_pre_cx_active": 30_000,
		"listener.0.0.0.0_15090.downstream_pre_cx_active":   9, "listener.admin.downstream_pre_cx_active": 9,
		"http.admin.downstream_rq_active": 9, "http.stats.downstream_cx_active": 9, "listener.envoy_internal_late.downstream_pre_cx_active": 5000,
	}
	for d, want := range map[direction][2]int{{name: "outbound"}: {30_301, 5020}, {name: "inbound"}: {30_602, 5040}} { // the order does not matter
		if requests, connections := d.count(ports, stats); requests != want[0] || connections != want[1] {
			t.Errorf("%s: %d requests and %d connections, want %v", d.name, requests, connections, want)
		}
	}
}
