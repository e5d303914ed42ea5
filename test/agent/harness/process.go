package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

// A Process is a program in a namespace. It is killed with the test, and with the test's
// own process.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// start runs a program as a user; its output goes to the log file. The
// directory of the log is the caller's.
func start(t testing.TB, in *ns.Namespace, user uint32, cmd *exec.Cmd, log string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: cmd, log: log, done: make(chan struct{})}
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stderr = out
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// The signal comes when the thread ends that forks: it stays until the child is gone.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
	started := make(chan error, 1)
	go in.Do(func() {
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(p.done)
		}
	})
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if strings.Contains(p.Log(), "WARNING: DATA RACE") {
			t.Error("a data race in a command, built with the detector as this test is")
		}
		if t.Failed() {
			t.Logf("%s:\n%s", log, tail(p.Log(), 6000))
		}
	})
	return p
}

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is its output.
func (p *Process) Log() string {
	raw, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
	}
	return string(raw)
}

// Signal sends one.
func (p *Process) Signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
}

// Kill ends it and waits for that.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for its end, and returns the status.
func (p *Process) Exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Fatalf("%s still runs", p.cmd.Path)
	}
	return p.cmd.ProcessState.ExitCode()
}

// KillAndWatch kills a process that is not the test's child, and returns when it is gone,
// with the moments before and after.
func KillAndWatch(t testing.TB, pid int) (before, after time.Time) {
	t.Helper()
	before = time.Now()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	AwaitEnd(t, pid)
	return before, time.Now()
}

// AwaitEnd waits until a process that is not the test's child has ended, whether or not
// its status has been reaped, and returns how long that took.
func AwaitEnd(t testing.TB, pid int) time.Duration {
	t.Helper()
	begin := time.Now()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return 0
	}
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(Patience.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("process %d does not end: %v", pid, err)
		}
		return time.Since(begin)
	}
}

// Child returns the number of a process's only child.
func (p *Process) Child() (pid int, ok bool) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID()))
	if err != nil {
		return 0, false
	}
	for _, task := range tasks {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", p.PID(), task.Name()))
		if _, err := fmt.Sscan(string(raw), &pid); err == nil {
			return pid, true
		}
	}
	return 0, false
}

// Patience is when what has not happened on a busy machine will not.
const Patience = 2 * time.Minute

// Eventually polls a condition until it holds.
func Eventually(t testing.TB, what string, holds func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for time.Since(begin) < Patience {
		if holds() {
			return time.Since(begin)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never seen: %s", what)
	return 0
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	_, s, _ = strings.Cut(s[len(s)-n:], "\n")
	return "...\n" + s
}
