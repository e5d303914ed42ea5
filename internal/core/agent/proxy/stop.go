package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/sockets"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/agent/supervise"
	"outrider.dev/internal/core/capture"
	"outrider.dev/startup"
)

// drainInbound lets Envoy serve new inbound connections for the drain time, but not after the applications have
// closed their listeners, and then makes the kernel refuse them. The agent measures the drain time itself: Envoy's own drain time is fixed at its start, while
// drainDuration can change.
func (a *agent) drainInbound(ctx context.Context) error {
	if err := a.discourage(ctx); err != nil || a.leaving.replaced() {
		return err // awaitReplaceable does the rest
	}
	limit, cancel := context.WithTimeout(ctx, a.current.get().Envoy.DrainTime)
	defer cancel()
	a.awaitDeaf(limit)
	return a.refuseInbound(ctx)
}

// refuseEarly makes the kernel refuse new inbound connections when the applications have closed their listeners, also
// before SIGTERM: a native sidecar gets that only after the applications have ended.
func (a *agent) refuseEarly(ctx context.Context) {
	select {
	case <-a.leaving.begun:
	case <-ctx.Done():
		return
	}
	a.awaitDeaf(ctx)
	a.problem("refusing inbound connections", a.refuseInbound(ctx))
}

// refuseInbound lets Envoy take the connections that it has accepted, and makes the kernel refuse new ones.
func (a *agent) refuseInbound(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	if inbound := a.config.Ports.Inbound; interception(a.config) != none {
		a.standbys.leave(inbound)
		a.awaitDetected(ctx, inbound)
	}
	return a.closeInbound(ctx, true)
}

// awaitDeaf waits until nothing in the pod listens for TCP but the proxy itself, or until ctx ends. Envoy would accept
// connections that nothing can serve, while clients take a refused connection elsewhere. Applications may have the
// proxy's user: in TPROXY mode it is root.
func (a *agent) awaitDeaf(ctx context.Context) {
	await(ctx, socketPoll, func() bool {
		own := []int{os.Getpid()}
		if envoy := a.super.PID(); envoy != 0 {
			own = append(own, envoy)
		}
		n, err := sockets.Listeners(uint32(os.Getuid()), own...)
		return err == nil && n == 0
	})
}

// closeInbound stops accepting inbound connections. If refuse is true, no proxy will serve new connections, so
// they are refused: neither does the standby hold them, nor does the kernel park them. Otherwise the kernel
// parks them for the next proxy.
func (a *agent) closeInbound(ctx context.Context, refuse bool) error {
	inbound, captured := a.config.Ports.Inbound, interception(a.config) != none
	if captured {
		a.standbys.leave(inbound) // before Envoy closes its sockets, so that the standby accepts nothing after that
	}
	a.proxy.Leave(inbound)
	err := a.admin.Drain(ctx, envoy.CloseInbound)
	if captured && refuse {
		// Release fails if the rules do not park connections. Then connections are refused anyway.
		var refused *capture.NotReleasedError
		if e := capture.Release(inbound); !errors.As(e, &refused) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// awaitDetected waits until Envoy has detected the protocol of each connection on a port. When Envoy
// closes a listener, it resets the connections whose protocol is not detected.
func (a *agent) awaitDetected(ctx context.Context, port uint16) {
	limit, cancel := context.WithTimeout(ctx, detectTime)
	defer cancel()
	filter := fmt.Sprintf(`^listener\..*_%d\.downstream_pre_cx_active$`, port)
	await(limit, settle, func() bool {
		stats, err := a.admin.Stats(limit, filter)
		return a.gone(ctx) || err == nil && !slices.ContainsFunc(slices.Collect(maps.Values(stats)), func(n uint64) bool { return n > 0 })
	})
}

// detectTime limits awaitDetected. It is longer than Envoy waits for the first bytes of a silent
// caller, after which it treats the connection as plain text.
const detectTime = 1500 * time.Millisecond

// leaving tracks the agent's stop.
type leaving struct {
	served    atomic.Bool               // an Envoy was ready once
	message   atomic.Pointer[string]    // termination message: what was still in use
	announced atomic.Pointer[time.Time] // when the replacement of this container was announced

	once  sync.Once
	begun chan struct{} // closed when the pod begins to stop
	at    time.Time     // when begun was closed
}

// begin is called when the pod begins to stop, by SIGTERM or by the preStop hook of a native sidecar.
func (l *leaving) begin() {
	l.once.Do(func() {
		l.at = time.Now()
		close(l.begun)
	})
}

// write writes the termination message, if there is one.
func (l *leaving) write(file string) error {
	message := l.message.Load()
	if message == nil || file == "" {
		return nil
	}
	return os.WriteFile(file, []byte(supervise.Message(*message, nil)), 0o644)
}

// unneeded is the reason to end a proxy that was never ready. A caller may still come later, but for that
// caller nothing changes: the proxy did not serve before either.
const unneeded drainReason = "it was never ready, and no client waits for it"

// awaitDrained returns when the applications no longer need the proxy. A proxy that was never
// ready may be needed, too: an application may run already, and its connections wait in the
// standby.
func (a *agent) awaitDrained(ctx context.Context) {
	if a.leaving.replaced() {
		a.awaitReplaceable(ctx)
		return
	}
	begin, seen, was := time.Now(), a.need(), a.board.Status(readiness.Outbound)
	end := a.journal.Begin("draining", "until the applications have ended; "+seen.String())
	reason := unneeded
	if a.leaving.served.Load() || !seen.none() {
		s := a.stopOptions()
		reason = awaitEvidence(ctx, evidence{
			ended: a.ended(ctx), sockets: othersSockets, connections: a.connections,
		}, drainLimits{least: s.Drain, onZero: s.OnZero, minimum: s.Minimum})
	}
	outcome, cut := string(reason), reason == interrupted
	if !cut && reason != unneeded {
		// Close inbound, or callers that keep sending would prolong awaitFlushed. If an application
		// still has a socket, it lives and only the proxy is restarted: its callers are parked.
		n, err := othersSockets()
		_ = a.closeInbound(ctx, err == nil && n == 0) // an error does not matter: Envoy may be dead, and is killed next
		if reason == proved {
			limit, cancel := context.WithDeadline(ctx, a.leaving.at.Add(learned))
			a.awaitAnswers(limit)
			cancel()
		}
		if left := a.awaitFlushed(ctx); left > 0 {
			outcome += fmt.Sprintf("; not passed on, since the receivers do not read: %d bytes", left)
		}
	}
	if cut {
		outcome += "; left: " + a.need().String()
	}
	end(outcome, cut)
	a.log.Info("drained", "reason", string(reason), "seen", seen.String(), "outcome", outcome)
	never := !a.leaving.served.Load()
	if cut || never && (reason == silent || reason == idle) {
		text := fmt.Sprintf("waited %s until the applications have ended (%s): %s", time.Since(begin).Round(time.Millisecond), seen, outcome)
		if never {
			text = fmt.Sprintf("stopped before it was ready (%s); %s", was, text)
		}
		a.leaving.message.Store(&text)
	}
}

// A need counts the signs that the proxy may still be needed.
type need struct {
	held    int // connections in the standby
	sockets int // of the pod's other users
	err     error
}

func (a *agent) need() need {
	c := a.standbys.counts()
	sockets, err := othersSockets()
	return need{held: c.Held + c.Relaying, sockets: sockets, err: err}
}

func (n need) none() bool { return n == (need{}) }

func (n need) String() string {
	if n.err != nil {
		return fmt.Sprintf("connections held: %d, sockets of other users: not known: %v", n.held, n.err)
	}
	return fmt.Sprintf("connections held: %d, sockets of other users: %d", n.held, n.sockets)
}

func othersSockets() (int, error) { return sockets.Others(uint32(os.Getuid())) }

// ended returns a channel that is closed when all applications have provably ended: by the
// kubelet's order, or by the states that their gates publish. It is nil if neither can prove it.
// An application whose gate still waits for a proxy that was never ready counts as ended.
func (a *agent) ended(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	if a.config.Stop.Ordered {
		close(done)
		return done
	}
	if a.apps == nil {
		return nil
	}
	needless := func(s state.Seen) bool {
		return s.Gone() || s.Phase == state.Waiting && !a.leaving.served.Load()
	}
	go func() {
		if a.apps.await(ctx, needless) {
			close(done)
		}
	}()
	return done
}

// connections counts Envoy's connections, and those in the standby that wait for an Envoy. This is
// Istio's rule.
func (a *agent) connections(ctx context.Context) (int, error) {
	n, err := a.active(ctx)
	return n + a.standbys.counts().Held, err
}

// active counts Envoy's connections on all listeners except the admin and metrics ports. It includes
// connections whose protocol Envoy has not detected yet.
func (a *agent) active(ctx context.Context) (sum int, err error) {
	stats, err := a.admin.Stats(ctx, `^listener\..*\.downstream_(pre_)?cx_active$`)
	if err != nil {
		return 0, err
	}
	for name, n := range stats {
		if !strings.Contains(name, "worker_") && !isOwn(name, a.config.Ports) {
			sum += int(n)
		}
	}
	return sum, nil
}

// place names the directories in which the proxy publishes its state and reads the states of other containers.
func (a *agent) place() state.Place {
	return state.Place{Container: contract.ProxyContainer, States: a.config.States, Own: a.config.Own}
}

// publish keeps the proxy's record in the volume that the gates read.
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
	var callers sync.WaitGroup
	callers.Go(func() { a.publishCallers(ctx, w) })
	defer callers.Wait()
	for s := range a.board.Subscribe(ctx, readiness.Outbound) {
		was := w.Record().Healthy
		err := w.Update(func(r *state.Record) {
			r.Healthy = s.Ready
			if !r.Stopping { // from then on publishCallers decides
				r.Called = r.Called || s.Ready && interception(a.config) != none
			}
		})
		if err != nil {
			a.problem("publishing the proxy's state", err)
		}
		switch {
		case s.Ready && !was:
			// Note the time of the change: a waiter on a status port may have gone on since then.
			w.NoteAt(s.Since, startup.IsHealthy, 0, "")
		case !s.Ready && was:
			w.NoteAt(s.Since, startup.IsUnhealthy, 0, s.String())
		}
	}
}
