// Command gate measures how long after "the dependency is healthy" a container's command
// runs: behind a gate, behind what people use instead, and behind nothing. No time makes
// it fail.
//
//	go run ./bench/gate -n 200
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"outrider.dev/build/commands"
	"outrider.dev/internal/agent/state"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process. It returns the exit status: 0 measured, 1 something
// failed, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("gate", flag.ContinueOnError)
	fs.SetOutput(stderr)
	n := fs.Int("n", 200, "starts of each case")
	polled := fs.Int("polled", 20, "starts of each case that polls once a second")
	agent := fs.String("agent", "", "outrider-agent to measure (default: built from ./cmd/outrider-agent)")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || *n < 1 || *polled < 1:
		return 2
	}
	if err := measure(*n, *polled, *agent, stdout); err != nil {
		fmt.Fprintf(stderr, "bench/gate: error: %v\n", err)
		return 1
	}
	return 0
}

// A way is one way to hold a command until its dependency is healthy.
type way struct {
	name  string
	polls bool
	// begin returns the command line before the real command, and what makes the
	// dependency healthy; nil if the command is only begun at that moment.
	begin func(*place) (argv []string, release func() error, err error)
	waits func(*place) error // returns when it waits
}

// A place is where one start happens.
type place struct {
	dir, agent string
	watch      *state.Watch
	close      []func()
}

func (p *place) states() string { return filepath.Join(p.dir, "state") }

var ways = []way{
	{"nothing: the command's own start", false, func(p *place) ([]string, func() error, error) {
		return nil, nil, nil
	}, func(*place) error { return nil }},
	{"gate, by state", false, func(p *place) ([]string, func() error, error) {
		w, err := state.Open(state.Place{Container: "dep", States: p.states(), Own: filepath.Join(p.states(), "dep")}, state.Record{Phase: state.Running})
		if err != nil {
			return nil, nil, err
		}
		p.close = append(p.close, func() { w.Close() })
		return p.gate(), func() error { return w.Update(func(r *state.Record) { r.Healthy = true }) }, nil
	}, gateWaits},
	{"gate, by a request that is held", false, func(p *place) ([]string, func() error, error) {
		return p.served(func(w http.ResponseWriter, r *http.Request, ready <-chan struct{}) {
			select {
			case <-ready:
			case <-r.Context().Done():
			}
		})
	}, gateWaits},
	{"gate, by one that answers at once", false, func(p *place) ([]string, func() error, error) {
		return p.served(func(w http.ResponseWriter, _ *http.Request, ready <-chan struct{}) {
			select {
			case <-ready:
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
	}, gateWaits},
	{"a shell loop with sleep 1", true, func(p *place) ([]string, func() error, error) {
		file := filepath.Join(p.dir, "ready")
		return []string{"sh", "-c", `until test -e "$0"; do sleep 1; done; exec "$@"`, file},
			func() error { return os.WriteFile(file, nil, 0o644) }, nil
	}, func(*place) error { return nil }},
}

func (p *place) gate(flags ...string) []string {
	argv := []string{p.agent, "gate", "--name", "app", "--states", p.states(), "--own", filepath.Join(p.states(), "app"), "--after", "dep is healthy"}
	return append(append(argv, flags...), "--")
}

// served asks a server of this program.
func (p *place) served(handle func(http.ResponseWriter, *http.Request, <-chan struct{})) ([]string, func() error, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	ready := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, ready) })}
	go server.Serve(l)
	p.close = append(p.close, func() { server.Close() })
	var once sync.Once
	return p.gate("--at", "dep=http://"+l.Addr().String()+"/ready"), func() error { once.Do(func() { close(ready) }); return nil }, nil
}

func gateWaits(p *place) error {
	for over := time.After(30 * time.Second); ; {
		seen, err := p.watch.Read("app")
		if err != nil || seen.Known {
			return err
		}
		select {
		case <-p.watch.C:
		case <-over:
			return errors.New("the gate does not wait within 30s")
		}
	}
}

func measure(n, polled int, agent string, stdout io.Writer) error {
	root, err := os.MkdirTemp("/dev/shm", "bench-gate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if agent == "" {
		agent = filepath.Join(root, commands.Agent)
		if err := commands.Build(context.Background(), root, commands.Agent); err != nil {
			return err
		}
	}
	// One of each way in turn, so that a bad moment of the machine meets all of them.
	times := make([][]time.Duration, len(ways))
	for i := range max(n, polled) {
		for k, w := range ways {
			if w.polls && i >= polled || !w.polls && i >= n {
				continue
			}
			d, err := once(w, agent, filepath.Join(root, fmt.Sprint(k, "-", i)))
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			times[k] = append(times[k], d)
		}
	}
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "from healthy to the command's first word, ms\tn\tmin\tmedian\tp99\tmax\t")
	for k, w := range ways {
		slices.Sort(times[k])
		at := func(q float64) float64 {
			return float64(times[k][int(q*float64(len(times[k])-1)+0.5)]) / float64(time.Millisecond)
		}
		fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t\n", w.name, len(times[k]), at(0), at(0.5), at(0.99), at(1))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Fprintf(stdout, "Load average at the end: %s", load)
	}
	return err
}

// once is one start.
func once(w way, agent, dir string) (time.Duration, error) {
	p := &place{dir: dir, agent: agent}
	defer os.RemoveAll(dir)
	for _, name := range []string{"app", "dep", "bench"} {
		if err := os.MkdirAll(filepath.Join(p.states(), name), 0o777); err != nil {
			return 0, err
		}
	}
	var err error
	if p.watch, err = state.NewWatch(state.Place{Container: "bench", States: p.states(), Own: filepath.Join(p.states(), "bench")}); err != nil {
		return 0, err
	}
	defer p.watch.Close()
	argv, release, err := w.begin(p)
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, f := range p.close {
			f()
		}
	}()
	// Its first output says that it runs: nothing starts faster that could write down a time.
	argv = append(argv, "/bin/echo")
	cmd := exec.Command(argv[0], argv[1:]...)
	out, in, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer out.Close()
	defer in.Close()
	cmd.Stdout = in
	if release == nil {
		release = cmd.Start
	} else if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		if cmd.Process != nil {
			cmd.Process.Kill()
		}
	}()
	if err := w.waits(p); err != nil {
		return 0, err
	}
	// A moment that no period of a poll knows.
	span := 100 * time.Millisecond
	if w.polls {
		span = time.Second
	}
	time.Sleep(50*time.Millisecond + rand.N(span))
	released := time.Now()
	if err := release(); err != nil {
		return 0, err
	}
	in.Close() // without the command nobody has it then
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return 0, fmt.Errorf("the held command says nothing: %w", err)
	}
	took := time.Since(released)
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("the held command: %w", err)
	}
	return took, nil
}
