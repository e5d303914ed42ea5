package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/test/process"
)

// An agent is a status server in this process, to which the command wait sends requests.
type agent struct {
	board   *readiness.Board
	journal *status.Journal
	stop    func()
}

func startAgent(t *testing.T, o status.Options) (*agent, net.Addr) {
	t.Helper()
	a := &agent{board: readiness.New(readiness.Options{Conditions: []readiness.Condition{readiness.ControlPlane, readiness.App}}), journal: status.NewJournal(status.JournalOptions{})}
	o.Board, o.Journal = a.board, a.journal
	s, err := status.Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(a.stop)
	return a, s.Addresses()[0]
}

// command runs outrider-agent in this process, and returns its exit status and its output.
func command(args ...string) (int, string) {
	var out bytes.Buffer
	code := run(args, &out, &out)
	return code, out.String()
}

// begin runs the command wait in the background, and returns a channel that gets the status and the output.
func begin(args ...string) <-chan string {
	done := make(chan string, 1)
	go func() {
		code, out := command(append([]string{"outrider-agent", "wait"}, args...)...)
		done <- fmt.Sprint(code, " ", out)
	}()
	return done
}

func (a *agent) held(t *testing.T, n int) {
	t.Helper()
	process.Retry(t, func() error {
		if is := a.board.Waiting(); is != n {
			return fmt.Errorf("%d are held; want %d", is, n)
		}
		return nil
	})
}

func TestWaitIsHeldAndReleased(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	a, addr := startAgent(t, status.Options{Ports: []uint16{0}, Socket: socket})
	url := fmt.Sprintf("--url=http://localhost:%d/healthz/ready", addr.(*net.TCPAddr).Port)
	// --requestTimeoutMillis does not end a request that the agent holds.
	outbound := begin(url, "--requestTimeoutMillis=1000", "--as=app")
	full := begin("--url=unix://"+socket, "--level=full", "--requestTimeoutMillis=1000")
	a.held(t, 2)
	time.Sleep(1500 * time.Millisecond) // longer than --requestTimeoutMillis
	a.held(t, 2)
	a.board.Set(readiness.ControlPlane, true, "")
	if got := <-outbound; got != "0 " {
		t.Errorf("outbound: %s", got)
	}
	a.held(t, 1)
	a.board.Set(readiness.App, true, "")
	if got := <-full; got != "0 " {
		t.Errorf("full: %s", got)
	}
	if code, out := command("pilot-agent", "wait", url); code != 0 || out != "" {
		t.Errorf("when it is ready already: %d %s", code, out)
	}
	var names []string
	for _, e := range a.journal.Record().Entries {
		names = append(names, e.Name)
	}
	// The request for level full is answered with reasons after half a second. The next request stays open.
	if len(names) != 3 || !strings.Contains(strings.Join(names, " "), `"app" (`) { // no request was sent twice
		t.Errorf("the journal has %q", names)
	}
}

func TestReasonsOfAFailedWait(t *testing.T) {
	a, addr := startAgent(t, status.Options{Ports: []uint16{0}})
	a.board.Set(readiness.ControlPlane, false, "cp:15012 cannot be reached")
	code, out := command("outrider-agent", "wait", "--timeoutSeconds=1", fmt.Sprintf("--url=http://localhost:%d/healthz/ready", addr.(*net.TCPAddr).Port))
	if code != 1 || !strings.HasPrefix(out, "outrider-agent: error: the proxy was not ready within 1s: no-control-plane: cp:15012 cannot be reached\n"+
		"outrider-agent: hint: is the control plane running") {
		t.Errorf("%d %s", code, out)
	}
	if n := len(a.journal.Record().Entries); n != 1 {
		t.Errorf("%d requests in the journal", n)
	}
}

func TestAnAgentThatComesLaterOrAgainIsFound(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	for _, with := range []string{dir, filepath.Join(dir, "not-there")} { // with an event of the directory, and without
		done := begin("--url=unix://"+socket, "--state-dir="+with)
		first, _ := startAgent(t, status.Options{Ports: []uint16{0}, Socket: socket, StateDir: dir})
		first.held(t, 1)
		first.stop()
		second, _ := startAgent(t, status.Options{Ports: []uint16{0}, Socket: socket, StateDir: dir})
		second.held(t, 1)
		second.board.Set(readiness.ControlPlane, true, "")
		if got := <-done; got != "0 " {
			t.Errorf("with %s: %s", with, got)
		}
		second.stop()
	}
}

func TestAnEndpointOfAnotherMeshIsPolled(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := requests.Add(1); {
		case n == 1:
			<-r.Context().Done() // the server hangs, and does not report that the request is held
		case n < 4:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	began := time.Now()
	unchanged := "--state-dir=" + t.TempDir() // a change, or a directory that does not exist, would end a pause
	if code, out := command("outrider-agent", "wait", "--url="+s.URL+"/healthz/ready", "--requestTimeoutMillis=1000", unchanged); code != 0 || requests.Load() != 4 {
		t.Errorf("%d %s after %d requests", code, out, requests.Load())
	}
	if d := time.Since(began); d < time.Second {
		t.Errorf("it took %v: the request that hangs had no time", d)
	}
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no\nway", http.StatusTeapot) })
	if code, out := command("outrider-agent", "wait", "--timeoutSeconds=1", "--requestTimeoutMillis=60000", "--url="+s.URL); code != 1 || !strings.Contains(out, "within 1s: it answers 418 no way\n") {
		t.Errorf("%d %s", code, out)
	}
}

func TestRequestPrintsTheAnswer(t *testing.T) {
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.RequestURI + " " + string(body)
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusForbidden)
		}
		io.WriteString(w, "an answer\n")
	}))
	defer s.Close()
	port := s.URL[strings.LastIndexByte(s.URL, ':')+1:]
	ports := []string{"--debug-port=" + port, "--status-port=" + port}
	if code, out := command(append([]string{"pilot-agent", "request", "post", "drain?a=b", "text"}, ports...)...); code != 0 || out != "an answer\n" || got != "POST /drain?a=b text" {
		t.Errorf("%d %s, %s", code, out, got)
	}
	if code, out := command(append([]string{"outrider-agent", "request", "GET", "/bad"}, ports...)...); code != 1 || !strings.HasPrefix(out, "an answer\noutrider-agent: error: GET http://localhost:"+port+"/bad: status 403 Forbidden") {
		t.Errorf("%d %s", code, out)
	}
}

// The hook that injection writes for a container with a probe is a valid command line.
func TestWaitTakesTheArgumentsOfAWrittenHook(t *testing.T) {
	cmd := newWait()
	cmd.SetArgs(contract.WaitArgs(`{"exec":{"command":["true"]}}`)[1:])
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Error(err)
	}
}

func FuzzGroups(f *testing.F) {
	f.Add("0,1337")
	f.Add("4294967295")
	f.Fuzz(func(t *testing.T, text string) {
		groups, err := parseGroups(text)
		if err == nil && len(groups) != strings.Count(text, ",")+1 {
			t.Errorf("%q is read as %v", text, groups)
		}
	})
}
