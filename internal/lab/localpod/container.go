package localpod

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/lab/localpod/containerinit"
)

// A container is one run of a container, from its start to its exit. A restart creates a new one.
type container struct {
	spec    spec
	process *os.Process
	logs    sync.WaitGroup

	// doors guards the namespace files pid and mnt. goIn holds the read lock while it starts a process in the
	// namespaces, so that shut does not close them meanwhile: after a close, the number of the file may refer to
	// another namespace.
	doors sync.RWMutex
	pid   space
	mnt   space

	tail tail
}

// A StartError is the error for a container whose command could not be started. The container's exit code is then
// 128, as on a real node.
type StartError struct{ Reason string }

func (e *StartError) Error() string { return e.Reason }

// start starts a container, and returns when its command runs or has failed to start. line receives each line of
// output.
func (s *sandbox) start(sp spec, line func(string)) (*container, error) {
	if err := os.WriteFile(s.node.path(sp.message), nil, 0o666); err != nil {
		return nil, err
	}
	if err := os.Chmod(s.node.path(sp.message), 0o666); err != nil {
		return nil, err
	}
	c := &container{spec: sp}
	p, err := newPipes()
	if err != nil {
		return nil, err
	}
	defer p.close()
	first := s.node.again(containerinit.RoleContainer, nil, p.reply)
	first.ExtraFiles[0] = p.stdin
	first.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	first.Stdout, first.Stderr = p.out[1], p.err[1]
	if err := inside(first.Start, s.net, s.ipc, s.uts, s.node.pid, s.node.mnt); err != nil {
		return nil, fmt.Errorf("starting container %s: %w", sp.Name, err)
	}
	p.handedOver()
	for _, from := range []*os.File{p.take(&p.out[0]), p.take(&p.err[0])} {
		c.logs.Go(func() {
			defer from.Close()
			readLines(from, func(l string) {
				c.tail.add(l)
				line(l)
			})
		})
	}
	// Ignore the error: if the process ends before it reads the order, it writes the reason to the pipe of
	// answers.
	_ = json.NewEncoder(p.order).Encode(sp.order)
	p.order.Close()
	answers := json.NewDecoder(p.answers)
	var began, failed containerinit.Answer
	_ = answers.Decode(&began) // if there is no answer, Wait returns the error
	more := answers.Decode(&failed)
	if err := first.Wait(); err != nil && began.PID == 0 {
		return nil, fmt.Errorf("starting container %s: %s%w", sp.Name, began.Error, err)
	}
	if began.PID == 0 {
		return nil, fmt.Errorf("starting container %s: %s%w", sp.Name, began.Error, io.ErrUnexpectedEOF)
	}
	return c, c.found(began.PID, failed, more)
}

// found records the container's first process, which is now a child of this program. It fails if the process
// did not run the container's command.
func (c *container) found(pid int, failed containerinit.Answer, more error) error {
	var err error
	if c.process, err = os.FindProcess(pid); err != nil {
		return fmt.Errorf("finding the first process of container %s: %w", c.spec.Name, err)
	}
	if more == nil { // the process reported an error, and did not run the command
		_, _ = c.process.Wait()
		c.logs.Wait()
		return &StartError{Reason: failed.Error}
	}
	// If the process has already ended, its namespaces cannot be opened, and its hooks will fail.
	c.pid, _ = openSpace(strconv.Itoa(pid), unix.CLONE_NEWPID)
	c.mnt, _ = openSpace(strconv.Itoa(pid), unix.CLONE_NEWNS)
	return nil
}

// wait waits until the container has ended and its last line has been read, and returns the exit code.
func (c *container) wait() int {
	state, err := c.process.Wait()
	c.logs.Wait()
	c.shut()
	if err != nil {
		return 255
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

func (c *container) shut() {
	c.doors.Lock()
	defer c.doors.Unlock()
	c.pid.Close()
	c.mnt.Close()
	c.pid, c.mnt = space{}, space{}
}

// signal sends a signal to the first process. Because this is process 1 of its namespace, the kernel delivers
// only SIGKILL and signals for which it has a handler.
func (c *container) signal(s syscall.Signal) { _ = c.process.Signal(s) }

// errNotRunning is the error that a runtime returns for a container that has ended.
var errNotRunning = errors.New("the container does not run")

// exec runs a command in the container as its user, and returns its output.
func (c *container) exec(ctx context.Context, s *sandbox, argv []string) ([]byte, error) {
	p, err := newPipes()
	if err != nil {
		return nil, err
	}
	defer p.close()
	process := c.spec.order.Process
	process.Argv = argv
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/self/fd/%d", s.node.program.Fd()))
	cmd.Args, cmd.Env = []string{containerinit.RoleExec}, []string{}
	written := &limited{w: &out, left: 10 << 10} // one writer for both, because os/exec then never writes concurrently
	cmd.Stdout, cmd.Stderr = written, written
	cmd.WaitDelay = 100 * time.Millisecond // a process that the command left behind may keep the output open
	if err := c.goIn(s, cmd, p); err != nil {
		return nil, err
	}
	p.handedOver()
	_ = json.NewEncoder(p.order).Encode(containerinit.Order{Process: process})
	p.order.Close()
	var failed containerinit.Answer
	decodeErr := json.NewDecoder(p.answers).Decode(&failed)
	err = cmd.Wait()
	if decodeErr == nil {
		return nil, errors.New(failed.Error)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return out.Bytes(), err
}

// goIn starts cmd, which runs this program as RoleExec and will enter the container.
func (c *container) goIn(s *sandbox, cmd *exec.Cmd, p *pipes) error {
	c.doors.RLock()
	defer c.doors.RUnlock()
	if c.pid.file == nil || c.mnt.file == nil {
		return errNotRunning
	}
	cmd.ExtraFiles = []*os.File{p.stdin, p.reply, c.mnt.file}
	if err := inside(cmd.Start, s.net, s.ipc, s.uts, c.pid); err != nil {
		return fmt.Errorf("%w: %w", errNotRunning, err)
	}
	return nil
}

// pipes are the pipes between this program and a process that runs this program again in a role.
type pipes struct {
	stdin, order   *os.File // for the order: the child's end, our end
	answers, reply *os.File // for the answer: our end, the child's end
	out, err       [2]*os.File
}

func newPipes() (*pipes, error) {
	p := &pipes{}
	for _, ends := range [][2]**os.File{{&p.stdin, &p.order}, {&p.answers, &p.reply}, {&p.out[0], &p.out[1]}, {&p.err[0], &p.err[1]}} {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return nil, err
		}
		*ends[0], *ends[1] = r, w
	}
	return p, nil
}

// handedOver closes the child's ends of the pipes, after the child has inherited them.
func (p *pipes) handedOver() {
	for _, f := range []*os.File{p.stdin, p.reply, p.out[1], p.err[1]} {
		f.Close()
	}
}

// take returns a file and removes it from the pipes, so that it is closed by the caller, not by [pipes.close].
func (*pipes) take(f **os.File) *os.File {
	taken := *f
	*f = nil
	return taken
}

func (p *pipes) close() {
	for _, f := range []*os.File{p.stdin, p.order, p.answers, p.reply, p.out[0], p.out[1], p.err[0], p.err[1]} {
		if f != nil {
			f.Close()
		}
	}
}

// longest is the length at which lines are split. Source: containerd's default max_container_log_line_size.
const longest = 16 << 10

func readLines(r io.Reader, line func(string)) {
	lines := bufio.NewReaderSize(r, longest)
	for {
		l, err := lines.ReadSlice('\n')
		if len(l) > 0 {
			line(string(bytes.TrimSuffix(l, []byte("\n"))))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// A tail is the end of a log, which becomes the termination message under FallbackToLogsOnError.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// kept is the number of bytes that the kubelet reads from the end of the log. Source: kuberuntime_container.go
// fallbackToLogs, MaxContainerTerminationMessageLogLength.
const kept = 2048

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(append(t.text, line...), '\n')
	if over := len(t.text) - kept; over > 0 {
		t.text = t.text[over:]
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// limited passes bytes to w while left is above 0, and drops the rest.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	if n > 0 {
		if _, err := l.w.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
