package resilience

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A base is the transport below the tested one. It reads the request body, and its answer is a function of the
// number of the try.
type base struct {
	mu     sync.Mutex
	answer func(n int, req *http.Request) (*http.Response, error)
	bodies []string
	open   atomic.Int32 // responses that are not closed yet
}

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := ""
	if req.Body != nil {
		data, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return nil, err
		}
		sent = string(data)
	}
	b.mu.Lock()
	b.bodies = append(b.bodies, sent)
	n := len(b.bodies)
	b.mu.Unlock()
	resp, err := b.answer(n, req)
	if resp != nil {
		b.open.Add(1)
		resp.Body = &countedBody{Reader: strings.NewReader("body of " + resp.Status), open: &b.open}
	}
	return resp, err
}

type countedBody struct {
	io.Reader
	open   *atomic.Int32
	closed atomic.Bool
}

func (b *countedBody) Close() error {
	if b.closed.CompareAndSwap(false, true) {
		b.open.Add(-1)
	}
	return nil
}

func status(code int, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Status: fmt.Sprint(code), Header: http.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

// answers returns a function for base.answer that answers each try with the next one of the codes, and after
// the last code repeats it. Code 0 is a reset connection, code 1 a refused one.
func answers(codes ...int) func(int, *http.Request) (*http.Response, error) {
	return func(n int, _ *http.Request) (*http.Response, error) {
		switch code := codes[min(n, len(codes))-1]; code {
		case 0:
			return nil, errReset
		case 1:
			return nil, errRefused
		case 2:
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}
		default:
			return status(code), nil
		}
	}
}

func transport(t testing.TB, b http.RoundTripper, o HTTPOptions) (*Transport, *record) {
	t.Helper()
	r := &record{}
	o.Name, o.Observe = "test", r.observe
	if o.Budget == nil {
		o.Budget = ample(t)
	}
	tr, err := NewTransport(b, o)
	if err != nil {
		t.Fatal(err)
	}
	return tr, r
}

func request(t testing.TB, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://shop.test/cart", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestRequestsThatAreRepeated(t *testing.T) {
	stream := func() io.Reader { return io.MultiReader(strings.NewReader("stream")) } // http.NewRequest sets no GetBody for this type
	tests := map[string]struct {
		method string
		body   io.Reader
		header string
		mark   bool
		buffer int64
		codes  []int
		tries  int
		status int // 0 if an error is expected
		reason string
	}{
		"GET, reset, then fine":                         {codes: []int{0, 200}, tries: 2, status: 200},
		"GET, 503, then fine":                           {codes: []int{503, 200}, tries: 2, status: 200},
		"GET, 502, 504, then fine":                      {codes: []int{502, 504, 200}, tries: 3, status: 200},
		"GET, 429, then fine":                           {codes: []int{429, 200}, tries: 2, status: 200},
		"GET, 503 for ever: the last response is given": {codes: []int{503}, tries: 3, status: 503, reason: "tries"},
		"GET, reset for ever":                           {codes: []int{0}, tries: 3, reason: "tries"},
		"GET, 500 is not repeated":                      {codes: []int{500}, tries: 1, status: 500},
		"GET, 501 and 404 are answers":                  {codes: []int{501}, tries: 1, status: 501},
		"HEAD is idempotent":                            {method: "HEAD", codes: []int{0, 200}, tries: 2, status: 200},
		"OPTIONS is idempotent":                         {method: "OPTIONS", codes: []int{0, 200}, tries: 2, status: 200},
		"TRACE is idempotent":                           {method: "TRACE", codes: []int{0, 200}, tries: 2, status: 200},
		"DELETE is idempotent":                          {method: "DELETE", codes: []int{0, 200}, tries: 2, status: 200},
		"PUT with a body that can be sent again":        {method: "PUT", body: strings.NewReader("text"), codes: []int{0, 503, 200}, tries: 3, status: 200},
		"POST is not":                                   {method: "POST", body: strings.NewReader("text"), codes: []int{0}, tries: 1, reason: "not idempotent"},
		"POST, 503":                                     {method: "POST", body: strings.NewReader("text"), codes: []int{503}, tries: 1, status: 503, reason: "not idempotent"},
		"PATCH is not":                                  {method: "PATCH", codes: []int{0}, tries: 1, reason: "not idempotent"},
		"POST that was refused":                         {method: "POST", body: strings.NewReader("text"), codes: []int{1, 200}, tries: 2, status: 200},
		"POST to a name that is not found at first":     {method: "POST", body: strings.NewReader("text"), codes: []int{2, 200}, tries: 2, status: 200},
		"POST with Idempotency-Key":                     {method: "POST", header: "Idempotency-Key", codes: []int{0, 200}, tries: 2, status: 200},
		"POST with X-Idempotency-Key":                   {method: "POST", header: "X-Idempotency-Key", codes: []int{0, 200}, tries: 2, status: 200},
		"POST with a context that says so":              {method: "POST", mark: true, body: strings.NewReader("text"), codes: []int{0, 200}, tries: 2, status: 200},
		"PUT of a stream is sent once":                  {method: "PUT", body: stream(), codes: []int{503}, tries: 1, status: 503, reason: "body cannot be sent again"},
		"PUT of a stream that is buffered":              {method: "PUT", body: stream(), buffer: 6, codes: []int{503, 200}, tries: 2, status: 200},
		"PUT of a stream that is larger than that":      {method: "PUT", body: stream(), buffer: 5, codes: []int{503}, tries: 1, status: 503, reason: "body cannot be sent again"},
	}
	for name, tt := range tests {
		bubble(t, name, func(t *testing.T) {
			b := &base{answer: answers(tt.codes...)}
			tr, events := transport(t, b, HTTPOptions{Options: Options{Retry: twoRetries}, BufferBody: tt.buffer})
			req := request(t, tt.method, tt.body)
			if tt.header != "" {
				req.Header.Set(tt.header, "7")
			}
			if tt.mark {
				req = req.WithContext(WithIdempotent(req.Context()))
			}
			resp, err := tr.RoundTrip(req)
			switch {
			case tt.status == 0 && (resp != nil || err == nil):
				t.Errorf("%v, %v, want an error", resp, err)
			case tt.status != 0 && (err != nil || resp.StatusCode != tt.status):
				t.Fatalf("%v, %v, want status %d", resp, err, tt.status)
			case tt.status != 0:
				if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "body of "+fmt.Sprint(tt.status) {
					t.Errorf("body %q, %v", text, err)
				}
				resp.Body.Close()
			}
			if len(b.bodies) != tt.tries {
				t.Errorf("%d tries, want %d", len(b.bodies), tt.tries)
			}
			for i, sent := range b.bodies {
				if sent != b.bodies[0] || tt.body != nil && sent == "" {
					t.Errorf("try %d sent %q, the first one %q", i+1, sent, b.bodies[0])
				}
			}
			reason := ""
			if no := events.of(DecidedNoRetry); len(no) > 0 {
				reason = no[0].Reason
			}
			if reason != tt.reason {
				t.Errorf("reason %q, want %q", reason, tt.reason)
			}
			synctest.Wait()
			if n := b.open.Load(); n != 0 {
				t.Errorf("%d responses were not closed", n)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins at 2000-01-01 00:00 UTC
		for value, want := range map[string]time.Duration{
			"":  0,
			"0": 0,
			"3": 3 * time.Second, " 3 ": 3 * time.Second,
			"99999999999999999999": 1<<63 - 1,
			"9223372037":           1<<63 - 1,
			"-3":                   0, "3.5": 0, "3s": 0, "soon": 0,
			"Sat, 01 Jan 2000 00:00:07 GMT":    7 * time.Second,
			"Saturday, 01-Jan-00 00:00:07 GMT": 7 * time.Second,
			"Sat Jan  1 00:00:07 2000":         7 * time.Second,
			"Fri, 31 Dec 1999 23:59:59 GMT":    0,
			"Fri, 31 Dec 9999 23:59:59 GMT":    1<<63 - 1,
		} {
			if got := retryAfter(http.Header{"Retry-After": {value}}, time.Now()); got != want {
				t.Errorf("%q: %v, want %v", value, got, want)
			}
		}
	})
	tests := map[string]struct {
		after string
		least time.Duration
		tries int
	}{
		"is waited for":                            {"3", 3 * time.Second, 2},
		"up to MaxRetryAfter":                      {"5", 5 * time.Second, 2},
		"beyond it, there is no other try":         {"6", 0, 1},
		"a server cannot stop a client for ever":   {"99999999999999999999", 0, 1},
		"what is no number and no date counts not": {"soon", 0, 2},
	}
	for name, tt := range tests {
		bubble(t, name, func(t *testing.T) {
			b := &base{answer: func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return status(503, "Retry-After", tt.after), nil
				}
				return status(200), nil
			}}
			tr, events := transport(t, b, HTTPOptions{Options: Options{Retry: twoRetries}})
			resp, err := tr.RoundTrip(request(t, "GET", nil))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if len(b.bodies) != tt.tries {
				t.Errorf("%d tries, want %d", len(b.bodies), tt.tries)
			}
			if e := events.of(DecidedRetry); tt.tries == 2 && (e[0].Delay < tt.least || e[0].Delay > tt.least+twoRetries.MinDelay) {
				t.Errorf("delay %v, want %v to %v", e[0].Delay, tt.least, tt.least+twoRetries.MinDelay)
			}
		})
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "120", "-1", "99999999999999999999", "Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "１２"} {
		f.Add(seed)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value string) {
		d := retryAfter(http.Header{"Retry-After": {value}}, now)
		if d < 0 {
			t.Errorf("%q: %v", value, d)
		}
		if d > 0 && !strings.ContainsAny(value, "123456789") {
			t.Errorf("%q has no digit, and is %v", value, d)
		}
	})
}

func TestResponsesOfOtherTriesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &base{answer: func(n int, req *http.Request) (*http.Response, error) {
			switch n {
			case 1: // answers late, and ignores its context
				time.Sleep(time.Second)
			case 2:
				time.Sleep(100 * time.Millisecond)
			}
			return status(200 + n), nil
		}}
		tr, _ := transport(t, b, HTTPOptions{Options: Options{Hedge: &Hedge{Delay: 10 * time.Millisecond, Max: 1}}})
		resp, err := tr.RoundTrip(request(t, "GET", nil))
		if err != nil || resp.StatusCode != 202 {
			t.Fatalf("%v, %v, want the response of the second try", resp, err)
		}
		time.Sleep(2 * time.Second)
		if n := b.open.Load(); n != 1 {
			t.Errorf("%d responses are open, want the one", n)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "body of 202" {
			t.Errorf("%q, %v", text, err)
		}
		resp.Body.Close()
	})
}

func TestABodyIsNotBoundByTheTimeoutOfTheCall(t *testing.T) {
	wait := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-wait
		io.WriteString(w, "late")
	}))
	defer server.Close()
	for name, o := range map[string]Options{
		"one try": {Timeout: time.Minute, TryTimeout: time.Minute},
		"retry":   {Timeout: time.Minute, TryTimeout: time.Minute, Retry: twoRetries},
		"hedge":   {Timeout: time.Minute, TryTimeout: time.Minute, Hedge: &Hedge{Delay: time.Minute, Max: 1}, Retry: twoRetries},
	} {
		tr, _ := transport(t, nil, HTTPOptions{Options: o})
		resp, err := (&http.Client{Transport: tr}).Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		// All contexts of the call have ended by now; the response body must still be readable.
		select {
		case <-wait:
		default:
			close(wait)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "late" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		resp.Body.Close()
	}
}

func TestAnUpgradedConnectionCanBeWritten(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, _ := rw.ReadString('\n')
		io.WriteString(conn, "echo "+line)
	}))
	defer server.Close()
	tr, _ := transport(t, nil, HTTPOptions{Options: Options{Retry: twoRetries}})
	req, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w, ok := resp.Body.(io.Writer)
	if !ok {
		t.Fatalf("the body of %s cannot be written", resp.Status)
	}
	io.WriteString(w, "hello\n")
	if text, _ := io.ReadAll(resp.Body); string(text) != "echo hello\n" {
		t.Errorf("%q", text)
	}
}

// A closing is a request body that records whether it was closed.
type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error { c.closed.Store(true); return nil }

func TestTheRequestsBody(t *testing.T) {
	t.Run("is closed when the request is not sent", func(t *testing.T) {
		tr, _ := transport(t, &base{answer: answers(0)}, HTTPOptions{Options: Options{Breaker: &Breaker{FailureRatio: 1, MinTries: 1, Window: time.Second, OpenFor: time.Hour}}})
		for i := range 2 {
			body := &closing{Reader: strings.NewReader("text")}
			_, err := tr.RoundTrip(request(t, "POST", body))
			if !body.closed.Load() || (i == 1) != errors.Is(err, ErrOpen) {
				t.Errorf("request %d: closed %v, %v", i, body.closed.Load(), err)
			}
		}
	})
	t.Run("that breaks is no failure of the host", func(t *testing.T) {
		tr, events := transport(t, &base{answer: answers(200)}, HTTPOptions{Options: Options{Retry: twoRetries, Breaker: &Breaker{FailureRatio: 0.1, MinTries: 1, Window: time.Second, OpenFor: time.Hour}}})
		body := io.MultiReader(strings.NewReader("text"), errorReader{})
		if _, err := tr.RoundTrip(request(t, "PUT", body)); err != errBoom {
			t.Errorf("error %v", err)
		}
		if len(events.decisions()) != 0 {
			t.Errorf("%v", events.decisions())
		}
		tr.options.BufferBody = 100
		if _, err := tr.RoundTrip(request(t, "PUT", io.MultiReader(strings.NewReader("text"), errorReader{}))); err != errBoom {
			t.Errorf("when it is buffered: error %v", err)
		}
	})
	t.Run("that cannot be made again ends the call", func(t *testing.T) {
		b := &base{answer: answers(503)}
		tr, events := transport(t, b, HTTPOptions{Options: Options{Retry: twoRetries}})
		req := request(t, "PUT", strings.NewReader("text"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, errBoom }
		if _, err := tr.RoundTrip(req); !errors.Is(err, errBoom) || len(b.bodies) != 1 || len(events.of(DecidedRetry)) != 1 {
			t.Errorf("%v after %d tries", err, len(b.bodies))
		}
	})
	bubble(t, "that comes slowly is not waited for beyond the deadline", func(t *testing.T) {
		tr, _ := transport(t, &base{answer: answers(200)}, HTTPOptions{Options: Options{Timeout: 3 * time.Second}, BufferBody: 100})
		r, w := io.Pipe()
		defer w.Close()
		began := time.Now()
		if _, err := tr.RoundTrip(request(t, "PUT", r)); !errors.Is(err, ErrTimeout) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	t.Run("of a real server arrives whole with each try", func(t *testing.T) {
		text := bytes.Repeat([]byte("0123456789"), 100_000)
		var got []int
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			data, _ := io.ReadAll(r.Body)
			if got = append(got, len(data)); len(got) < 3 {
				w.WriteHeader(503)
			}
		}))
		defer server.Close()
		tr, _ := transport(t, nil, HTTPOptions{Options: Options{Retry: twoRetries}, BufferBody: 1 << 20})
		req, _ := http.NewRequestWithContext(t.Context(), "PUT", server.URL, io.MultiReader(bytes.NewReader(text)))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if !slices.Equal(got, []int{len(text), len(text), len(text)}) {
			t.Errorf("%v bytes arrived, want 3 times %d", got, len(text))
		}
	})
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errBoom }

func TestHostsAreApart(t *testing.T) {
	b := &base{answer: func(_ int, req *http.Request) (*http.Response, error) {
		if strings.EqualFold(req.URL.Host, "dead.test") {
			return nil, errReset
		}
		return status(200), nil
	}}
	tr, events := transport(t, b, HTTPOptions{Options: Options{Breaker: &Breaker{FailureRatio: 1, MinTries: 2, Window: time.Second, OpenFor: time.Hour}}})
	get := func(url string) error {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for range 2 {
		get("http://dead.test/")
	}
	if err := get("http://DEAD.test/other"); !errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), "http://dead.test") {
		t.Errorf("dead.test: %v", err)
	}
	for i := range 10_000 {
		if err := get(fmt.Sprintf("http://host-%d.test/", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(tr.policy.targets.byName); n != defaultTargets {
		t.Errorf("%d hosts are remembered, want %d", n, defaultTargets)
	}
	if e := events.of(DecidedOpen); len(e) != 1 || e[0].Target != "http://dead.test" {
		t.Errorf("%+v", e)
	}
	if err := get("file:///etc/hostname"); err != nil { // only the base handles this scheme
		t.Error(err)
	}
}

func TestHTTPFallback(t *testing.T) {
	tests := map[string]struct {
		codes []int
		want  string
	}{
		"a response that is fine is given":   {[]int{200}, "200 <nil>"},
		"an answer is no failure":            {[]int{404}, "404 <nil>"},
		"a status of failure is replaced":    {[]int{503}, "299 HTTP status 503 Service Unavailable"},
		"and so is one that is not repeated": {[]int{500}, "299 HTTP status 500 Internal Server Error"},
		"an error is replaced":               {[]int{0}, "299 read tcp: read: connection reset by peer"},
	}
	for name, tt := range tests {
		bubble(t, name, func(t *testing.T) {
			b := &base{answer: answers(tt.codes...)}
			var got error
			tr, events := transport(t, b, HTTPOptions{Options: Options{Retry: twoRetries}, Fallback: func(_ *http.Request, err error) (*http.Response, error) {
				got = err
				return &http.Response{StatusCode: 299}, nil
			}})
			resp, err := tr.RoundTrip(request(t, "GET", nil))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if text := fmt.Sprint(resp.StatusCode, " ", got); text != tt.want {
				t.Errorf("%q, want %q", text, tt.want)
			}
			if (got != nil) != (len(events.of(DecidedFallback)) == 1) {
				t.Errorf("%v", events.decisions())
			}
			synctest.Wait()
			if n := b.open.Load(); n != 0 {
				t.Errorf("%d responses were not closed", n)
			}
		})
	}
}

func TestACertificateThatIsNotValidIsNotTriedAgain(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // drops errors of the TLS handshake
	server.StartTLS()
	defer server.Close()
	tr, events := transport(t, &http.Transport{TLSClientConfig: &tls.Config{}}, HTTPOptions{Options: Options{Retry: twoRetries}})
	req, _ := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
	if _, err := tr.RoundTrip(req); err == nil {
		t.Error("no error")
	}
	if d := events.of(Done); len(d) != 1 || d[0].Try != 1 || d[0].Class != Failed {
		t.Errorf("%+v", d)
	}
}

func TestContextOfTheRequestEndsTheBody(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	tr, _ := transport(t, nil, HTTPOptions{Options: Options{Retry: twoRetries}})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
