package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// commandLimit ends a command that hangs.
const commandLimit = 30 * time.Second

// environment is all that a measured command sees: a variable of the caller's shell
// must not change what is measured.
var environment = []string{"PATH=" + os.Getenv("PATH")}

// A usage is what a command took, its own children included.
type usage struct{ wall, cpu time.Duration }

// timed runs a command from the calling thread, in its namespace. The wall time is
// that from fork to exit.
func timed(ctx context.Context, argv []string) (usage, error) {
	c, err := newCommand(ctx, argv)
	if err != nil {
		return usage{}, err
	}
	defer c.close()
	begin := time.Now()
	err = c.Run()
	u := usage{wall: time.Since(begin)}
	if err != nil {
		return u, c.explain(err)
	}
	u.cpu = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return u, nil
}

// A command is a child that this program cannot leave behind.
type command struct {
	*exec.Cmd
	output *os.File
	cancel context.CancelFunc
}

func newCommand(ctx context.Context, argv []string) (*command, error) {
	// A file in memory, not a pipe: it needs no reader while the clock runs.
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file for the output: %w", err)
	}
	c := &command{output: os.NewFile(uintptr(fd), "output")}
	ctx, c.cancel = context.WithTimeout(ctx, commandLimit)
	c.Cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env, c.Stdout, c.Stderr = environment, c.output, c.output
	c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return c, nil
}

func (c *command) close() {
	c.cancel()
	c.output.Close()
}

func (c *command) explain(err error) error {
	text := make([]byte, 2048)
	n, _ := c.output.ReadAt(text, 0)
	return fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, bytes.TrimSpace(text[:n]))
}

// peakMemory runs a command, from the calling thread, and returns the most memory
// (resident set) that its first process had, in bytes.
//
// The kernel's own figure (ru_maxrss) is of no use: it starts with what the parent had
// at exec, and this program is larger than most of what it measures. So the child is
// stopped at its exit and measured there, in a run that is not timed.
func peakMemory(ctx context.Context, argv []string) (int64, error) {
	c, err := newCommand(ctx, argv)
	if err != nil {
		return 0, err
	}
	defer c.close()
	c.SysProcAttr.Ptrace = true
	if err := c.Start(); err != nil {
		return 0, c.explain(err)
	}
	peak, status, err := trace(c.Process.Pid)
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d", status)
	}
	if err != nil {
		return 0, c.explain(err)
	}
	return peak, nil
}

// trace lets a traced child run to its end. It returns its peak memory and exit status.
func trace(pid int) (peak int64, status int, err error) {
	traced := false
	for {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(pid, &ws, 0, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			return 0, 0, fmt.Errorf("waiting for a traced child: %w", err)
		}
		pass := 0
		switch {
		case ws.Exited():
			return peak, ws.ExitStatus(), nil
		case ws.Signaled():
			return peak, -1, fmt.Errorf("killed: %s", ws.Signal())
		case ws.TrapCause() == unix.PTRACE_EVENT_EXIT:
			peak, err = highWater(pid)
		case !traced: // the stop at exec
			traced = true
			err = unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEEXIT|unix.PTRACE_O_EXITKILL)
		default:
			pass = int(ws.StopSignal())
		}
		if err != nil {
			return 0, 0, err
		}
		if err := unix.PtraceCont(pid, pass); err != nil && err != unix.ESRCH {
			return 0, 0, fmt.Errorf("continuing a traced child: %w", err)
		}
	}
}

// highWater reads the peak memory of a living process.
func highWater(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	if _, err := fmt.Fscan(strings.NewReader(rest), &kib); err != nil && err != io.EOF {
		return 0, fmt.Errorf("reading VmHWM: %w", err)
	}
	return kib << 10, nil
}
