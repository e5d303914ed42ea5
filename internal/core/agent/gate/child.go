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
	terminal bool // the command's process group is the foreground group of the terminal
}

// startChild runs the command as the leader of a process group, as container runtimes do: signals that the
// command sends to its own group must not reach the gate. If the gate has the terminal's foreground, the
// command's group gets it. The command inherits the gate's standard streams, directory, user and limits.
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

// exitCode returns the status that container runtimes report: 128+n for signal n.
func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// foreground reports whether f is the terminal of this process, and this process's group has
// the foreground.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// takeForeground makes the gate's process group the terminal's foreground group again. Meanwhile it blocks
// SIGTTOU, which the kernel sends to a background process that changes the foreground group.
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
