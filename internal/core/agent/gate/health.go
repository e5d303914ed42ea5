package gate

import (
	"context"
	"fmt"
	"time"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// watchHealth starts the probes and the postStart hook. The command runs by now.
func (g *gate) watchHealth() {
	if g.o.PostStart != nil {
		g.background(func(ctx context.Context) {
			if err := g.o.PostStart.run(ctx); err != nil {
				g.post(func() { g.endChild(HookFailed, "the postStart hook of %s failed: %v", g.o.Place.Container, err) })
			}
		})
	}
	if g.o.LivenessDelay > 0 {
		g.after(g.o.LivenessDelay, func() { g.update(func(r *state.Record) { r.Early = false }) })
	}
	if g.o.StartupProbe == nil && g.o.Probe == nil {
		return
	}
	g.background(func(ctx context.Context) {
		if g.o.StartupProbe != nil && !g.startUp(ctx, g.o.StartupProbe) {
			return
		}
		if g.o.Probe != nil {
			g.o.Probe.follow(ctx, func(healthy bool) { g.post(func() { g.setHealth(healthy) }) })
		}
	})
}

// update publishes a change that a background task found, unless the gate has ended.
func (g *gate) update(change func(*state.Record)) {
	if !g.over {
		g.publish(change)
	}
}

func (g *gate) setHealth(healthy bool) {
	if g.over || g.child == nil {
		return
	}
	if healthy == g.writer.Record().Healthy {
		return
	}
	what := startup.IsHealthy
	if !healthy {
		what = startup.IsUnhealthy
	}
	g.note(what, "")
	g.publish(func(r *state.Record) { r.Healthy = healthy })
}

// startUp runs a startup probe as the kubelet does, but its time limit counts from the start of the command. It
// reports whether the probe succeeded in time. If it did not, the command is ended.
func (g *gate) startUp(ctx context.Context, p *Probe) bool {
	limit := time.Duration(p.InitialDelaySeconds+p.PeriodSeconds*p.FailureThreshold) * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	if p.Await(ctx, func(err error) { last = err }) {
		g.post(func() { g.update(func(r *state.Record) { r.StartingUp, r.StartedUp = false, true }) })
		return true
	}
	if g.ctx.Err() == nil {
		g.post(func() {
			g.endChild(NeverStarted, "the startup probe of %s did not succeed within %s: %v", g.o.Place.Container, limit, last)
		})
	}
	return false
}

// Await repeats the probe until it succeeds, with growing pauses, and calls failed with each error. It returns
// false if ctx ends first.
func (p *Probe) Await(ctx context.Context, failed func(error)) bool {
	if !sleep(ctx, time.Duration(p.InitialDelaySeconds)*time.Second) {
		return false
	}
	for tries := 0; ; tries++ {
		err := p.Try(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		failed(err)
		if !sleep(ctx, p.pause(tries)) {
			return false
		}
	}
}

// follow repeats the probe until ctx ends, and calls changed when the command's health changes.
func (p *Probe) follow(ctx context.Context, changed func(bool)) {
	if !sleep(ctx, time.Duration(p.InitialDelaySeconds)*time.Second) {
		return
	}
	t := tally{success: p.SuccessThreshold, failure: p.FailureThreshold}
	healthy, ever := false, 0
	for {
		now := t.add(p.Try(ctx) == nil)
		if ctx.Err() != nil {
			return
		}
		if now != healthy {
			healthy = now
			changed(now)
		}
		pause := time.Duration(p.PeriodSeconds) * time.Second
		if !healthy {
			pause = p.pause(ever)
			ever++
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// sleep waits for d and returns true, or returns false as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// run runs the hook with the kubelet's semantics: an exec hook has no timeout, and any answer to an httpGet is
// a success, whatever its status (kubelet v1.34.4 pkg/kubelet/lifecycle/handlers.go).
func (h *Hook) run(ctx context.Context) error {
	switch {
	case h.Exec != nil:
		return h.Exec.run(ctx)
	case h.HTTPGet != nil:
		_, err := h.HTTPGet.get(ctx)
		return err
	case !sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second):
		return fmt.Errorf("the container ended before")
	}
	return nil
}
