package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A child is the container's command.
type child struct {
	cmd      *exec.Cmd
	terminal bool // it has the terminal's foreground
}

// A startError is a command that cannot be run.
type startError struct {
	name   string
	err    error
	status int // 126 or 127, as shells have it
}

func (e *startError) Error() string { return fmt.Sprintf("running %s: %v", e.name, e.err) }

// startChild runs the command in a process group of its own, as a container's command is
// the leader of one: what it sends to its group, and Ctrl-C, must not reach the gate.
// With a terminal its group gets the foreground. It keeps the gate's own standard streams,
// directory, environment, user and limits.
func (g *gate) startChild() *startError {
	argv := g.o.Command
	path, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return whyNot(argv[0], err)
	}
	c := &child{terminal: foreground(g.o.Stdin)}
	environ, files, ready, err := g.prepareNotify()
	if err != nil {
		return &startError{argv[0], err, 126}
	}
	c.cmd = &exec.Cmd{
		Path: path, Args: argv, Env: environ,
		Stdin: g.o.Stdin, Stdout: g.o.Stdout, Stderr: g.o.Stderr, ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid: true, Pdeathsig: syscall.SIGKILL,
			Foreground: c.terminal, Ctty: int(g.o.Stdin.Fd()),
		},
	}
	started := make(chan error)
	go g.live(c, started)
	err = <-started
	ready()
	if err != nil {
		return whyNot(argv[0], err)
	}
	g.child = c
	return nil
}

// live stays with the child until it has ended, on one thread: the signal that ends it
// with the gate is sent when the thread ends that forked it (prctl(2), PR_SET_PDEATHSIG).
func (g *gate) live(c *child, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	pid := c.cmd.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	// When PID 1 of a container ends, the rest of it does too. While its number is still
	// taken, no other process can have the group.
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = c.cmd.Wait() // its error is the status again
	g.post(func() { g.childEnded(c) })
}

func (g *gate) childEnded(c *child) {
	if c.terminal {
		takeForeground(g.o.Stdin)
	}
	code := exitCode(c.cmd.ProcessState)
	switch why := g.stop.own; {
	case why == nil:
		g.finish(code)
	default:
		g.end(why.code, "%s", why.reason)
	}
}

// exitCode is the status as container runtimes have it.
func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

func whyNot(name string, err error) *startError {
	status := 126
	var missing *exec.Error
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &missing) && errors.Is(missing.Err, exec.ErrNotFound) {
		status = 127
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if missing != nil {
		err = missing.Err
	}
	return &startError{name, err, status}
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
