package gate

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/agent/state"
	"outrider.dev/startup"
)

// A stopping is how far the end of the command is.
type stopping struct {
	asked time.Time      // to stop; zero: nobody asked
	held  syscall.Signal // not passed on yet; 0: none
	alone bool           // perhaps only this container is to stop, not the pod
	own   *ownEnd        // the gate itself wants the end
}

// An ownEnd is an end that the gate wants.
type ownEnd struct {
	code   int
	reason string
}

// settle is how long the others may take to hear of the pod's end. The kubelet tells all
// plain containers at the same time (kubelet v1.34.4 killContainersWithSyncResult), so if
// nobody else has heard of it by then, this container alone is to be restarted.
const settle = 2 * time.Second

// stopRequested keeps the command for those who need it. Asked again, it obeys: somebody
// has shortened the grace period.
func (g *gate) stopRequested(s syscall.Signal) {
	first := g.stop.asked.IsZero()
	if first {
		g.stop.asked = time.Now()
		g.note(startup.IsStopping, unix.SignalName(s))
		g.publish(func(r *state.Record) { r.Stopping = true })
	}
	if !first || g.o.StopGrace < 0 {
		g.passStop(s)
		return
	}
	g.stop.held, g.stop.alone = s, g.stop.own == nil
	g.lookStopping()
}

func (g *gate) passStop(s syscall.Signal) {
	g.stop.held = 0
	g.pass(s)
}

// lookStopping passes the signal on when nobody needs the command any longer.
func (g *gate) lookStopping() {
	need, others := g.dependents()
	if others {
		g.stop.alone = false
	}
	held := time.Since(g.stop.asked)
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

// dependents returns who still runs and needs this container, and whether there is a sign
// that the whole pod stops: another one was told to, or will be told only after its hook.
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

// endChild has the gate end its command by itself: politely, then not.
func (g *gate) endChild(code int, format string, args ...any) {
	if g.stop.own != nil || !g.stop.asked.IsZero() {
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

// mainsAreOver says whether all whom this container only helps have ended for good.
func (g *gate) mainsAreOver() bool {
	return len(g.o.HelperOf) > 0 && !slices.ContainsFunc(g.o.HelperOf, func(name string) bool {
		seen, err := g.watch.See(name)
		return err != nil || !seen.EndedForGood()
	})
}
