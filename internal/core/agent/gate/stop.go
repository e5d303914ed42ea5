package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// A stopping is how far the end of the command is.
type stopping struct {
	since time.Time      // of the first stop signal; zero: none
	held  syscall.Signal // not passed on yet; 0: none
	alone bool           // perhaps only this container is to stop, not the pod
	own   *ownEnd        // the gate itself ends the command
}

// An ownEnd is an end that the gate decided.
type ownEnd struct {
	code   int
	reason string
}

// settle is how long the other containers may take to get their stop signals. The kubelet
// signals all plain containers at the same time (kubelet v1.34.4
// killContainersWithSyncResult), so if no other one has got its signal by then, only this
// container is to be restarted.
const settle = 2 * time.Second

// stopRequested keeps the command for its dependents. A second signal is passed on at once:
// the grace period was shortened.
func (g *gate) stopRequested(s syscall.Signal) {
	first := g.stop.since.IsZero()
	if first {
		g.stop.since = time.Now()
		g.note(startup.IsStopping, unix.SignalName(s))
		g.publish(func(r *state.Record) { r.Stopping = true })
		g.background(g.release)
	}
	if !first || g.o.StopGrace < 0 {
		g.passStop(s)
		return
	}
	g.stop.held, g.stop.alone = s, g.stop.own == nil
	g.lookStopping()
}

// releaseEvery is how often parking is ended: a proxy that still drains takes a connection, which
// undoes it, and there is no event when it leaves. A call waits for that long, and for the next
// try of its kernel a second later.
const releaseEvery = 200 * time.Millisecond

// release ends the parking of connections until the gate is over: another mesh's proxy gets the
// same signal, leaves in its own time, and will not come back.
func (g *gate) release(ctx context.Context) {
	for g.o.Release() {
		select {
		case <-time.After(releaseEvery):
		case <-ctx.Done():
			return
		}
	}
}

func (g *gate) passStop(s syscall.Signal) {
	g.stop.held = 0
	g.pass(s)
}

// lookStopping passes the signal on when no dependent runs any longer.
func (g *gate) lookStopping() {
	need, others := g.dependents()
	if others {
		g.stop.alone = false
	}
	held := time.Since(g.stop.since)
	limit := stopLimit(g.o.StopGrace)
	if g.stop.alone {
		limit = min(limit, settle)
	}
	if len(need) == 0 || held >= limit {
		if len(need) > 0 && !g.stop.alone {
			g.o.Say(fmt.Sprintf("%s stops although %s still runs: the grace period is nearly over", g.o.Place.Container, strings.Join(need, ", ")))
		}
		g.passStop(g.stop.held)
		return
	}
	g.timer.Reset(limit - held)
}

// dependents returns the dependents that still run, and whether there is a sign that the
// whole pod stops: another container got its signal, or gets it only after its hook.
func (g *gate) dependents() (need []string, podStops bool) {
	names, err := state.Containers(g.o.Place.States)
	if err != nil {
		return nil, true
	}
	for _, name := range names {
		if name == g.o.Place.Container {
			continue
		}
		seen, err := g.watch.Read(name)
		if err != nil {
			continue
		}
		podStops = podStops || seen.Known && seen.Stopping
		if !needs(seen, g.o.Place.Container) {
			continue
		}
		if seen, _ = g.watch.See(name); needs(seen, g.o.Place.Container) {
			need = append(need, name)
			podStops = podStops || seen.PreStop
		}
	}
	return need, podStops
}

// endChild ends the command by the gate's own decision: by SIGTERM, then by SIGKILL.
func (g *gate) endChild(code int, format string, args ...any) {
	if g.stop.own != nil || !g.stop.since.IsZero() {
		return // it ends anyway
	}
	g.stop.own = &ownEnd{code, fmt.Sprintf(format, args...)}
	g.o.Say(g.stop.own.reason)
	g.after(max(g.o.StopGrace, 0), func() { _ = unix.Kill(-g.child.cmd.Process.Pid, unix.SIGKILL) })
	if code == 0 {
		g.stopRequested(unix.SIGTERM)
		return
	}
	g.pass(unix.SIGTERM)
}

// mainsAreOver reports whether all containers that this one only helps have ended for good.
func (g *gate) mainsAreOver() bool {
	return len(g.o.HelperOf) > 0 && !slices.ContainsFunc(g.o.HelperOf, func(name string) bool {
		seen, err := g.watch.See(name)
		return err != nil || !seen.EndedForGood()
	})
}
