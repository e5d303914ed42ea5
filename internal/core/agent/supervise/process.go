package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Command is what to run.
type Command struct {
	Path string // a path, or a name to look for in PATH
	Args []string

	// Line gets each line that the child writes, without its end, cut at 16 KiB. The bytes
	// are valid during the call only. A slow Line slows the child down: it writes into a
	// pipe. Nil: lines are not passed on.
	Line func([]byte)

	Env    []string  // NAME=value, besides this process's own
	Stdout io.Writer // standard output; nil: its lines are Line's, too
}

// drainTime is how long the child's output is read after its end, in case another process
// holds the pipe: what the child wrote is there at once.
const drainTime = 250 * time.Millisecond

// A Process is a running child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	exit Exit // when done is closed
}

// Start runs c with [StartGroup]. The exit has the last lines that the child wrote.
func Start(c Command) (*Process, *StartError) {
	p := &Process{done: make(chan struct{})}
	out := &output{line: c.Line}
	p.cmd = &exec.Cmd{Args: append([]string{c.Path}, c.Args...), Stdout: out, Stderr: out, WaitDelay: drainTime}
	if c.Stdout != nil {
		p.cmd.Stdout = c.Stdout
	}
	if len(c.Env) > 0 {
		p.cmd.Env = append(p.cmd.Environ(), c.Env...)
	}
	err := StartGroup(p.cmd, func() {
		out.flush()
		p.exit = exitOf(p.cmd.ProcessState)
		p.exit.Tail = out.last
		close(p.done)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// StartGroup starts the program cmd.Args[0], a path or a name to look for in PATH, as the leader
// of a process group: Ctrl-C and the kubelet's SIGTERM must reach this process alone. It
// calls ended when the program has ended and was waited for.
//
// What is left of the group is killed with it, and the program gets SIGKILL when this
// process ends, however it ends.
func StartGroup(cmd *exec.Cmd, ended func()) *StartError {
	path, err := find(cmd.Args[0])
	if err != nil {
		return startError(cmd.Args[0], err)
	}
	cmd.Path = path
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	started := make(chan error)
	go func() {
		// The parent-death signal is sent when the *thread* that forked ends (prctl(2),
		// PR_SET_PDEATHSIG), and the Go runtime ends threads as it likes.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		pid := cmd.Process.Pid
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		// While its number is still taken, no other process can have the group.
		_ = unix.Kill(-pid, unix.SIGKILL)
		_ = cmd.Wait() // its error is the status again
		ended()
	}()
	if err := <-started; err != nil {
		return startError(path, err)
	}
	return nil
}

// find returns the path of a program. What is wrong with a path the kernel knows better than
// exec.LookPath, which looks at modes only.
func find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil // PATH has a relative part, as execvp(3) allows
	}
	return path, err
}

// PID is the child's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and all that it wrote was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for the end of the child.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// Signal sends s to the child alone. One that has ended is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && err != os.ErrProcessDone {
		return fmt.Errorf("sending %v to process %d: %w", s, p.PID(), err)
	}
	return nil
}

// Kill ends the child.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }
