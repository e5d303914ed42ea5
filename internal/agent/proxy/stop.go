package proxy

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"time"

	"outrider.dev/internal/agent/drain"
	"outrider.dev/internal/agent/envoy"
	"outrider.dev/internal/agent/readiness"
	"outrider.dev/internal/agent/sockets"
	"outrider.dev/internal/agent/state"
	"outrider.dev/internal/capture/release"
	"outrider.dev/startup"
)

// drainInbound lets Envoy serve new inbound connections for its drain time, and sees to it
// that they are refused after that: not held by the standby, nor parked by the kernel, since
// nobody will come for them.
func (a *agent) drainInbound(ctx context.Context) error {
	if err := a.admin.Drain(ctx, envoy.DrainInbound); err != nil {
		return err
	}
	if interception(a.config) == none {
		return nil
	}
	// The standby leaves before Envoy does, and so takes nothing that Envoy would not.
	const before = 50 * time.Millisecond
	inbound := a.config.Ports.Inbound
	for _, step := range []struct {
		after time.Duration
		do    func()
	}{
		{a.config.Envoy.DrainTime - before, func() { a.standbys.leave(inbound) }},
		{2 * before, func() { a.problem("refusing inbound connections", release.Ports(inbound)) }},
	} {
		select {
		case <-time.After(step.after):
			step.do()
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// awaitDrained returns when the applications no longer need the proxy.
func (a *agent) awaitDrained(ctx context.Context) {
	end := a.journal.Begin("draining", "until the applications have ended")
	s := a.stopOptions()
	reason := drain.Await(ctx, drain.Evidence{
		Ended: a.ended(ctx), Sockets: othersSockets, Connections: a.connections,
	}, drain.Options{Least: s.Drain, OnZero: s.OnZero, Minimum: s.Minimum})
	end(string(reason), reason == drain.Interrupted)
	a.log.Info("drained", "reason", string(reason))
}

func othersSockets() (int, error) { return sockets.Others(uint32(os.Getuid())) }

// ended is closed when all applications have provably ended: by the kubelet's order, or by
// what their gates say. It is nil where nothing can prove it.
func (a *agent) ended(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	if a.config.Stop.Ordered {
		close(done)
		return done
	}
	if a.apps == nil {
		return nil
	}
	go func() {
		if a.apps.await(ctx, state.Seen.Gone) {
			close(done)
		}
	}()
	return done
}

// connections counts Envoy's own from and to others: all listeners but the agent's.
// Istio's rule: reference istio-surface, section 2.6.
func (a *agent) connections(ctx context.Context) (int, error) {
	stats, err := a.admin.Stats(ctx, `^listener\..*\.downstream_cx_active$`)
	if err != nil {
		return 0, err
	}
	sum := 0
	for name, n := range stats {
		if !strings.Contains(name, "worker_") && !strings.HasPrefix(name, "listener.admin.") && !strings.Contains(name, "_15090.") {
			sum += int(n)
		}
	}
	return sum, nil
}

// place is the proxy's place among the states of the pod's containers.
func (a *agent) place() state.Place {
	return state.Place{Container: container, States: a.config.States, Own: a.config.Own}
}

// container is the name of our container in every pod.
const container = "outrider-proxy"

// publish tells the gates how far the proxy is, in the volume that they share.
func (a *agent) publish(ctx context.Context) {
	if !directory(a.config.Own) {
		return
	}
	w, err := state.Open(a.place(), state.Record{Phase: state.Running})
	if err != nil {
		a.problem("publishing the proxy's state", err)
		return
	}
	defer w.Close()
	for s := range a.board.Subscribe(ctx, readiness.Outbound) {
		was := w.Record().Healthy
		if err := w.Update(func(r *state.Record) { r.Healthy = s.Ready }); err != nil {
			a.problem("publishing the proxy's state", err)
		}
		switch {
		case s.Ready && !was:
			// Who is released by another way may be faster than this line is written.
			w.NoteAt(s.Since, startup.IsHealthy, 0, "")
		case !s.Ready && was:
			w.NoteAt(s.Since, startup.IsUnhealthy, 0, s.String())
		}
	}
}

// captured proves that connections come to the proxy, once somebody listens.
func (a *agent) captured(ctx context.Context) {
	if !a.provesCapture() {
		return
	}
	check := readiness.Capture{Inbound: true, Outbound: true, IPv6: len(a.config.Pod.Addresses) > 0 && isIPv6(a.config.Pod.Addresses[0])}
	go readiness.Keep(ctx, a.board, readiness.CaptureRules, readiness.Rates{}, check.Check)
}

// provesCapture says whether it can be proved: the proof needs somebody on the capture
// ports who is not Envoy.
func (a *agent) provesCapture() bool { return interception(a.config) != none && !a.config.NoStandby }

func isIPv6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }
