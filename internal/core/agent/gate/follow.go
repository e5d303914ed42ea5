package gate

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/atomicfile"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// lookRunning acts on the other containers' records while the command runs.
func (g *gate) lookRunning() {
	if g.stop.held != 0 {
		g.lookStopping()
		return
	}
	if !g.stop.since.IsZero() || g.stop.own != nil {
		return
	}
	if g.mainsAreOver() {
		g.endChild(0, "%s ends: %s ended for good", g.o.Place.Container, strings.Join(g.o.HelperOf, ", "))
		return
	}
	for _, e := range g.o.After {
		if e.OnRestart == startup.Ignore {
			continue
		}
		if seen, err := g.watch.Read(e.From); err == nil && g.base.restarted(e.From, seen) {
			g.follow(e)
		}
	}
}

// starts maps each dependency to the number of its starts that are already taken into account. At first these
// are its starts before the command of this container began.
type starts map[string]int

// restarted updates s from a dependency's record, and reports whether the record shows a new restart. The first
// start of a dependency is not a restart, even if it comes after the start of this container's command.
func (s starts) restarted(from string, seen state.Seen) bool {
	before := s[from]
	s[from] = max(before, seen.Starts)
	return seen.Starts > before && seen.Starts > 1
}

// follow applies the edge's OnRestart after a restart of the dependency.
func (g *gate) follow(e startup.Edge) {
	switch {
	case e.OnRestart == startup.Notify:
		g.notifyChild(e.From)
	case g.o.Restart == startup.Never:
		g.o.Say(fmt.Sprintf("%s was restarted, and %s goes on: the kubelet would not start it again (restartPolicy: Never)", e.From, g.o.Place.Container))
	default:
		g.endChild(FollowsOther, "%s was restarted, so %s is to be restarted too", e.From, g.o.Place.Container)
	}
}

// BackFile is the name of a file in the container's own directory. It is replaced when a
// dependency was restarted, and holds the dependency's name.
const BackFile = "back"

// notifyChild notifies the command that a dependency was restarted: by [BackFile], and by
// Options.NotifySignal if it is set and the command handles that signal. The default is no
// signal: SIGHUP ends a program that does not handle it, and a program that seems to handle it
// may still end (Go's runtime catches all signals).
func (g *gate) notifyChild(from string) {
	by := filepath.Join(g.o.Place.Own, BackFile)
	if err := atomicfile.Write(by, []byte(from+"\n"), 0o644); err != nil {
		g.o.Say(fmt.Sprintf("%s is back; notifying %s: %v", from, g.o.Place.Container, err))
		return
	}
	if s := g.o.NotifySignal; s != 0 {
		if masked(g.child.cmd.Process.Pid, s, "SigCgt:") {
			_ = g.child.cmd.Process.Signal(s) // an error means that the command has ended
			by += " and " + unix.SignalName(s)
		} else {
			by += " (it does not handle " + unix.SignalName(s) + ")"
		}
	}
	g.note(startup.IsNotified, from+" is back")
	g.o.Say(fmt.Sprintf("%s is back; %s was notified by %s", from, g.o.Place.Container, by))
}
