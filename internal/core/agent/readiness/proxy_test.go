package readiness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/test/process"
)

// A fake is the admin interface of an Envoy whose answers the test sets.
type fake struct {
	mu    sync.Mutex
	state string
	err   error
	stats map[string]uint64
	dump  string
	polls int
	delay time.Duration // delay of Ready's answer
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) Ready(context.Context) (bool, string, error) {
	f.mu.Lock()
	f.polls++
	live, state, delay, err := f.state == "LIVE", f.state, f.delay, f.err
	f.mu.Unlock()
	time.Sleep(delay)
	return live, state, err
}

func (f *fake) Stats(context.Context, string) (map[string]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats, f.err
}

func (f *fake) Get(context.Context, string, string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(f.dump), f.err
}

const (
	cds, lds    = "cluster_manager.cds.update_success", "listener_manager.lds.update_success"
	ldsRejected = "listener_manager.lds.update_rejected"
)

var accepted = map[string]uint64{cds: 1, lds: 1}

var errNoAnswer = errors.New("no answer")

// proxyOf returns a Proxy whose Envoy listens on ports.
func proxyOf(o ProxyOptions, ports ...uint16) *Proxy {
	if o.Stream == nil {
		o.Stream = func() Stream { return Stream{} }
	}
	p := NewProxy(o)
	p.listening = func() (missing []uint16, err error) {
		return slices.DeleteFunc(slices.Clone(p.o.Ports), func(port uint16) bool { return slices.Contains(ports, port) }), nil
	}
	return p
}

func TestReasonsOfAProxy(t *testing.T) {
	line := func(s string) []string { return []string{s} }
	tests := map[string]struct {
		envoy  *fake
		stream Stream
		ports  []uint16
		lines  []string
		want   []string
		ready  bool
	}{
		"all is there": {envoy: &fake{state: "LIVE", stats: accepted}, ports: []uint16{15001, 15006}, ready: true},
		"accepted, and the stream is broken since": {envoy: &fake{state: "LIVE", stats: map[string]uint64{cds: 1, lds: 1}},
			ports: []uint16{15001, 15006}, ready: true},
		"Envoy does not answer": {envoy: &fake{err: errors.New("connection refused")}, want: []string{
			"no-control-plane: not connected to the control plane yet",
			"envoy-not-live: Envoy does not answer yet: connection refused",
			"configuration-not-accepted: no configuration yet",
			"listener-not-bound: Envoy does not listen on 15001, 15006"}},
		"the control plane is not there": {envoy: &fake{state: "PRE_INITIALIZING", stats: map[string]uint64{}}, stream: Stream{Reason: "cp:15012 is not reached"}, want: []string{
			"no-control-plane: cp:15012 is not reached",
			"envoy-not-live: Envoy says PRE_INITIALIZING",
			"configuration-not-accepted: no clusters yet; no listeners yet",
			"listener-not-bound: Envoy does not listen on 15001, 15006"}},
		"the control plane breaks the stream off": {envoy: &fake{state: "LIVE", stats: map[string]uint64{}}, ports: []uint16{15001, 15006},
			lines: line("DeltaAggregatedResources gRPC config stream to xds-grpc closed since 31s ago: 14, no healthy upstream"), want: []string{
				"no-control-plane: no stream to cp:15012: no healthy upstream",
				"configuration-not-accepted: no clusters yet; no listeners yet"}},
		"the control plane refuses the token": {envoy: &fake{state: "LIVE"}, ports: []uint16{15001, 15006},
			lines: line("DeltaAggregatedResources gRPC config stream to xds-grpc closed: 16, no such token"), want: []string{
				"identity-refused: cp:15012 and this proxy do not accept one another: no such token",
				"no-control-plane: no stream to cp:15012: see identity-refused",
				"configuration-not-accepted: no clusters yet; no listeners yet"}},
		"another server in the control plane's place": {envoy: &fake{state: "LIVE"}, stream: Stream{Refused: true, Reason: "its certificate is another's"}, ports: []uint16{15001, 15006}, want: []string{
			"identity-refused: its certificate is another's",
			"no-control-plane: no stream to cp:15012: see identity-refused",
			"configuration-not-accepted: no clusters yet; no listeners yet"}},
		"connected, and nothing came": {stream: Stream{Connected: true}, envoy: &fake{state: "INITIALIZING", stats: map[string]uint64{cds: 1}}, want: []string{
			"envoy-not-live: Envoy says INITIALIZING",
			"configuration-not-accepted: no listeners yet",
			"listener-not-bound: Envoy does not listen on 15001, 15006"}},
		"a listener was rejected, by the log": {stream: Stream{Connected: true}, envoy: &fake{state: "LIVE", stats: map[string]uint64{cds: 1, ldsRejected: 1}}, ports: []uint16{15006},
			lines: line("gRPC config for type.googleapis.com/envoy.config.listener.v3.Listener rejected: Error adding/updating listener(s) outbound:\n unable to open file"), want: []string{
				"configuration-not-accepted: Envoy rejected the listeners: Error adding/updating listener(s) outbound: unable to open file",
				"listener-not-bound: Envoy does not listen on 15001"}},
		"a listener was rejected, by the dump": {stream: Stream{Connected: true}, envoy: &fake{state: "LIVE", stats: map[string]uint64{cds: 1, ldsRejected: 1},
			dump: `{"configs": [{"name": "a"}, {"name": "b", "error_state": {"details": "bad b"}}]}`}, ports: []uint16{15006, 15001}, want: []string{
			"configuration-not-accepted: Envoy rejected the listeners: bad b"}},
		"a listener was rejected, without a reason": {stream: Stream{Connected: true}, envoy: &fake{state: "LIVE", stats: map[string]uint64{cds: 1, ldsRejected: 1}, dump: "no JSON"}, ports: []uint16{15006, 15001}, want: []string{
			"configuration-not-accepted: Envoy rejected the listeners: it does not say why"}},
		"LIVE, and nothing listens": {envoy: &fake{state: "LIVE", stats: accepted}, want: []string{
			"listener-not-bound: Envoy does not listen on 15001, 15006"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := New(Options{Conditions: []Condition{Identity, ControlPlane, Envoy, Configuration, Listeners}})
			o := ProxyOptions{Board: b, Admin: tt.envoy, ControlPlane: "cp:15012", Stream: func() Stream { return tt.stream }}
			p := proxyOf(o, tt.ports...)
			for _, l := range tt.lines {
				p.LogLine(envoy.Line{Message: l})
			}
			accepted := false
			if ready := p.look(t.Context(), &accepted); ready != tt.ready {
				t.Errorf("ready: %v", ready)
			}
			var got []string
			for _, r := range b.Status(Outbound).Reasons {
				got = append(got, r.Code+": "+r.Message)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneEnvoyAfterAnother(t *testing.T) {
	f := &fake{state: "INITIALIZING", stats: accepted}
	b := New(Options{Conditions: []Condition{Envoy, Listeners, Configuration}})
	// Within the test, only the log line makes the Proxy look again.
	p := proxyOf(ProxyOptions{Board: b, Admin: f, slow: time.Hour}, 15001, 15006)
	first, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Ready(first) }()
	await(t, b, "envoy-not-live: Envoy says INITIALIZING")
	f.set(func(f *fake) { f.state = "LIVE" })
	p.LogLine(envoy.Line{Message: "upstream: something else"})
	p.LogLine(envoy.Line{Message: envoy.ReadyMessage})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := b.Status(Outbound); !s.Ready {
		t.Errorf("after Ready: %v", s)
	}
	end()
	await(t, b, "envoy-not-live: Envoy has ended")

	f.set(func(f *fake) { f.err = errors.New("no such socket") })
	second, endWith := context.WithCancelCause(t.Context())
	go func() { done <- p.Ready(second) }()
	await(t, b, "envoy-not-live: Envoy does not answer yet: no such socket")
	over := errors.New("the child has ended")
	endWith(over)
	if err := <-done; !errors.Is(err, over) {
		t.Errorf("a child that was never ready: %v", err)
	}

	f.set(func(f *fake) { f.err = nil })
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := b.Status(Outbound); !s.Ready {
		t.Errorf("the third: %v", s)
	}
}

// await waits for a reason.
func await(t *testing.T, b *Board, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	var last Status
	for last = range b.Subscribe(ctx, Outbound) {
		if strings.Contains(last.String(), reason) {
			return
		}
	}
	t.Fatalf("never seen: %s; last: %v", reason, last)
}

func TestALiveEnvoyIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{state: "LIVE", stats: accepted}
		b := New(Options{Conditions: []Condition{Envoy}})
		p := proxyOf(ProxyOptions{Board: b, Admin: f, slow: time.Millisecond}, 15001, 15006)
		if err := p.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.LogLine(envoy.Line{Message: envoy.ReadyMessage})
		time.Sleep(time.Minute + time.Second)
		polls := 0
		f.set(func(f *fake) { polls = f.polls })
		if polls != 31 { // one poll when Envoy got ready, and one every two seconds
			t.Errorf("polled %d times", polls)
		}
	})
}

func TestAnEnvoyThatHangsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{state: "LIVE", stats: accepted}
		b := New(Options{Conditions: []Condition{Envoy}})
		p := proxyOf(ProxyOptions{Board: b, Admin: f}, 15001, 15006)
		ctx, end := context.WithCancel(t.Context())
		if err := p.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		hang := func(d time.Duration) {
			f.set(func(f *fake) { f.err, f.delay = errNoAnswer, time.Second })
			time.Sleep(d)
		}
		answer := func(state string) {
			f.set(func(f *fake) { f.state, f.err, f.delay = state, nil, 0 })
			time.Sleep(4 * time.Second)
		}
		hang(2900 * time.Millisecond)
		answer("LIVE")
		if first, _ := b.First(Outbound); !b.Status(Outbound).Since.Equal(first) {
			t.Error("it was slow once, and was taken for one that hangs")
		}
		hang(5 * time.Second)
		if s := b.Status(Outbound).String(); !strings.HasPrefix(s, "envoy-not-live: Envoy runs, and its admin interface has not answered for 3s") {
			t.Errorf("after 5s: %s", s)
		}
		answer("LIVE")
		if s := b.Status(Outbound); !s.Ready {
			t.Errorf("it answers again: %v", s)
		}
		answer("DRAINING")
		if s := b.Status(Outbound).String(); s != "envoy-not-live: Envoy says DRAINING" {
			t.Errorf("draining: %s", s)
		}
		hang(time.Minute)
		end()
		synctest.Wait()
		answer("LIVE")
		if s := b.Status(Outbound).String(); s != "envoy-not-live: Envoy has ended" {
			t.Errorf("after its end: %s", s)
		}
	})
}

// An Envoy that gets too little processor time to answer still serves, and does not count as hung.
func TestAnEnvoyThatIsStarvedIsReady(t *testing.T) {
	for name, tt := range map[string]struct {
		progress func(time.Duration) (time.Duration, bool) // at a time after the start
		after    time.Duration                             // when Envoy counts as not ready
	}{
		"stopped":                   {func(time.Duration) (time.Duration, bool) { return time.Second, false }, silence},
		"it waits for a processor":  {func(time.Duration) (time.Duration, bool) { return time.Second, true }, starvation},
		"it runs now and then":      {func(d time.Duration) (time.Duration, bool) { return d / 100, false }, starvation},
		"it ran, and hangs then":    {func(d time.Duration) (time.Duration, bool) { return min(d, 10*time.Second), false }, 10 * time.Second},
		"what it does is not known": {func(time.Duration) (time.Duration, bool) { return 0, false }, silence},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{state: "LIVE", stats: accepted}
				b := New(Options{Conditions: []Condition{Envoy}})
				begin := time.Now()
				p := proxyOf(ProxyOptions{Board: b, Admin: f, Progress: func() (time.Duration, bool) { return tt.progress(time.Since(begin)) }}, 15001, 15006)
				if err := p.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.set(func(f *fake) { f.err, f.delay = errNoAnswer, time.Second })
				time.Sleep(tt.after)
				if s := b.Status(Outbound); !s.Ready {
					t.Errorf("before %s: %v", tt.after, s)
				}
				time.Sleep(every + silence)
				if s := b.Status(Outbound); s.Ready {
					t.Errorf("%s later it is ready", every+silence)
				}
			})
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add("DeltaAggregatedResources gRPC config stream to xds-grpc closed: 14, a")
	f.Add("gRPC config for type.googleapis.com/x rejected: y")
	f.Fuzz(func(t *testing.T, s string) {
		if n, reason := read(envoy.Line{Message: s}); len(reason) > reasonLimit+3 || n == nothing && reason != "" {
			t.Errorf("%v %q", n, reason)
		}
		dumpedError([]byte(s))
	})
}

// An Envoy is ready without a port that is to be closed for good.
func TestPortThatIsLeft(t *testing.T) {
	p := NewProxy(ProxyOptions{Board: New(Options{}), Ports: []uint16{1, 2}})
	p.Leave(2)
	if got := p.bound(); got != "Envoy does not listen on 1" {
		t.Errorf("%q; want port 1 alone", got)
	}
}
