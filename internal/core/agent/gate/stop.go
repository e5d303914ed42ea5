package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// A stopping is the progress of ending the command.
type stopping struct {
	since time.Time      // time of the first stop signal; zero: none came
	held  syscall.Signal // the stop signal that is not passed on yet; 0: none
	alone bool           // no sign yet that the whole pod stops, not only this container
	own   *ownEnd        // set if the gate itself ends the command
}

// An ownEnd is the status and the reason of an end that the gate decided.
type ownEnd struct {
	code   int
	reason string
}

// settle is the time within which all containers of a stopping pod get their stop signals. The kubelet signals
// all regular containers of a pod at the same time (kubelet v1.34.4 killContainersWithSyncResult). If no other
// container has got its signal by then, only this container is being restarted.
const settle = 2 * time.Second

// stopRequested handles a stop signal. It holds back the first one while dependents run or clients call. It
// passes a second one on at once: the kubelet has shortened the grace period.
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

// releaseEvery is the pause between two calls of Options.Release. A draining proxy undoes the release when it
// accepts a connection, and the gate gets no event when the proxy ends. So a connection attempt after the
// proxy's end may be parked for this time, and then until the client's kernel retries after a second.
const releaseEvery = 200 * time.Millisecond

// release repeats Options.Release until that returns false or the gate is over. Another mesh's proxy gets a
// stop signal at the same time, may take long to end, and is not started again.
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

// lookStopping passes the held signal on when no dependent runs any longer and no client calls the command through
// the proxy, or when the signal has been held for the maximum time.
func (g *gate) lookStopping() {
	o := g.others()
	need, called := o.need, o.proxy
	if o.podStops {
		g.stop.alone = false
	}
	held, grace := time.Since(g.stop.since), g.o.StopGrace
	if g.o.PreStop {
		grace = restAt(g.stop.since, o.stopBegan, grace)
	}
	limit := time.Duration(0)
	if len(need) > 0 {
		if limit = contract.StopLimit(grace); g.stop.alone {
			limit = min(limit, settle)
		}
	}
	if g.stop.own == nil { // if the gate itself ends the command, the pod may go on, and its callers too
		limit = max(limit, callLimit(called, grace))
	}
	if held < limit {
		g.timer.Reset(limit - held)
		return
	}
	if called.Stopping && called.InCall() {
		need = append(need, called.Container+" (clients call)")
	}
	if len(need) > 0 && !g.stop.alone {
		g.o.Say(fmt.Sprintf("%s stops although %s still runs: the grace period is nearly over", g.o.Place.Container, strings.Join(need, ", ")))
	}
	g.passStop(g.stop.held)
}

// others holds what the records of the other containers say during a stop.
type others struct {
	need      []string   // dependents that still run
	proxy     state.Seen // set while clients may call through the proxy
	podStops  bool       // the whole pod may be stopping: one got its stop signal, or has a preStop hook that delays it
	stopBegan time.Time  // time of the first stop signal; zero: none is known
}

// others reads the records of the other containers.
func (g *gate) others() (o others) {
	names, err := state.Containers(g.o.Place.States)
	if err != nil {
		return others{podStops: true}
	}
	for _, name := range names {
		seen, err := g.watch.Read(name)
		if name == g.o.Place.Container || err != nil || !seen.Known {
			continue
		}
		o.podStops = o.podStops || seen.Stopping
		if began := seen.StopBegan; !began.IsZero() && (o.stopBegan.IsZero() || began.Before(o.stopBegan)) {
			o.stopBegan = began
		}
		if name == contract.ProxyContainer && seen.InCall() {
			o.proxy, _ = g.watch.See(name)
		}
		if !needs(seen, g.o.Place.Container) {
			continue
		}
		if seen, _ = g.watch.See(name); needs(seen, g.o.Place.Container) {
			o.need = append(o.need, name)
			o.podStops = o.podStops || seen.PreStop
		}
	}
	return o
}

// endChild ends the command by the gate's own decision: by SIGTERM, and by SIGKILL after
// StopGrace.
func (g *gate) endChild(code int, format string, args ...any) {
	if g.stop.own != nil || !g.stop.since.IsZero() {
		return // it is being ended already
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

// mainsAreOver reports whether this container is a helper, and all containers that it helps
// have ended for good.
func (g *gate) mainsAreOver() bool {
	return len(g.o.HelperOf) > 0 && !slices.ContainsFunc(g.o.HelperOf, func(name string) bool {
		seen, err := g.watch.See(name)
		return err != nil || !seen.EndedForGood()
	})
}
