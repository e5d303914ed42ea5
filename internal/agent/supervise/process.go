package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Stream is one of a child's outputs.
type Stream int

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// A Command is what to run.
type Command struct {
	Path string // a path, or a name to look for in PATH
	Args []string
	Env  []string // nil: the agent's own
	Dir  string

	// Line gets each line the child writes, without its end, cut at 16 KiB. The bytes
	// are valid during the call only. A slow Line slows the child down: it writes into a
	// pipe. Nil: lines are not passed on.
	Line func(Stream, []byte)

	// Tail is how many lines of standard error to keep; default 100, 64 KiB at most. A
	// backtrace of Envoy has up to 64, and begins with what happened.
	Tail int
}

// drainTime is how long a pipe is read after the child's end, in case something else
// holds its other end: what the child wrote is there at once.
const drainTime = 250 * time.Millisecond

// A Process is a running child.
type Process struct {
	cmd  *exec.Cmd
	tail tail
	done chan struct{}
	exit Exit // when done is closed
}

// Start runs c in a process group of its own: Ctrl-C and the kubelet's SIGTERM must
// reach the agent alone, which then drains the child in its own time. The child gets
// SIGKILL when this process ends, however it ends. An error is a [*StartError].
func Start(c Command) (*Process, error) {
	if c.Tail <= 0 {
		c.Tail = 100
	}
	path, err := find(c.Path)
	if err != nil {
		return nil, startError(c.Path, err)
	}
	p := &Process{done: make(chan struct{}), tail: tail{max: c.Tail}}
	p.cmd = &exec.Cmd{
		Path: path, Args: append([]string{path}, c.Args...), Env: c.Env, Dir: c.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	var pipes []pipe
	for _, s := range []Stream{Stdout, Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(pipes)
			return nil, startError(path, err)
		}
		pipes = append(pipes, pipe{s, r, w})
	}
	p.cmd.Stdout, p.cmd.Stderr = pipes[0].w, pipes[1].w
	started := make(chan error)
	go p.live(started, pipes, c.Line)
	if err := <-started; err != nil {
		return nil, startError(path, err)
	}
	return p, nil
}

// find returns the absolute path of a program: Dir is the child's, and not where a
// relative path begins. Of a path the kernel says what is wrong with it, better than
// exec.LookPath, which looks at modes only.
func find(name string) (string, error) {
	if !strings.Contains(name, "/") {
		found, err := exec.LookPath(name)
		if err != nil {
			return "", err
		}
		name = found
	}
	return filepath.Abs(name)
}

type pipe struct {
	stream Stream
	r, w   *os.File
}

func closeAll(pipes []pipe) {
	for _, p := range pipes {
		p.r.Close()
		p.w.Close()
	}
}

// live forks the child and stays until it has ended. The thread is locked for as long:
// the parent-death signal is sent when the *thread* that forked ends (prctl(2),
// PR_SET_PDEATHSIG), and the Go runtime ends threads as it likes.
func (p *Process) live(started chan<- error, pipes []pipe, line func(Stream, []byte)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		closeAll(pipes)
		started <- err
		return
	}
	var readers sync.WaitGroup
	for _, pipe := range pipes {
		pipe.w.Close()
		readers.Go(func() {
			defer pipe.r.Close()
			eachLine(pipe.r, func(b []byte) {
				if pipe.stream == Stderr {
					p.tail.add(b)
				}
				if line != nil {
					line(pipe.stream, b)
				}
			})
		})
	}
	pid := p.cmd.Process.Pid
	started <- nil
	awaitExit(pid)
	// What is left of its group goes with it, and while its number is still taken, so
	// that no other process can have the group.
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = p.cmd.Wait() // its error is the status again
	for _, pipe := range pipes {
		_ = pipe.r.SetReadDeadline(time.Now().Add(drainTime))
	}
	readers.Wait()
	p.exit = exitOf(p.cmd.ProcessState)
	p.exit.Tail = p.tail.all()
	close(p.done)
}

// awaitExit returns when pid has ended, and leaves its status to be collected.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
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

// Tail returns the last lines of standard error so far.
func (p *Process) Tail() []string { return p.tail.all() }

// Signal sends s to the child alone. One that has ended is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && err != os.ErrProcessDone {
		return fmt.Errorf("sending %v to process %d: %w", s, p.PID(), err)
	}
	return nil
}

// Kill ends the child.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }
