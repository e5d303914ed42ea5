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

// kept lists the signals that the gate does not pass on, because they concern the gate itself:
// the end of a child, its own faults, the scheduler of its runtime (SIGURG, SIGPROF), its own
// broken pipe, and a background process's access to the terminal (SIGTTIN, SIGTTOU).
var kept = []syscall.Signal{
	unix.SIGCHLD, unix.SIGURG, unix.SIGPROF, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU,
	unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS,
	unix.SIGKILL, unix.SIGSTOP,
	32, 33, // reserved by the C library, which allows no handler for them
	34, // SIGRTMIN: Go's runtime never delivers it (docs/rationale.md)
}

const lastSignal = 64

// forwarded returns all signals that the gate handles or passes on.
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

// stops reports whether a signal stops the container. SIGWINCH does if there is no terminal:
// it is the stop signal of images of the Apache web server, and has no other use without a
// terminal.
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

// signal acts on a signal that this process got: it ends a gate that still waits, stops the
// command, or passes the signal on.
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

// pass sends a signal to the command. Without the gate, the command would be PID 1, for which
// the kernel drops signals without a handler (pid_namespaces(7)). So pass drops, for example, a
// SIGHUP that the command does not handle, but never a signal that stops the container.
func (g *gate) pass(s syscall.Signal) {
	pid := g.child.cmd.Process.Pid
	if os.Getpid() == 1 && !g.stops(s) && hurts(s) && !handles(pid, s) {
		return
	}
	_ = g.child.cmd.Process.Signal(s) // an error means that the command has ended
}

// hurts reports whether a signal ends or stops a process that does not handle it.
func hurts(s syscall.Signal) bool { return s != unix.SIGCONT && s != unix.SIGWINCH }

// handles reports whether a process catches or ignores a signal.
func handles(pid int, s syscall.Signal) bool { return masked(pid, s, "SigCgt:", "SigIgn:") }

// masked reports whether a signal is in one of the given masks of /proc/PID/status.
func masked(pid int, s syscall.Signal, masks ...string) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true // unknown: send the signal
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
