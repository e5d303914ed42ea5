package resilience

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// inNamespace is an environment variable. It is set in the process that the test starts in a network namespace.
const inNamespace = "RESILIENCE_TEST_IN_NAMESPACE"

// TestRealFaults starts its program again in a new network namespace, which ends with that process. There it uses
// real sockets, and faults that the kernel makes: refusals, resets and dropped packets.
func TestRealFaults(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		for _, c := range faults {
			t.Run(c.name, c.run)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace and writes packet filter rules in it")
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs the program %s: %v", program, err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRealFaults$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	for _, c := range faults {
		if !strings.Contains(string(out), "--- PASS: TestRealFaults/"+strings.ReplaceAll(c.name, " ", "_")+" ") {
			t.Errorf("%q did not pass", c.name)
		}
	}
	if err != nil || t.Failed() {
		t.Fatalf("%v\n%s", err, out)
	}
}

var faults = []struct {
	name string
	run  func(*testing.T)
}{
	{"the namespace is a new one", newNamespace},
	{"refused", refused},
	{"reset", reset},
	{"black hole", blackHole},
	{"half-open connection", halfOpen},
}

// newNamespace prepares the network namespace. It fails if the process is not in a new one, so that no rule is
// written to the machine's namespace.
func newNamespace(t *testing.T) {
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 || links[0].Name != "lo" {
		t.Fatalf("not in a namespace of its own: %v, %v", links, err)
	}
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "nft", "add", "table", "ip", "faults")
	run(t, "nft", "add", "chain", "ip", "faults", "input", "{ type filter hook input priority 0; }")
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// drop makes the kernel drop matching packets silently.
func drop(t *testing.T, match ...string) {
	t.Helper()
	run(t, append(append([]string{"nft", "add", "rule", "ip", "faults", "input"}, match...), "drop")...)
}

// tries returns the number of tries of the only call.
func (r *record) tries(t *testing.T) int {
	t.Helper()
	done := r.of(Done)
	if len(done) != 1 {
		t.Fatalf("%d calls ended, want 1", len(done))
	}
	return done[0].Try
}

// client returns an HTTP client with a resilience.Transport, and its recorded events.
func client(t *testing.T, o Options) (*http.Client, *record) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = nil
	t.Cleanup(base.CloseIdleConnections)
	tr, events := transport(t, base, HTTPOptions{Options: o})
	return &http.Client{Transport: tr}, events
}

// answer returns the text of a response, or the error.
func answer(resp *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// listen returns a listener that is closed at the end of the test.
func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func serve(t *testing.T, addr string, h http.HandlerFunc) *http.Server {
	t.Helper()
	s, l := &http.Server{Handler: h}, listen(t, addr)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return s
}

func refused(t *testing.T) {
	for method, body := range map[string]string{"GET": "", "POST": "text"} {
		c, events := client(t, Options{Retry: twoRetries})
		req, _ := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:7001", strings.NewReader(body))
		if _, err := c.Do(req); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", method, err)
		}
		if n := events.tries(t); n != 3 || events.of(Done)[0].Class != Absent {
			t.Errorf("%s: %d tries, want 3: it was not sent: %+v", method, n, events.of(Done))
		}
	}
}

// resets accepts connections, reads a request from each and resets it. It counts them.
func resets(t *testing.T, addr string) *atomic.Int64 {
	l, n := listen(t, addr), new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			go func() {
				http.ReadRequest(bufio.NewReader(conn))
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}()
		}
	}()
	return n
}

func reset(t *testing.T) {
	n := resets(t, "127.0.0.1:7002")
	for method, want := range map[string]int{"GET": 3, "POST": 1} {
		n.Store(0)
		c, events := client(t, Options{Retry: twoRetries})
		req, _ := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:7002", nil)
		if _, err := c.Do(req); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", method, err)
		}
		if tries := events.tries(t); tries != want || n.Load() != int64(want) {
			t.Errorf("%s: %d tries, and the server had %d connections; want %d", method, tries, n.Load(), want)
		}
	}
}

func blackHole(t *testing.T) {
	drop(t, "tcp", "dport", "7003")
	c, events := client(t, Options{
		TryTimeout: 100 * time.Millisecond, Retry: twoRetries,
		Breaker: &Breaker{FailureRatio: 1, MinTries: 3, Window: time.Minute, OpenFor: time.Minute},
	})
	if _, err := c.Get("http://127.0.0.1:7003"); !errors.Is(err, ErrTimeout) {
		t.Errorf("error %v", err)
	}
	if n := events.tries(t); n != 3 {
		t.Errorf("%d tries, want 3", n)
	}
	if _, err := c.Get("http://127.0.0.1:7003"); !errors.Is(err, ErrOpen) {
		t.Errorf("after three time-outs: %v", err)
	}
	// Without timeouts of the policy, the caller's deadline ends the call.
	c, events = client(t, Options{Retry: twoRetries})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // time limit: the test waits until it is over
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:7003", nil)
	if _, err := c.Do(req); !errors.Is(err, context.DeadlineExceeded) || events.tries(t) > 1 {
		t.Errorf("%v after %d tries", err, events.tries(t))
	}
}

// halfOpen tests a pooled connection whose peer has disappeared without closing it.
func halfOpen(t *testing.T) {
	var peers sync.Map
	serve(t, "127.0.0.1:7007", func(w http.ResponseWriter, r *http.Request) {
		peers.Store(r.RemoteAddr, true)
		fmt.Fprint(w, r.RemoteAddr)
	})
	c, events := client(t, Options{TryTimeout: 300 * time.Millisecond, Retry: &Retry{Tries: 5, MinDelay: 1, MaxDelay: 1}})
	first := answer(c.Get("http://127.0.0.1:7007"))
	_, port, err := net.SplitHostPort(first)
	if err != nil {
		t.Fatalf("%q: %v", first, err)
	}
	drop(t, "tcp", "sport", port)
	second := answer(c.Get("http://127.0.0.1:7007"))
	if _, ok := peers.Load(second); !ok || second == first {
		t.Errorf("%q, want the answer by another connection than %q", second, first)
	}
	if len(events.of(DecidedRetry)) == 0 {
		t.Error("the dead connection was not used: the test shows nothing")
	}
}
