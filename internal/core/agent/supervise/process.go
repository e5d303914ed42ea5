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

// A Command describes the program to run.
type Command struct {
	Path string // a path, or a name to look for in PATH
	Args []string

	// Line is called with each line that the child writes, without the newline, cut at
	// 16 KiB. The bytes are valid during the call only. A slow Line slows the child down,
	// which writes into a pipe. Nil: lines are not passed on.
	Line func([]byte)

	Env    []string  // NAME=value, added to this process's environment
	Stdout io.Writer // standard output; nil: its lines go to Line, too
}

// drainTime limits the time for which output is read after the child's end, in case another process still holds
// the pipe open. All output of the child itself is in the pipe by then.
const drainTime = 250 * time.Millisecond

// A Process is a running child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	exit Exit // set before done is closed
}

// Start runs c with [StartGroup]. The Tail of the child's [Exit] holds its last lines of output.
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
// of a new process group, so that Ctrl-C and the kubelet's SIGTERM reach this process alone. It
// calls ended when the program has ended and was waited for.
//
// When the program ends, the rest of its group is killed. When this process ends, for any
// reason, the program gets SIGKILL.
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
		// PR_SET_PDEATHSIG). The Go runtime may end a thread at any time unless it is locked.
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
		// Until the program is waited for, no other process group can get its ID.
		_ = unix.Kill(-pid, unix.SIGKILL)
		_ = cmd.Wait() // its error only repeats the exit status
		ended()
	}()
	if err := <-started; err != nil {
		return startError(path, err)
	}
	return nil
}

// find returns the path of a program. A name that contains a slash is not checked: the kernel's
// error is more precise than that of exec.LookPath, which looks at modes only.
func find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil // found in a relative directory of PATH, which execvp(3) allows
	}
	return path, err
}

// PID is the child's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the child has ended and all its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for the end of the child.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// Signal sends s to the child alone. It is no error if the child has ended.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && err != os.ErrProcessDone {
		return fmt.Errorf("sending %v to process %d: %w", s, p.PID(), err)
	}
	return nil
}

// Kill sends SIGKILL to the child.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }
