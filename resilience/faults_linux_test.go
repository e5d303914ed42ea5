package resilience

import (
	"bufio"
	"context"
	"encoding/binary"
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

// inNamespace is set in the process that the test starts in its own network namespace.
const inNamespace = "RESILIENCE_TEST_IN_NAMESPACE"

// TestRealFaults runs itself again in its own network namespace, which ends with that process. It uses
// real sockets, the kernel's own refusals and resets, and dropped packets.
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
	{"slow", slow},
	{"slow body", slowBody},
	{"flapping", flapping},
	{"half-open connection", halfOpen},
	{"name not found, then found", nameNotFound},
	{"resolver is silent", resolverSilent},
	{"100 clients at a dead server", deadServer},
}

// newNamespace makes sure that no rule is written to the machine's own namespace.
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

// client returns a client with its own transport.
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
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // time limit: it is to pass
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:7003", nil)
	if _, err := c.Do(req); !errors.Is(err, context.DeadlineExceeded) || events.tries(t) > 1 {
		t.Errorf("%v after %d tries", err, events.tries(t))
	}
}

func slow(t *testing.T) {
	var n atomic.Int64
	serve(t, "127.0.0.1:7004", func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			<-r.Context().Done() // until the client gives up
			return
		}
		fmt.Fprint(w, "fast")
	})
	c, events := client(t, Options{TryTimeout: 200 * time.Millisecond, Retry: &Retry{Tries: 10, MinDelay: 1, MaxDelay: 1}})
	if text := answer(c.Get("http://127.0.0.1:7004")); text != "fast" || events.tries(t) < 2 {
		t.Errorf("retry: %q", text)
	}
	n.Store(0)
	c, events = client(t, Options{Hedge: &Hedge{Delay: 20 * time.Millisecond, Max: 1}})
	if text := answer(c.Get("http://127.0.0.1:7004")); text != "fast" || events.tries(t) != 2 {
		t.Errorf("hedge: %q after %d tries", text, events.tries(t))
	}
}

func slowBody(t *testing.T) {
	serve(t, "127.0.0.1:7005", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c, _ := client(t, Options{Timeout: time.Minute, Retry: twoRetries})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // time limit: it is to pass
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:7005", nil)
	if text := answer(c.Do(req)); !strings.HasSuffix(text, context.DeadlineExceeded.Error()) {
		t.Errorf("%q, want the deadline of the request", text)
	}
}

func flapping(t *testing.T) {
	const addr = "127.0.0.1:7006"
	c, events := client(t, Options{Retry: twoRetries, Breaker: &Breaker{FailureRatio: 0.5, MinTries: 4, Window: time.Second, OpenFor: 20 * time.Millisecond}})
	// until makes calls until a decision has been made n times.
	until := func(d Decision, n int) {
		t.Helper()
		for range 5000 {
			answer(c.Get("http://" + addr))
			if len(events.of(d)) >= n {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("no %s number %d", d, n)
	}
	for round := range 3 {
		until(DecidedOpen, round+1)
		s := serve(t, addr, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "up") })
		until(DecidedClose, round+1)
		if text := answer(c.Get("http://" + addr)); text != "up" {
			t.Errorf("round %d: %q from a server that is up, by a breaker that is closed", round, text)
		}
		s.Close()
	}
}

// halfOpen tests a pooled connection whose peer vanished without a packet.
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

// A resolver answers queries for A with a code and an address, and queries for AAAA with no address.
type resolver struct {
	conn  net.PacketConn
	found atomic.Bool // false: NXDOMAIN
	mute  atomic.Bool
}

func newResolver(t *testing.T, addr string) *resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r := &resolver{conn: conn}
	go func() {
		q := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(q)
			if err != nil {
				return
			}
			if !r.mute.Load() {
				conn.WriteTo(r.reply(q[:n]), from)
			}
		}
	}()
	return r
}

// reply builds a message of RFC 1035, section 4.1: header, the question, one answer.
func (r *resolver) reply(q []byte) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	kind := binary.BigEndian.Uint16(q[end+1:])
	end += 5
	out := append([]byte{}, q[:end]...)
	copy(out[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	switch {
	case !r.found.Load():
		out[3] |= 3 // NXDOMAIN
	case kind == 1: // A
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return out
}

// named returns a client that resolves names at addr. before is called before each dial.
func named(t *testing.T, addr string, o Options, before func(n int64)) (*http.Client, *record) {
	lookups := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", addr)
	}}
	dialer := &net.Dialer{Resolver: lookups}
	var dials atomic.Int64
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		before(dials.Add(1))
		return dialer.DialContext(ctx, network, addr)
	}}
	t.Cleanup(base.CloseIdleConnections)
	tr, events := transport(t, base, HTTPOptions{Options: o})
	return &http.Client{Transport: tr}, events
}

func nameNotFound(t *testing.T) {
	serve(t, "127.0.0.1:7008", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "found") })
	r := newResolver(t, "127.0.0.1:7053")
	c, events := named(t, "127.0.0.1:7053", Options{Retry: twoRetries}, func(n int64) { r.found.Store(n == 3) })
	if text := answer(c.Post("http://shop.test:7008", "text/plain", strings.NewReader("text"))); text != "found" {
		t.Errorf("%q", text)
	}
	retries := events.of(DecidedRetry)
	if len(retries) != 2 || retries[0].Class != Absent || retries[1].Class != Absent {
		t.Errorf("%+v, want two retries, as the name was absent", retries)
	}
}

// resolverSilent tests a resolver that does not answer. Go's resolver shares the lookups of a name, so
// another try waits for the query of the first one, which is sent again after five seconds. The call
// must still end in time.
func resolverSilent(t *testing.T) {
	r := newResolver(t, "127.0.0.1:7054")
	r.mute.Store(true)
	c, events := named(t, "127.0.0.1:7054", Options{TryTimeout: 50 * time.Millisecond, Retry: twoRetries}, func(int64) {})
	if _, err := c.Get("http://shop.test:7009"); !errors.Is(err, ErrTimeout) || events.tries(t) != 3 {
		t.Errorf("%v after %d tries", err, events.tries(t))
	}
}

// deadServer simulates processes: each client has the budget of one process.
func deadServer(t *testing.T) {
	n := resets(t, "127.0.0.1:7010")
	const clients, calls = 100, 10
	limits := BudgetOptions{Ratio: 0.2, Burst: 4} // no rate, so that the bound does not depend on the speed of the machine
	var wg sync.WaitGroup
	for range clients {
		c, _ := client(t, Options{Budget: budget(t, limits), Retry: &Retry{Tries: 10, MinDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond}})
		wg.Go(func() {
			for range calls {
				c.Get("http://127.0.0.1:7010")
			}
		})
	}
	wg.Wait()
	most := clients * (calls + float64(limits.Burst) + limits.Ratio*calls)
	if got := float64(n.Load()); got > most || got < most*0.9 {
		t.Errorf("%.0f requests of %d calls, want nearly %.0f and no more", got, clients*calls, most)
	}
}
