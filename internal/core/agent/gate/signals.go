package gate

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kept are the signals that concern the gate itself, not the command: its children, its
// own faults, the scheduler of its runtime (SIGURG, SIGPROF), its own broken pipe, and
// what stops and resumes a background process at its terminal.
var kept = []syscall.Signal{
	unix.SIGCHLD, unix.SIGURG, unix.SIGPROF, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU,
	unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS,
	unix.SIGKILL, unix.SIGSTOP,
	32, 33, // the C library's own, which takes no handler for them
	34, // SIGRTMIN: Go's runtime never delivers it (docs/rationale.md)
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

// rtmin3 is SIGRTMIN+3, the stop signal of images that run systemd.
const rtmin3 = syscall.Signal(37)

// stops reports whether a signal stops the container. Without a terminal SIGWINCH does: it
// is the stop signal of images of the Apache web server, and has no other meaning there.
func (g *gate) stops(s syscall.Signal) bool {
	terminal := foreground(os.Stdin) || g.child != nil && g.child.terminal
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

// signal handles a signal.
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

// pass sends a signal to the command. The kernel drops signals that PID 1 does not handle
// (pid_namespaces(7)), and the command was PID 1 without the gate. So a SIGHUP that it does
// not handle must not end it now. A signal that stops the container does.
func (g *gate) pass(s syscall.Signal) {
	pid := g.child.cmd.Process.Pid
	if os.Getpid() == 1 && !g.stops(s) && hurts(s) && !handles(pid, s) {
		return
	}
	_ = g.child.cmd.Process.Signal(s) // it may have ended
}

// hurts reports whether a signal ends or stops a process that does not handle it.
func hurts(s syscall.Signal) bool { return s != unix.SIGCONT && s != unix.SIGWINCH }

// handles reports whether a process catches or ignores a signal.
func handles(pid int, s syscall.Signal) bool { return masked(pid, s, "SigCgt:", "SigIgn:") }

// masked looks for a signal in the masks of a process, in /proc/PID/status.
func masked(pid int, s syscall.Signal, masks ...string) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true // not readable; the command decides
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
