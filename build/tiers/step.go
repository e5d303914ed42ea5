package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A step is one command of a tier.
type step struct {
	name    string
	command []string
	dir     string   // relative to the root of the module; default: the root
	env     []string // added to the environment of this process
	// If tests is true, the command runs tests and prints the output of "go test -json"; for a plain "go test",
	// the flag -json is added. The output is printed as "go test" without -v does, and tests are counted.
	tests bool
	// If beside is true, the step starts together with the previous step, not after it.
	beside bool
	// If soft is true, a failure of the step makes the run incomplete; only in CI does the run then fail.
	soft    bool
	minutes int // measured duration, to balance parts
}

// line returns the step as a command line for a shell.
func (s step) line() string {
	var b strings.Builder
	if s.dir != "" {
		fmt.Fprintf(&b, "cd %s && ", s.dir)
	}
	for _, e := range s.env {
		b.WriteString(e + " ")
	}
	line := strings.Join(s.command, " ")
	if first, _, cut := strings.Cut(line, "outrider.dev/"); cut && strings.Count(line, "outrider.dev/") > 3 {
		line = fmt.Sprintf("%s... (%d packages)", first, strings.Count(line, "outrider.dev/"))
	}
	b.WriteString(line)
	return b.String()
}

// A result holds the error, the times and the counts of a step that ran.
type result struct {
	step      step
	err       error
	reason    string // for a step that failed: the last line that its command printed
	wall, cpu time.Duration
	counts    counts
}

// run runs a step. It writes the output of tests to out when a package has ended, and any other output at once.
func (s step) run(ctx context.Context, out io.Writer) result {
	args := s.command
	if s.tests {
		if args[1] == "test" {
			args = slices.Insert(slices.Clone(args), 2, "-json")
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	// When ctx ends, the whole process group gets SIGTERM, and a minute to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	r := result{step: s}
	var events *events
	var last tail
	both := io.MultiWriter(out, &last)
	cmd.Stdout, cmd.Stderr = both, both
	if s.tests {
		events = newEvents(out)
		cmd.Stdout = events
	}
	begin := time.Now()
	r.err = cmd.Run()
	r.wall = time.Since(begin)
	r.reason = last.line
	if cmd.ProcessState != nil {
		r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if events != nil {
		r.counts = events.counts
		if r.err == nil && r.counts.passed == 0 {
			r.err = fmt.Errorf("no test was run")
		}
	}
	return r
}

// output runs a command and returns its output.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}

// cause says in one line why a step is red: the tests that failed, or else the last line of its command.
func (r result) cause() string {
	names := r.counts.failed
	if len(names) > mostNamed {
		names = append(slices.Clone(names[:mostNamed]), "...")
	}
	return cmp.Or(strings.Join(names, ", "), r.reason, fmt.Sprint(r.err))
}

// mostNamed is the number of failed tests that the table names for each step.
const mostNamed = 5

// lines writes only whole lines to w, so that the lines of steps that run together do not mix.
type lines struct {
	mu   *sync.Mutex
	w    io.Writer
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	if end := bytes.LastIndexByte(l.rest, '\n'); end >= 0 {
		if _, err := l.w.Write(l.rest[:end+1]); err != nil {
			return 0, err
		}
		l.rest = append([]byte(nil), l.rest[end+1:]...)
	}
	return len(p), nil
}

// tail is a writer that keeps the last line, except messages of make and "go run" about an exit status.
type tail struct{ line string }

func (t *tail) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "make") && !strings.HasPrefix(line, "exit status ") {
			t.line = line
		}
	}
	return len(p), nil
}
