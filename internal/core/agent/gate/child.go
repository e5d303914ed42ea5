package gate

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/supervise"
)

// A child is the container's command.
type child struct {
	cmd      *exec.Cmd
	terminal bool // it has the terminal's foreground
}

// startChild runs the command in a process group of its own, as a container's command is
// the leader of one: what it sends to its group must not reach the gate.
// With a terminal its group gets the foreground. It keeps the gate's own standard streams,
// directory, user and limits.
func (g *gate) startChild() *supervise.StartError {
	environ, files, ready, err := g.prepareNotify()
	if err != nil {
		return &supervise.StartError{Path: g.o.Command[0], Why: err.Error(), Status: supervise.NotRunnable}
	}
	c := &child{terminal: foreground(os.Stdin)}
	c.cmd = &exec.Cmd{
		Args: g.o.Command, Env: environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{Foreground: c.terminal, Ctty: int(os.Stdin.Fd())},
	}
	failed := supervise.StartGroup(c.cmd, func() { g.post(func() { g.childEnded(c) }) })
	ready()
	if failed != nil {
		return failed
	}
	g.child = c
	return nil
}

func (g *gate) childEnded(c *child) {
	if c.terminal {
		takeForeground(os.Stdin)
	}
	code := exitCode(c.cmd.ProcessState)
	if own := g.stop.own; own != nil {
		g.end(own.code, "%s", own.reason)
		return
	}
	g.finish(code)
}

// exitCode is the status as container runtimes have it.
func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// foreground reports whether f is the terminal of this process and its group has the
// foreground, so that the command's group is to get it.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// takeForeground gives the terminal back to the gate's own group. A group in the
// background that does so is sent SIGTTOU, unless it is blocked.
func takeForeground(f *os.File) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, before unix.Sigset_t
	block.Val[0] = 1 << (uint(unix.SIGTTOU) - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before) != nil {
		return
	}
	_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
}
