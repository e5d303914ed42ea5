package gate

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kept are the signals that are about the gate itself, not the command: its children,
// faults of its own, the scheduler of its runtime (SIGURG, SIGPROF), its own broken pipe,
// and what stops and resumes a background process at its terminal.
var kept = []syscall.Signal{
	unix.SIGCHLD, unix.SIGURG, unix.SIGPROF, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU,
	unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS,
	unix.SIGKILL, unix.SIGSTOP,
	32, 33, // the C library's own, which takes no handler for them
}

const lastSignal = 64

// forwarded are all signals that the gate passes on.
func forwarded() []os.Signal {
	var out []os.Signal
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		if !slices.Contains(kept, s) {
			out = append(out, s)
		}
	}
	return out
}

// listen has the signals that the gate passes on sent to a channel.
func listen(to chan<- os.Signal) error {
	signal.Notify(to, forwarded()...)
	return notifyRTMin(to)
}

// rtmin3 is what images that run systemd are stopped by: SIGRTMIN+3.
const rtmin3 = syscall.Signal(37)

// stops says whether a signal asks the container to stop. SIGWINCH does without a
// terminal: it is the stop signal of images of the Apache web server, and means nothing
// else there.
func (g *gate) stops(s syscall.Signal) bool {
	terminal := foreground(g.o.Stdin) || g.child != nil && g.child.terminal
	switch s {
	case unix.SIGTERM, rtmin3:
		return true
	case unix.SIGINT, unix.SIGQUIT:
		return !terminal || g.child == nil
	case unix.SIGWINCH:
		return !terminal
	default:
		return s == g.o.StopSignal
	}
}

// signal: one came.
func (g *gate) signal(s syscall.Signal) {
	switch {
	case g.over:
	case g.child == nil && g.stops(s):
		g.o.Say(fmt.Sprintf("%s ends while it waits: %s", g.o.Place.Container, unix.SignalName(s)))
		g.finish(128 + int(s))
	case g.child == nil:
	case g.stops(s):
		g.stopRequested(s)
	default:
		g.pass(s)
	}
}

// pass sends a signal to the command. As PID 1 it would not get one that it does not
// handle: the kernel drops those (pid_namespaces(7)), so SIGHUP to a command that knows
// nothing of it must not end it now. What asks it to stop does end it.
func (g *gate) pass(s syscall.Signal) {
	pid := g.child.cmd.Process.Pid
	if os.Getpid() == 1 && !g.stops(s) && hurts(s) && !handles(pid, s) {
		return
	}
	_ = g.child.cmd.Process.Signal(s) // it may have ended
}

// hurts says whether a signal ends or stops a process that does nothing about it.
func hurts(s syscall.Signal) bool { return s != unix.SIGCONT && s != unix.SIGWINCH }

// handles says whether a process catches or ignores a signal.
func handles(pid int, s syscall.Signal) bool { return masked(pid, s, "SigCgt:", "SigIgn:") }

// masked looks for a signal in the masks of a process, in /proc/PID/status.
func masked(pid int, s syscall.Signal, masks ...string) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true // not ours to ask; the command decides
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		name, value, _ := strings.Cut(in.Text(), "\t")
		if !slices.Contains(masks, name) {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err == nil && mask&(1<<(uint(s)-1)) != 0 {
			return true
		}
	}
	return false
}
