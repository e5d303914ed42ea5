package bootconfig

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newHTTP(t *testing.T, address string, o HTTPOptions) *HTTP {
	t.Helper()
	h, err := NewHTTP(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

func TestAnAddressThatCannotWorkIsAnErrorOfNewHTTP(t *testing.T) {
	secret := HTTPOptions{Header: http.Header{"X-Token": {"s3cret"}}}
	tests := map[string]struct {
		address string
		o       HTTPOptions
		want    string // part of the error; "" if the options are valid
	}{
		"https":                           {"https://centre.example/a", secret, ""},
		"plain, nothing to hide":          {"http://centre.example/a", HTTPOptions{}, ""},
		"plain, to the machine itself":    {"http://127.0.0.1:1/a", secret, ""},
		"plain, with a header":            {"http://centre.example/a", secret, "unencrypted"},
		"plain, with a header, on demand": {"http://centre.example/a", HTTPOptions{Header: secret.Header, PlaintextCredentials: true}, ""},
		"a password in the address":       {"https://a:s3cret@centre.example/", HTTPOptions{}, "no user and password"},
		"no URL":                          {"https://a:s3cret@[centre/", HTTPOptions{}, "not a URL"},
		"no host":                         {"https:///a", HTTPOptions{}, "has no host"},
		"another scheme":                  {"file:///etc/passwd", HTTPOptions{}, "must be http or https"},
		"empty":                           {"", HTTPOptions{}, "must be http or https"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewHTTP(tt.address, tt.o)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v; want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

// raw starts a server that writes the given bytes to each connection and then closes the connection. It returns
// the URL.
func raw(t *testing.T, answer string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 4096))
			io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	return "http://" + ln.Addr().String() + "/settings?token=s3cret"
}

func zipped(data []byte) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(data)
	w.Close()
	return out.String()
}

func TestAnswersOfACentre(t *testing.T) {
	bomb := zipped(make([]byte, 1<<20))
	tests := map[string]struct {
		answer string
		want   string // the document, or a part of the error
		err    bool
	}{
		"a document":          {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "{}", false},
		"in chunks":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}", false},
		"compressed":          {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(zipped(good(1))), zipped(good(1))), string(good(1)), false},
		"unchanged":           {"HTTP/1.1 304 Not Modified\r\n\r\n", "unchanged", true},
		"cut off, length":     {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}", "unexpected EOF", true},
		"cut off, chunk":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", "unexpected EOF", true},
		"cut off, zip":        {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + zipped(good(1))[:20], "unexpected EOF", true},
		"may be cut off":      {"HTTP/1.1 200 OK\r\n\r\n{}", "may be cut off", true},
		"too large, says so":  {"HTTP/1.1 200 OK\r\nContent-Length: 4097\r\n\r\n", "more than 4096 bytes", true},
		"too large, unsaid":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n" + strings.Repeat("x", 0xffff) + "\r\n", "more than 4096 bytes", true},
		"a bomb":              {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb), "more than 4096 bytes", true},
		"endless headers":     {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 128<<10), "", true},
		"no HTTP":             {"SSH-2.0-OpenSSH_9.9\r\n", "malformed HTTP", true},
		"nothing":             {"", "EOF", true},
		"no document":         {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answers 404 Not Found", true},
		"an empty success":    {"HTTP/1.1 204 No Content\r\n\r\n", "answers 204", true},
		"busy":                {"HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", "retry after 7s", true},
		"to another host":     {"HTTP/1.1 302 Found\r\nLocation: https://evil.example/a?token=s3cret\r\nContent-Length: 0\r\n\r\n", "another origin, https://evil.example", true},
		"to itself, for ever": {"HTTP/1.1 302 Found\r\nLocation: /settings?token=s3cret\r\nContent-Length: 0\r\n\r\n", "more than three times", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHTTP(t, raw(t, tt.answer), HTTPOptions{Header: http.Header{"X-Token": {"s3cret"}}})
			d, err := h.Fetch(t.Context(), Request{Version: `"1"`, MaxSize: 4096})
			got := string(d.Data)
			if err != nil {
				got = err.Error()
			}
			if (err != nil) != tt.err || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, error %v; want %q", d.Data, err, tt.want)
			}
			if strings.Contains(fmt.Sprintf("%s %v %+v %#v", got, h, h, h), "s3cret") {
				t.Errorf("a secret is shown: %s, %#v", got, h)
			}
		})
	}
}

// A centre is a configuration server with ETags and long poll, as the comment of [HTTP] describes.
type centre struct {
	mu      sync.Mutex
	version int
	changed chan struct{}
	calls   []string
}

func newCentre() *centre { return &centre{changed: make(chan struct{}), version: 1} }

func (c *centre) put(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = n
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *centre) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.calls = append(c.calls, r.Header.Get("If-None-Match")+" "+r.Header.Get("Prefer")+" "+r.Header.Get("Authorization"))
	version, changed := c.version, c.changed
	c.mu.Unlock()
	if r.Header.Get("If-None-Match") == fmt.Sprintf(`"%d"`, version) {
		if r.Header.Get("Prefer") == "" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		c.mu.Lock()
		version = c.version
		c.mu.Unlock()
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, version))
	w.Write(good(version))
}

func TestALongPollBringsChanges(t *testing.T) {
	c := newCentre()
	server := httptest.NewServer(c)
	defer server.Close()
	var token atomic.Int64
	config := open(t, Options[settings]{
		Provider: newHTTP(t, server.URL, HTTPOptions{Authorize: func(r *http.Request) error {
			r.Header.Set("Authorization", fmt.Sprint("token-", token.Add(1)))
			return nil
		}}),
		Refresh: time.Second, LongPoll: 10 * time.Minute, Validate: settings.Validate,
	})
	changes := make(chan int, 100)
	config.OnChange(func(s Snapshot[settings]) { changes <- s.Value.N })
	if n := <-changes; n == 0 { // 0 is the value before the first document
		<-changes
	}
	for n := 2; n <= 5; n++ {
		c.put(n)
		if got := <-changes; got != n {
			t.Fatalf("change to %d; want %d", got, n)
		}
	}
	if s := config.Snapshot(); s.Version != `"5"` || s.From != server.URL || s.Err != nil {
		t.Errorf("%+v", s)
	}
	config.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if want := `"1" wait=600 token-2`; len(c.calls) < 2 || c.calls[1] != want {
		t.Errorf("calls %q; want %q as the second", c.calls, want)
	}
}

// The test refreshes 10,000 times from a server that fails at random. No value in memory or on disk is ever
// incomplete or invalid, and after a good answer its value is in use.
func TestTenThousandRefreshesWithFaults(t *testing.T) {
	const refreshes = 10_000
	var mu sync.Mutex // guards the variables below: the handler may still answer an abandoned request when the next one arrives
	r := rand.New(rand.NewPCG(1, 2))
	n := 0
	kinds := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		n++
		hijack := func(answer string, reset bool) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			io.WriteString(conn, answer)
			if reset {
				conn.(*net.TCPConn).SetLinger(0)
			}
			conn.Close()
		}
		doc := good(n)
		kind := []string{"good", "good", "good", "same", "invalid", "torn", "short", "reset", "cut", "large", "error", "empty", "zip", "late", "busy"}[r.IntN(15)]
		if kind == "late" && r.IntN(10) > 0 {
			kind = "good" // only a few answers are late, because each costs the test time
		}
		kinds[kind]++
		switch kind {
		case "good":
			w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n))
			w.Write(doc)
		case "same":
			w.WriteHeader(http.StatusNotModified)
		case "invalid":
			fmt.Fprintf(w, `{"N":%d,"Twice":1}`, n)
		case "torn":
			w.Write(doc[:r.IntN(len(doc))])
		case "short":
			hijack(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(doc), doc[:r.IntN(len(doc))]), false)
		case "reset":
			hijack(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(doc), doc[:r.IntN(len(doc))]), true)
		case "cut":
			hijack("HTTP/1.1 200 OK\r\n\r\n"+string(doc), false)
		case "large":
			w.Write(make([]byte, 8192))
		case "error":
			w.WriteHeader(500 + r.IntN(5))
		case "zip":
			w.Header().Set("Content-Encoding", "gzip")
			w.Write([]byte(zipped(doc)[:r.IntN(20)]))
		case "late":
			mu.Unlock()
			<-request.Context().Done()
			mu.Lock()
		case "busy":
			w.Header().Set("Retry-After", "99999999999999")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()

	// Call the steps of the refresh loop without the pauses between them.
	o, err := Options[settings]{
		Provider: newHTTP(t, server.URL, HTTPOptions{}), Validate: settings.Validate, Timeout: 50 * time.Millisecond, MaxSize: 4096,
	}.complete()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	path := filepath.Join(t.TempDir(), "last")
	c := &Config[settings]{o: o, ctx: ctx, end: cancel, fresh: make(chan struct{}), listeners: map[*listener[settings]]struct{}{}, store: newStore(path, "", 4096)}
	c.current.Store(&Snapshot[settings]{Generation: 1})
	var run, readers sync.WaitGroup
	run.Go(func() { c.store.run(ctx, func(err error) { t.Error(err) }) })
	var delivered atomic.Int64
	c.OnChange(func(s Snapshot[settings]) { delivered.Store(int64(s.Value.N)) })
	for range 2 {
		readers.Go(func() {
			last := 0
			for ctx.Err() == nil {
				s := c.Snapshot()
				if err := s.Value.Validate(); err != nil || s.Value.N < last {
					t.Errorf("after %d: %+v, %v", last, s, err)
					return
				}
				last = s.Value.N
				time.Sleep(time.Millisecond)
			}
		})
	}
	readers.Go(func() {
		for ctx.Err() == nil {
			if r, err := newStore(path, "", 4096).load(); err == nil {
				if _, err := c.o.value(r.document); err != nil {
					t.Errorf("on disk: %q, %v", r.document, err)
				}
			} else if c.Snapshot().Generation > 1 && !strings.Contains(err.Error(), "no such file") {
				t.Errorf("on disk: %v", err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	for range refreshes {
		before := c.Snapshot()
		changed, err := c.refreshOnce()
		after := c.Snapshot()
		if err != nil && (changed || after.Err == nil || after.Value.N != before.Value.N) {
			t.Fatalf("a failure, %v, made of %+v this: %+v", err, before, after)
		}
		if after.Err == nil && after.Generation != before.Generation && after.Value.N <= before.Value.N {
			t.Fatalf("%+v after %+v", after, before)
		}
	}
	last := c.Snapshot().Value.N
	for delivered.Load() != int64(last) {
		time.Sleep(time.Millisecond) // the listener always gets the last value
	}
	cancel()
	readers.Wait()
	run.Wait()
	mu.Lock()
	defer mu.Unlock()
	if got := valid(t, path); got != last {
		t.Errorf("on disk is %d, in use %d", got, last)
	}
	for _, kind := range []string{"good", "same", "invalid", "torn", "short", "reset", "cut", "large", "error", "empty", "zip", "late", "busy"} {
		if kinds[kind] == 0 {
			t.Errorf("no answer was %q", kind)
		}
	}
	t.Logf("%d refreshes, %d requests, %d changes: %v", refreshes, n, c.Snapshot().Generation, kinds)
}

func TestAnErrorOfAuthorizeEndsTheFetch(t *testing.T) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer server.Close()
	h := newHTTP(t, server.URL, HTTPOptions{Authorize: func(*http.Request) error { return errors.New("the token has expired") }})
	if _, err := h.Fetch(t.Context(), Request{}); err == nil || !strings.Contains(err.Error(), "the token has expired") || calls.Load() != 0 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}
