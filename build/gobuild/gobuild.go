// Package gobuild runs builds that take minutes, and says how far they are.
package gobuild

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Run runs a "go build -v", made by exec.CommandContext with ctx. It calls print with the state
// of the build every interval. The error has the last lines that are no progress.
//
// The compilers are in a process group with the go command, and end with it.
func Run(ctx context.Context, cmd *exec.Cmd, interval time.Duration, print func(state string)) error {
	r := &report{}
	cmd.Stdout, cmd.Stderr = r, r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	stop := r.every(interval, print)
	defer stop()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%w%s", err, r.tail())
	}
	return nil
}

// A report understands what "go build -v" prints.
type report struct {
	mu                   sync.Mutex
	rest                 []byte   // of a line that is not complete
	other                []string // lines that are no progress, so probably errors
	downloaded, compiled int
}

func (r *report) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, p...)
	for {
		advance, line, _ := bufio.ScanLines(r.rest, false)
		if advance == 0 {
			return len(p), nil
		}
		r.rest = r.rest[advance:]
		switch {
		case bytes.HasPrefix(line, []byte("go: downloading ")):
			r.downloaded++
		case !bytes.ContainsAny(line, " :"): // the path of a package
			r.compiled++
		default:
			r.other = append(r.other, string(line))
		}
	}
}

// tail returns the last lines that are no progress, each on a line of its own.
func (r *report) tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, line := range append(r.other, string(r.rest))[max(0, len(r.other)-20):] {
		if line != "" {
			b.WriteString("\n" + line)
		}
	}
	return b.String()
}

// every calls print with the state of the build until stop is called.
func (r *report) every(d time.Duration, print func(state string)) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			r.mu.Lock()
			state := fmt.Sprintf("%d modules downloaded, %d packages compiled", r.downloaded, r.compiled)
			r.mu.Unlock()
			print(state)
		}
	})
	return func() { close(done); wg.Wait() }
}
