package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// role names the environment variable that makes the test binary play a child.
const role = "OUTRIDER_TEST_ROLE"

func TestMain(m *testing.M) {
	name := os.Getenv(role)
	if name == "" {
		os.Exit(m.Run())
	}
	act, ok := roles[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such role:", name)
		os.Exit(100)
	}
	act(os.Args[1:])
	os.Exit(0)
}

var roles map[string]func([]string)

func init() { // in init, because roles and the functions in it refer to one another
	roles = map[string]func([]string){
		"exit": func(args []string) {
			fmt.Println("out")
			fmt.Fprintln(os.Stderr, "err")
			n, _ := strconv.Atoi(args[0])
			os.Exit(n)
		},
		"talk": func([]string) { // many lines, a long one, and a last one without a newline
			for i := range 2000 {
				fmt.Fprintln(os.Stderr, "line", i)
			}
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 100_000))
			fmt.Fprint(os.Stderr, "the end")
		},
		"sleep": func([]string) { time.Sleep(time.Minute) },
		"usr1": func([]string) {
			got := make(chan os.Signal, 1)
			signal.Notify(got, syscall.SIGUSR1)
			fmt.Println("listening")
			<-got
			os.Exit(7)
		},
		"leave": func([]string) { // starts a grandchild that holds the pipes
			c := self("sleep")
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			must(c.Start())
			fmt.Println(c.Process.Pid)
			os.Exit(0)
		},
		"agent":  actAgent,
		"reaper": actReaper,
		"orphan": func([]string) { // starts a grandchild and leaves it
			c := self("exit", "0")
			must(c.Start())
		},
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
}

// env returns the environment that makes the test binary play a role. Without GORACE, a test
// binary with the race detector waits a second at exit.
func env(name string) []string {
	return append(os.Environ(), role+"="+name, "GORACE=atexit_sleep_ms=0")
}

func self(name string, args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = env(name)
	return c
}

// child returns a command that plays a role. All children of this test play that role.
func child(t *testing.T, name string) Command {
	t.Setenv(role, name)
	return Command{Path: "/proc/self/exe"}
}

// actAgent starts children from goroutines whose threads end at once, and keeps running. It
// uses several goroutines because one of them may run on the main thread, which does not end.
func actAgent([]string) {
	must(os.Setenv(role, "sleep"))
	var together, started sync.WaitGroup
	together.Add(3)
	pids := make([]int, 3)
	for i := range pids {
		started.Go(func() {
			runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
			together.Done()
			together.Wait()
			p, err := Start(Command{Path: "/proc/self/exe"})
			if err != nil {
				must(err)
			}
			pids[i] = p.PID()
		})
	}
	started.Wait()
	fmt.Println(pids[0], pids[1], pids[2])
	time.Sleep(time.Minute)
}

// actReaper starts orphans and ordinary children at the same time. It checks that each
// ordinary child's status is returned, and that each orphan is collected.
func actReaper(args []string) {
	if len(args) > 0 && args[0] == "pid1" {
		must(unix.Mount("proc", "/proc", "proc", 0, ""))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Reap(ctx) }()
	for !isSubreaper() { // an orphan made before would go to process 1 of the machine
		time.Sleep(time.Millisecond)
	}
	const rounds = 40
	var wg sync.WaitGroup
	var stolen, wrong atomic.Int32
	for worker := range 4 {
		wg.Go(func() {
			for i := range rounds / 4 {
				want := 1 + (worker*10+i)%100
				c := self("exit", strconv.Itoa(want))
				must(c.Start())
				time.Sleep(time.Duration(i) * time.Millisecond) // often the child is a zombie before Wait is called
				var exit *exec.ExitError
				switch err := c.Wait(); {
				case !errors.As(err, &exit):
					stolen.Add(1)
				case exit.ExitCode() != want:
					wrong.Add(1)
				}
				must(self("orphan").Run())
			}
		})
	}
	wg.Wait()
	for end := time.Now().Add(time.Minute); len(children()) > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	orphans := len(children()) // counted now, because Reap goes on and may collect the child below first
	// A child that is never waited for is left until its owner releases it.
	c := self("exit", "0")
	must(c.Start())
	// The first thread may be a zombie that cannot be collected yet, while other threads end.
	must(unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	left, err := reapAll()
	must(err)
	kept := len(children())
	must(c.Process.Release())
	_, err = reapAll()
	must(err)
	cancel()
	must(<-done)
	fmt.Printf("pid %v orphans %d stolen %d wrong %d left %d kept %d children %d\n", os.Getpid() == 1,
		orphans, stolen.Load(), wrong.Load(), left, kept, len(children()))
}

// children returns this process's children, ended or not.
func children() []string {
	files, err := filepath.Glob("/proc/self/task/*/children")
	must(err)
	var out []string
	for _, f := range files {
		raw, _ := os.ReadFile(f) // an error means that the thread has ended
		out = append(out, strings.Fields(string(raw))...)
	}
	return out
}

// isSubreaper reports whether this process inherits orphans.
func isSubreaper() bool {
	var set int32
	must(unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&set)), 0, 0, 0))
	return set != 0 || os.Getpid() == 1
}

func TestOnlyOrphansAreReaped(t *testing.T) {
	run := func(t *testing.T, attr *syscall.SysProcAttr, first string, args ...string) {
		c := self("reaper", args...)
		c.SysProcAttr = attr
		out, err := c.CombinedOutput()
		want := "pid " + first + " orphans 0 stolen 0 wrong 0 left 1 kept 1 children 0"
		if got := strings.TrimSpace(lastLine(string(out))); err != nil || got != want {
			t.Errorf("got  %s\nwant %s (%v)", out, want, err)
		}
	}
	t.Run("as a subreaper", func(t *testing.T) { run(t, nil, "false") })
	t.Run("as PID 1", func(t *testing.T) {
		ns.RequireRoot(t)
		run(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}, "true", "pid1")
	})
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func TestEveryWayToEnd(t *testing.T) {
	tests := map[string]struct {
		does string
		want string
		code int
	}{
		"fine":                  {"exit 0", "exit status 0", 1},
		"a status":              {"exit 42", "exit status 42", 42},
		"segmentation fault":    {"kill -SEGV $$", "killed by SIGSEGV", 139},
		"abort":                 {"kill -ABRT $$", "killed by SIGABRT", 134},
		"killed, out of memory": {"kill -KILL $$", "killed by SIGKILL", 137},
		"terminated":            {"kill -TERM $$", "killed by SIGTERM", 143},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := Start(Command{Path: "sh", Args: []string{"-c", "ulimit -c 0; " + tt.does}})
			if err != nil {
				t.Fatal(err)
			}
			e := p.Exit()
			if e.String() != tt.want || e.Code() != tt.code || e.PID != p.PID() {
				t.Errorf("%v, code %d; want %s, %d", e, e.Code(), tt.want, tt.code)
			}
		})
	}
}

func TestEveryWayNotToStart(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xb7\x00" // arm64
	if runtime.GOARCH == "arm64" {
		foreign = strings.Replace(foreign, "\xb7", "\x3e", 1)
	}
	tests := map[string]struct {
		path, want string
		status     int
	}{
		"missing":            {filepath.Join(dir, "nowhere"), "no such file", NotFound},
		"not in PATH":        {"outrider-no-such-program", "no such file in PATH", NotFound},
		"not executable":     {file("mode", "#!/bin/sh\n", 0o644), "must not be executed", NotRunnable},
		"a directory":        {dir, "must not be executed", NotRunnable},
		"another machine's":  {file("foreign", foreign+strings.Repeat("\x00", 100), 0o755), "it is for ", NotRunnable},
		"a text":             {file("text", "hello", 0o755), "no ELF file", NotRunnable},
		"without its loader": {file("loader", "#!/nowhere/sh\n", 0o755), "loader or interpreter is missing", NotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Start(Command{Path: tt.path})
			if err == nil || !strings.Contains(err.Error(), tt.want) || err.Status != tt.status || !err.Final {
				t.Errorf("Start: %+v; want %q, status %d", err, tt.want, tt.status)
			}
		})
	}
}

func TestLinesAreGivenAndTheLastKept(t *testing.T) {
	c := child(t, "talk")
	var lines []string
	c.Line = func(b []byte) { lines = append(lines, string(b)) }
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	got := p.Exit().Tail
	if len(lines) != 2002 || lines[1999] != "line 1999" || len(lines[2000]) != lineLimit || lines[2001] != "the end" {
		t.Errorf("%d lines", len(lines))
	}
	if len(got) != tailLines || got[tailLines-3] != "line 1999" || len(got[tailLines-2]) != keptLimit || got[tailLines-1] != "the end" {
		t.Errorf("%d kept: %.60q", len(got), got)
	}
}

func TestTheTailIsBounded(t *testing.T) {
	var o output
	for range 5000 {
		o.Write(append(make([]byte, lineLimit), "\nx\n"...))
	}
	if n := len(strings.Join(o.last, "")); n > tailLimit || n < tailLimit-keptLimit || n != o.bytes {
		t.Errorf("%d bytes in %d lines, counted %d", n, len(o.last), o.bytes)
	}
}

func TestMessageFitsTheKubelet(t *testing.T) {
	long := strings.Repeat("é", 1500) + "x"
	for name, m := range map[string]string{
		"many lines":    Message("why", []string{"first", long, "last"}),
		"a long reason": Message(strings.Repeat("é", 5000), []string{"last"}),
		"nothing":       Message("", nil),
	} {
		if len(m) > messageLimit || !strings.HasSuffix(m, "\n") {
			t.Errorf("%s: %d bytes", name, len(m))
		}
	}
	if got := Message("why", []string{"a", "b"}); got != "why\na\nb\n" {
		t.Errorf("Message = %q", got)
	}
}

func TestWhatHoldsThePipesDoesNotHoldTheEnd(t *testing.T) {
	c := child(t, "leave")
	pid := make(chan int, 1)
	c.Line = func(b []byte) { n, _ := strconv.Atoi(string(b)); pid <- n }
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	p.Exit()
	process.AwaitEnd(t, <-pid) // the grandchild was in the group, so it was killed
}

func TestAnAgentThatIsKilledTakesTheChildAlong(t *testing.T) {
	agent := process.Start(t, self("agent"), process.Options{})
	pids := make([]int, 3)
	process.Eventually(t, "three children", func() bool {
		n, _ := fmt.Sscanln(agent.Log(), &pids[0], &pids[1], &pids[2])
		return n == 3
	}, agent)
	// The goroutines that started the children have ended by now, and so have their threads.
	time.Sleep(100 * time.Millisecond)
	for _, pid := range pids {
		if gone(pid) {
			t.Errorf("child %d of %v ended with the thread of the goroutine that started it", pid, pids)
		}
	}
	agent.Kill()
	for _, pid := range pids {
		process.AwaitEnd(t, pid)
	}
}

// gone reports whether a process has ended; it may not have been reaped yet.
func gone(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	state := statFields(string(raw))[0]
	return state == "Z" || state == "X"
}
