package status

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// A running is a status server in a test.
type running struct {
	board   *readiness.Board
	journal *Journal
	url     string
	end     func() error
}

func start(t testing.TB, change func(*Options)) *running {
	t.Helper()
	r := &running{
		board:   readiness.New(readiness.Options{Conditions: []readiness.Condition{readiness.Envoy, readiness.App}}),
		journal: NewJournal(JournalOptions{}),
	}
	o := Options{Board: r.board, Journal: r.journal, Ports: []uint16{0}}
	if change != nil {
		change(&o)
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	r.end = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { r.end() })
	r.url = fmt.Sprintf("http://127.0.0.1:%d", s.Addresses()[0].(*net.TCPAddr).Port)
	return r
}

func call(t testing.TB, method, url string, headers ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body), res.Header
}

func TestReadinessHasAReason(t *testing.T) {
	r := start(t, nil)
	code, body, header := call(t, "GET", r.url+"/healthz/ready")
	var got readiness.Status
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != 503 || header.Get("Content-Type") != "application/json" || header.Get(AgentHeader) == "" {
		t.Errorf("%d %s %v, %v", code, body, header, err)
	}
	if len(got.Reasons) != 1 || got.Reasons[0].Code != "envoy-not-live" || got.Reasons[0].Hint == "" {
		t.Errorf("%+v", got)
	}
	code, body, _ = call(t, "GET", r.url+"/healthz/ready?level=full&format=text")
	if code != 503 || !strings.Contains(body, "not ready (full) since 2") || !strings.Contains(body, "app-not-healthy: ") || !strings.Contains(body, "  hint: ") {
		t.Errorf("%d %s", code, body)
	}
	r.board.Set(readiness.Envoy, true, "slow")
	code, body, _ = call(t, "GET", r.url+"/healthz/ready", "Accept", "text/plain")
	if code != 200 || !strings.HasPrefix(body, "ready (outbound) since ") || !strings.Contains(body, "note: slow") {
		t.Errorf("%d %s", code, body)
	}
	if code, body, _ = call(t, "HEAD", r.url+"/healthz/ready"); code != 200 || body != "" {
		t.Errorf("HEAD: %d %s", code, body)
	}
	if code, _, _ = call(t, "HEAD", r.url+"/healthz/ready?level=full"); code != 503 {
		t.Errorf("HEAD full: %d", code)
	}
	for _, q := range []string{"level=half", "wait=soon", "wait=-1s", "wait=99999999999999"} {
		if code, body, _ := call(t, "GET", r.url+"/healthz/ready?"+q); code != 400 || !strings.Contains(body, strings.SplitN(q, "=", 2)[0]) {
			t.Errorf("%s: %d %s", q, code, body)
		}
	}
	r.board.Set(readiness.Envoy, false, "it died")
	if code, body, _ = call(t, "GET", r.url+"/healthz/ready"); code != 503 || !strings.Contains(body, "it died") {
		t.Errorf("after Envoy has ended: %d %s", code, body)
	}
}

func TestAHeldRequestIsReleasedByTheEvent(t *testing.T) {
	r := start(t, nil)
	held := make(chan struct{})
	req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { close(held); return nil },
	}), "GET", r.url+"/healthz/ready?wait=10m", nil)
	req.Header.Set(WaiterHeader, "app")
	code := make(chan int, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			code <- 0
			return
		}
		res.Body.Close()
		code <- res.StatusCode
	}()
	<-held
	r.board.Set(readiness.Envoy, true, "")
	if got := <-code; got != 200 {
		t.Errorf("released with %d", got)
	}
	e := r.journal.Record().Entries
	if len(e) != 1 || e[0].Kind != WaitEntry || !strings.HasPrefix(e[0].Name, `"app" (127.0.0.1`) || e[0].Ended != "ready" {
		t.Errorf("journal: %+v", e)
	}
}

func TestAHeldRequestThatTimesOutHasTheReason(t *testing.T) {
	r := start(t, nil)
	began := time.Now()
	code, body, _ := call(t, "GET", r.url+"/healthz/ready?wait=50ms")
	if code != 503 || !strings.Contains(body, "envoy-not-live") || time.Since(began) < 50*time.Millisecond {
		t.Errorf("%d %s after %v", code, body, time.Since(began))
	}
}

func TestAClientThatLeavesNoLongerWaits(t *testing.T) {
	r := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", r.url+"/healthz/ready?wait=5m", nil)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
		}
	}()
	process.Eventually(t, "a waiter", func() bool { return r.board.Waiting() == 1 })
	cancel()
	<-gone
	process.Eventually(t, "no waiter", func() bool { return r.board.Waiting() == 0 })
}

func mustPrefix(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }

func TestCommandsAreForThePodAlone(t *testing.T) {
	commands := make(chan string, 9)
	pod, other := ns.New(t), ns.New(t)
	a, b := mustPrefix("10.9.0.2/24"), mustPrefix("10.9.0.3/24")
	ns.Connect(pod, "eth0", a, other, "eth1", b)
	var r *running
	pod.Do(func() {
		r = start(t, func(o *Options) {
			o.Drain = func(context.Context) error { commands <- "drain"; return nil }
			o.Quit = func() { commands <- "quit" }
		})
	})
	port := r.url[strings.LastIndexByte(r.url, ':'):]
	const here, there = "127.0.0.1", "10.9.0.2"
	inside := func(method, path string) (int, string, http.Header) { return callIn(t, pod, method, here+port+path) }
	outside := func(method, path string) (int, string, http.Header) { return callIn(t, other, method, there+port+path) }
	for _, tt := range []struct {
		call         func(method, path string) (int, string, http.Header)
		method, path string
		code         int
		has          string
	}{
		{outside, "GET", "/healthz/ready", 503, "envoy-not-live"},
		{outside, "GET", "/startup", 403, "only from the pod and its node"},
		{inside, "GET", "/startup", 200, "process_started"},
		{outside, "GET", "/metrics", 200, "outrider_agent_ready"},
		{outside, "POST", "/drain", 403, "loopback"},
		{outside, "POST", "/quitquitquit", 403, "loopback"},
		{outside, "GET", "/quitquitquit", 403, "loopback"},
		{outside, "GET", "/debug/goroutines", 403, "loopback"},
		{inside, "GET", "/drain", 405, "Allow: POST"},
		{inside, "PUT", "/quitquitquit", 405, "Allow: POST"},
		{inside, "POST", "/healthz/ready", 405, "Allow: GET, HEAD"},
		{inside, "GET", "/debug/goroutines", 200, "goroutine "},
		{inside, "GET", "/nothing", 404, ""},
		{inside, "POST", "/drain", 200, "ok"},
		{inside, "POST", "/quitquitquit", 200, "ok"},
	} {
		code, body, header := tt.call(tt.method, tt.path)
		if text := body + "Allow: " + header.Get("Allow"); code != tt.code || !strings.Contains(text, tt.has) {
			t.Errorf("%s %s: %d %s; want %d %q", tt.method, tt.path, code, text, tt.code, tt.has)
		}
	}
	if one, two := <-commands, <-commands; one != "drain" || two != "quit" || len(commands) > 0 { // Quit is called after the answer
		t.Errorf("commands: %s, %s and %d more; want drain and quit", one, two, len(commands))
	}
}

// socketEnv names the environment variable that makes the test binary get three paths over a
// unix socket.
const socketEnv = "OUTRIDER_TEST_SOCKET"

func TestMain(m *testing.M) {
	path := os.Getenv(socketEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	c := overSocket(path)
	for _, p := range []string{"/healthz/ready", "/startup", "/debug/goroutines"} {
		res, err := c.Get("http://agent" + p)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Print(res.StatusCode, " ")
	}
}

func TestTheStateFileIsReplacedByRename(t *testing.T) {
	dir := t.TempDir()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *Options) { o.StateDir = dir })
	next := func() (s readiness.Status) {
		t.Helper()
		if _, err := unix.Read(watch, make([]byte, 4096)); err != nil { // wait for the event
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, StateFile))
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := next(); s.Ready || len(s.Reasons) != 1 {
		t.Errorf("at first: %+v", s)
	}
	r.board.Set(readiness.Envoy, true, "")
	if s := next(); !s.Ready {
		t.Errorf("then: %+v", s)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheJournalIsServed(t *testing.T) {
	r := start(t, nil)
	r.journal.Begin("certificate", "")("signed", false)
	if code, body, _ := call(t, "GET", r.url+"/startup"); code != 200 || !strings.Contains(body, `"name":"certificate"`) {
		t.Errorf("%d %s", code, body)
	}
	for _, h := range []string{"/startup?format=text", "/startup"} {
		if code, body, _ := call(t, "GET", r.url+h, "Accept", "text/plain"); code != 200 || !strings.Contains(body, "phase  certificate") {
			t.Errorf("%s: %d %s", h, code, body)
		}
	}
}

func TestAConnectionWithoutARequestIsClosed(t *testing.T) {
	r := start(t, func(o *Options) { o.header = 100 * time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /healthz/ready HTTP/1.1\r\nHost: a\r\nX: ")
	c.SetReadDeadline(time.Now().Add(time.Minute))
	raw, err := io.ReadAll(bufio.NewReader(c))
	if err != nil {
		t.Errorf("it was not closed: %v (%s)", err, raw)
	}
}

func FuzzEndpoints(f *testing.F) {
	probes, err := ParseProbes(`{"/app-health/a/livez": {"tcpSocket": {"port": 1}, "timeoutSeconds": 1}}`, "127.0.0.1")
	if err != nil {
		f.Fatal(err)
	}
	board := readiness.New(readiness.Options{})
	s := &Server{conns: newConnLimiter(), waits: newSlotLimiter(heldLimit, 0), scraping: newSlotLimiter(scrapeSlots, 0), o: Options{Board: board, Journal: NewJournal(JournalOptions{}), Probes: probes,
		Drain: func(context.Context) error { return io.ErrUnexpectedEOF }, Quit: func() {}}}
	h := s.handler()
	for _, seed := range []string{"/healthz/ready?wait=1ns&level=full&format=text", "/startup", "/metrics", "/stats/prometheus", "/app-health/a/livez",
		"/app-health/../drain", "/app-lifecycle/a/prestopz", "/debug/", "/debug/goroutines", "/drain", "/quitquitquit", "//", "/%00"} {
		f.Add("GET", seed, "text/plain", true)
		f.Add("POST", seed, "", false)
	}
	allowed := map[int]bool{200: true, 301: true, 307: true, 308: true, 400: true, 403: true, 404: true, 405: true, 500: true, 503: true}
	f.Fuzz(func(t *testing.T, method, target, accept string, isLocal bool) {
		if strings.Contains(target, "wait") {
			return // such a request may be held for the time that it gives
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: a\r\nAccept: " + accept + "\r\n\r\n")))
		if err != nil || r.RequestURI == "*" { // net/http answers "*" itself
			return
		}
		where := place(len(target) % 2) // outside or onNode
		if isLocal {
			where = inside
		}
		r = r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{place: where, otherUser: !isLocal && len(target)%2 == 0}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !allowed[w.Code] {
			t.Errorf("%s %q: %d", method, target, w.Code)
		}
		if closes := w.Header().Get("Connection") == "close"; closes == isLocal {
			t.Errorf("%s %q, from the pod %v: the connection ends: %v; want that only those of others do", method, target, isLocal, closes)
		}
	})
}

func TestAHeldRequestOutlivesTheLimitOfOthers(t *testing.T) {
	b := readiness.New(readiness.Options{Conditions: []readiness.Condition{readiness.Envoy}})
	s, err := Listen(Options{Board: b, Journal: NewJournal(JournalOptions{}), Ports: []uint16{0}})
	if err != nil {
		t.Fatal(err)
	}
	s.http.ReadTimeout, s.http.WriteTimeout = time.Second, time.Second
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	defer func() { cancel(); <-served }()
	go func() {
		process.Eventually(t, "a waiter", func() bool { return b.Waiting() == 1 })
		time.Sleep(1500 * time.Millisecond) // longer than both limits
		b.Set(readiness.Envoy, true, "")
	}()
	url := fmt.Sprintf("http://127.0.0.1:%d/healthz/ready?wait=1m", s.Addresses()[0].(*net.TCPAddr).Port)
	if code, body, _ := call(t, "GET", url); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}
