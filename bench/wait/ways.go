package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/ready"
	"outrider.dev/test/process"
)

// A way describes one way to wait for a dependency.
type way struct {
	name  string
	polls bool
	// begin starts the waiter and returns once it waits. release makes the dependency ready;
	// released returns when the waiter has continued.
	begin func(*place) (release, released func() error, err error)
}

var ways = []way{
	{"a held request is answered", false, (*place).heldRequest},
	{"outrider-agent wait ends", false, func(p *place) (release, released func() error, err error) {
		cmd := exec.Command(p.agent, "wait", "--url="+p.url())
		if err := process.StartBound(cmd); err != nil {
			return nil, nil, err
		}
		return p.proxyReady, cmd.Wait, p.awaitHeld()
	}},
	{"ready.Wait returns", false, func(p *place) (release, released func() error, err error) {
		return p.proxyReady, p.library(p.url()), p.awaitHeld()
	}},
	{"ready.Wait returns, of an agent that holds no requests", false, func(p *place) (release, released func() error, err error) {
		var ready, asked atomic.Bool
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Store(true)
			if !ready.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		p.ends = append(p.ends, server.Close)
		released = p.library(server.URL + "/healthz/ready")
		return func() error { ready.Store(true); return nil }, released, await(asked.Load)
	}},
	{"a poll every 500 ms is answered", true, (*place).poll},
	{"a poll every second is answered", true, (*place).pollSlowly},
	{"a gate by state runs its command", false, (*place).gateByState},
	{"a gate by a held request runs its command", false, func(p *place) (release, released func() error, err error) {
		return p.gateByRequest(func(_ http.ResponseWriter, r *http.Request, ready <-chan struct{}) {
			select {
			case <-ready:
			case <-r.Context().Done():
			}
		})
	}},
	{"a gate by requests answered at once runs its command", false, func(p *place) (release, released func() error, err error) {
		return p.gateByRequest(func(w http.ResponseWriter, _ *http.Request, ready <-chan struct{}) {
			select {
			case <-ready:
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
	}},
	{"a shell loop with sleep 1 runs its command", true, func(p *place) (release, released func() error, err error) {
		file := filepath.Join(p.dir, "ready")
		start, released, err := p.command("sh", "-c", `until test -e "$0"; do sleep 1; done; exec "$@"`, file)
		if err != nil {
			return nil, nil, err
		}
		return func() error { return os.WriteFile(file, nil, 0o644) }, released, start()
	}},
	{"baseline: the command without a wait", false, func(p *place) (release, released func() error, err error) { return p.command() }},
	{"ready already: outrider-agent wait, whole run", false, func(p *place) (release, released func() error, err error) {
		p.proxyReady()
		return exec.Command(p.agent, "wait", "--url="+p.url()).Run, func() error { return nil }, nil
	}},
	{"baseline: outrider-agent version, whole run", false, func(p *place) (release, released func() error, err error) {
		return exec.Command(p.agent, "version").Run, func() error { return nil }, nil
	}},
}

// A place is the environment of one wait.
type place struct {
	dir, agent string
	board      *readiness.Board // the readiness of a proxy, served at address
	address    string
	watch      *state.Watch
	ends       []func()
}

func (p *place) url() string    { return "http://" + p.address + "/healthz/ready" }
func (p *place) states() string { return filepath.Join(p.dir, "state") }
func (p *place) own(container string) state.Place {
	return state.Place{Container: container, States: p.states(), Own: filepath.Join(p.states(), container)}
}

func (p *place) make() error {
	p.board.Set(readiness.Envoy, false, "the bench waits")
	p.ends = append(p.ends, func() { os.RemoveAll(p.dir) })
	for _, name := range []string{"app", "dep", "bench"} {
		if err := os.MkdirAll(p.own(name).Own, 0o777); err != nil {
			return err
		}
	}
	var err error
	if p.watch, err = state.NewWatch(p.own("bench")); err == nil {
		p.ends = append(p.ends, func() { p.watch.Close() })
	}
	return err
}

func (p *place) cleanUp() {
	for _, end := range p.ends {
		defer end()
	}
}

// proxyReady makes the proxy of the board ready.
func (p *place) proxyReady() error {
	p.board.Set(readiness.Envoy, true, "")
	return nil
}

// awaitHeld returns once the status server holds a request.
func (p *place) awaitHeld() error { return await(func() bool { return p.board.Waiting() > 0 }) }

func await(waits func() bool) error {
	for end := time.Now().Add(time.Minute); !waits(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			return errors.New("no request waits")
		}
	}
	return nil
}

// library starts a wait in this process, as an application does.
func (p *place) library(url string) (released func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	p.ends = append(p.ends, cancel)
	ended := make(chan error, 1)
	go func() { ended <- ready.Wait(ctx, ready.Proxy(url), ready.Log(slog.New(slog.DiscardHandler))) }()
	return func() error { return <-ended }
}

// request sends a request to the status server and returns a function that reads the
// answer's status.
func (p *place) request(query string) (ok func() (bool, error), err error) {
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "GET /healthz/ready%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", query)
	return func() (bool, error) {
		defer c.Close()
		first := make([]byte, 12)
		_, err := io.ReadFull(c, first)
		return strings.HasSuffix(string(first), " 200"), err
	}, nil
}

func (p *place) heldRequest() (release, released func() error, err error) {
	ok, err := p.request("?wait=1m")
	if err != nil {
		return nil, nil, err
	}
	return p.proxyReady, func() error {
		ok, err := ok()
		if err == nil && !ok {
			err = errors.New("the held request is not answered with 200")
		}
		return err
	}, p.awaitHeld()
}

// poll waits as pilot-agent wait does by default.
func (p *place) poll() (release, released func() error, err error) {
	return p.pollEvery(500 * time.Millisecond)
}

// pollSlowly polls once a second, as many scripts do.
func (p *place) pollSlowly() (release, released func() error, err error) {
	return p.pollEvery(time.Second)
}

func (p *place) pollEvery(period time.Duration) (release, released func() error, err error) {
	ended := make(chan error, 1)
	go func() {
		for ; ; time.Sleep(period) {
			ok, err := p.request("")
			if err != nil {
				ended <- err
				return
			}
			if ready, err := ok(); ready || err != nil {
				ended <- err
				return
			}
		}
	}()
	return p.proxyReady, func() error { return <-ended }, nil
}

// command prepares a process and returns functions that start it and await its first output. argv is
// put before its command line.
func (p *place) command(argv ...string) (start, running func() error, err error) {
	argv = append(argv, "/bin/echo")
	cmd := exec.Command(argv[0], argv[1:]...)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout = in
	p.ends = append(p.ends, func() {
		in.Close()
		out.Close()
		if cmd.Process != nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return func() error { return process.StartBound(cmd) }, func() error {
		in.Close() // ends the read when the command ends
		if _, err := out.Read(make([]byte, 1)); err != nil {
			return fmt.Errorf("the command has no output: %w", err)
		}
		return nil
	}, nil
}

// gate starts a command behind a gate and returns once the gate waits.
func (p *place) gate(flags ...string) (running func() error, err error) {
	argv := append([]string{p.agent, "gate", "--name", "app", "--states", p.states(), "--own", p.own("app").Own, "--after", "dep is healthy"}, flags...)
	start, running, err := p.command(append(argv, "--")...)
	if err != nil {
		return nil, err
	}
	if err := start(); err != nil {
		return nil, err
	}
	for late := time.After(time.Minute); ; {
		seen, err := p.watch.Read("app")
		if err != nil || seen.Known {
			return running, err
		}
		select {
		case <-p.watch.C:
		case <-late:
			return nil, errors.New("the gate does not wait within a minute")
		}
	}
}

func (p *place) gateByState() (release, released func() error, err error) {
	dep, err := state.Open(p.own("dep"), state.Record{Phase: state.Running})
	if err != nil {
		return nil, nil, err
	}
	p.ends = append(p.ends, func() { dep.Close() })
	running, err := p.gate()
	return func() error { return dep.Update(func(r *state.Record) { r.Healthy = true }) }, running, err
}

func (p *place) gateByRequest(handle func(http.ResponseWriter, *http.Request, <-chan struct{})) (release, released func() error, err error) {
	ready := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, ready) }))
	once := sync.OnceFunc(func() { close(ready) })
	p.ends = append(p.ends, server.Close, once)
	running, err := p.gate("--at", "dep="+server.URL+"/ready")
	return func() error { once(); return nil }, running, err
}
