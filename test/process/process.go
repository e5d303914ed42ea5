// Package process starts the programs of tests, and waits for their effects.
//
// A program ends with the test that started it. If the test's own process ends first,
// even if it is killed, the kernel kills the program. A wait ends when the condition holds, when a
// process that it depends on has ended, or after [Patience]. The failure message describes how that
// process ended, and names a file with its complete log.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Patience is the time limit of a wait. A condition that does not hold by then, even on a busy
// machine, never will.
const Patience = 2 * time.Minute

// A Process is a running program.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  string
	kept string
	done chan struct{} // closed when the process has ended
}

// Options configure a process. The zero value of a field means its default.
type Options struct {
	// In runs a function on a thread that lives until the function returns, for example in a network
	// namespace. The program is started by that function. The default is an ordinary thread.
	In func(func())
	// Log is the path of a file for the outputs that cmd does not set. The default is a file in the
	// test's temporary folder.
	Log string
	// User and group of the process; 0 keeps those of the test.
	User uint32
}

// Start starts cmd. The process is killed at the end of the test.
func Start(t testing.TB, cmd *exec.Cmd, o Options) *Process {
	t.Helper()
	if o.In == nil {
		o.In = onThread
	}
	if o.Log == "" {
		o.Log = filepath.Join(t.TempDir(), filepath.Base(cmd.Path)+".log")
	}
	p := &Process{t: t, cmd: cmd, log: o.Log, done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = orElse(cmd.Stdout, out), orElse(cmd.Stderr, out)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if o.User != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.User, Gid: o.User}
	}
	// The kernel sends the signal when the thread that started the child ends, so the thread must live
	// as long as the child.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	go o.In(func() {
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
			t.Logf("%s, its last lines:\n%s", p.End(), tail(p.Log()))
		}
	})
	return p
}

func orElse(w io.Writer, other *os.File) io.Writer {
	if w == nil {
		return other
	}
	return w
}

func onThread(f func()) {
	runtime.LockOSThread() // never unlocked, so that the thread ends with f
	f()
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log returns the output so far.
func (p *Process) Log() string {
	raw, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
	}
	return string(raw)
}

// Signal sends a signal. It does nothing if the process has ended. After SIGSTOP it returns when
// all threads are stopped.
func (p *Process) Signal(s syscall.Signal) {
	err := p.cmd.Process.Signal(s)
	if err == nil && s == syscall.SIGSTOP {
		err = unix.Waitid(unix.P_PID, p.PID(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
}

// Kill kills the process and waits until it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for the end of the process and returns its exit status; -1 means a signal.
func (p *Process) Exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Fatalf("still running after %s: %s", Patience, p.End())
	}
	return p.cmd.ProcessState.ExitCode()
}

// End describes the process and how it ended. It copies the complete log to a file that outlives the test's
// temporary folder, and names that file.
func (p *Process) End() string {
	state := "runs"
	select {
	case <-p.done:
		state = "ended with " + p.cmd.ProcessState.String()
	default:
	}
	return fmt.Sprintf("%s (process %d) %s; its log is in %s", filepath.Base(p.cmd.Path), p.PID(), state, p.keep())
}

// keep copies the log to a file that outlives the test.
func (p *Process) keep() string {
	if p.kept == "" {
		dir := os.Getenv("OUTRIDER_LOGS")
		if dir == "" {
			dir = filepath.Join(os.TempDir(), "outrider-logs")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err.Error()
		}
		f, err := os.CreateTemp(dir, strings.NewReplacer("/", "-", " ", "-").Replace(p.t.Name())+"-*-"+filepath.Base(p.log))
		if err != nil {
			return err.Error()
		}
		f.Close()
		p.kept = f.Name()
	}
	if err := os.WriteFile(p.kept, []byte(p.Log()), 0o644); err != nil {
		return err.Error()
	}
	return p.kept
}

// A Peer is a process that a wait depends on.
type Peer interface {
	// Done returns a channel that is closed when the process has ended.
	Done() <-chan struct{}
	// End describes how the process ended, and the path of its log.
	End() string
}

// Eventually polls a condition until it holds, and returns the time until then. If the condition does
// not hold within [Patience], or when one of the peers has ended, it fails the test.
func Eventually(t testing.TB, what string, holds func() bool, peers ...Peer) time.Duration {
	t.Helper()
	return poll(t, func() (bool, string) { return holds(), what }, peers)
}

// EventuallyEqual polls a value until it equals want, as [Eventually] polls a condition. The failure message shows
// the difference between want and the last value.
func EventuallyEqual[T any](t testing.TB, what string, want T, get func() T, peers ...Peer) {
	t.Helper()
	poll(t, func() (bool, string) {
		diff := cmp.Diff(want, get())
		return diff == "", what + " (-want +got):\n" + diff
	}, peers)
}

// Retry calls the function try until it returns nil, as [Eventually] does with a condition. The failure message
// contains the last error.
func Retry(t testing.TB, try func() error, peers ...Peer) time.Duration {
	t.Helper()
	return poll(t, func() (bool, string) {
		if err := try(); err != nil {
			return false, err.Error()
		}
		return true, ""
	}, peers)
}

// poll calls the function ask until its first result is true. Its second result describes the unmet condition.
func poll(t testing.TB, ask func() (yes bool, text string), peers []Peer) time.Duration {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		ended := endedOf(peers) // read before the condition, which may hold because of the last actions of a process
		yes, text := ask()
		if yes {
			return time.Since(begin)
		}
		if ended != nil {
			t.Fatalf("never seen: %s\n%s", text, ended.End())
		}
		if time.Since(begin) > Patience {
			for _, p := range peers {
				text += "\n" + p.End()
			}
			t.Fatalf("not within %s: %s", Patience, text)
		}
	}
}

func endedOf(peers []Peer) Peer {
	for _, p := range peers {
		select {
		case <-p.Done():
			return p
		default:
		}
	}
	return nil
}

// AwaitEnd waits until a process that is not a child of the test has ended, and returns the time until then. A
// zombie has ended.
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

// tail returns the last lines of a log, each shortened. Envoy logs the reason for an abort some 70 lines before the
// end; the dump that follows has lines of many kilobytes.
func tail(log string) string {
	const most, length = 100, 300
	lines := strings.Split(log, "\n")
	if n := len(lines) - most; n > 0 {
		lines = append([]string{"..."}, lines[n:]...)
	}
	for i, l := range lines {
		if len(l) > length {
			lines[i] = l[:length] + "..."
		}
	}
	return strings.Join(lines, "\n")
}
