package mesh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/process"
)

// echo serves HTTP/1.1 and HTTP/2 without TLS. A response describes its request.
func echo(l net.Listener, name string) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ws":
			websocket(w)
			return
		case "/peer":
			io.WriteString(w, r.Header.Get("X-Forwarded-Client-Cert"))
			return
		case "/slow":
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Server", name)
		fmt.Fprintf(w, "%s %s host=%s path=%s body=%d %v", name, r.Proto, r.Host, r.URL.Path, n, err)
	})}
	s.Serve(l)
}

// accept calls the function serve for each connection, in a separate goroutine, until the listener is closed.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// greet sends the name first, and then echoes each line.
func greet(l net.Listener, name string) {
	accept(l, func(c net.Conn) {
		fmt.Fprintln(c, name)
		io.Copy(c, c)
	})
}

// repeat answers each line with the name and the line.
func repeat(l net.Listener, name string) {
	accept(l, func(c net.Conn) {
		for in := bufio.NewScanner(c); in.Scan(); {
			fmt.Fprintln(c, name, in.Text())
		}
	})
}

// client returns an HTTP client in a pod, which uses a new connection for each request.
func (p *pod) client() *http.Client {
	return &http.Client{Transport: retrying{p.world, &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}, Timeout: process.Patience}
}

// A retrying is a transport that retries some failed requests. A busy client may be silent for longer than a proxy
// waits for first bytes, and the proxy then treats the connection as TCP. So for each such wait of a proxy that ended
// without bytes, one failed request is retried.
type retrying struct {
	*world
	*http.Transport
}

func (l retrying) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		resp, err := l.Transport.RoundTrip(r)
		if err == nil || r.Context().Err() != nil || r.Body != nil && r.GetBody == nil || !l.excuses() {
			return resp, err
		}
		l.t.Logf("%s %s is tried again: %v", r.Method, r.URL, err)
		r = r.Clone(r.Context())
		if r.GetBody != nil {
			r.Body, _ = r.GetBody() // cannot fail, because the body is in memory
		}
	}
}

// excuses reports whether a proxy has waited for first bytes that did not arrive, more often than requests were
// excused. If so, it counts this request as excused.
func (w *world) excuses() bool {
	var stalls int64
	for _, p := range w.proxies {
		all, _ := p.admin.Stats(context.Background(), stalled) // an Envoy that has ended has no counters
		for _, n := range all {
			stalls += int64(n)
		}
	}
	for {
		n := w.excused.Load()
		if n >= stalls {
			return false
		}
		if w.excused.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// get returns the status and the body of the response as text, or the error.
func get(c *http.Client, url string) string {
	r, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", r.StatusCode, b)
}

// do makes a request without a body as the pod's application, and returns the response and as much of its body as came.
func (p *pod) do(t testing.TB, method, url string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.client().Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, body
}

// send connects as the pod's application, sends a line, and returns the answer as exchange does.
func (p *pod) send(to, line string) string {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	c, err := p.dial(ctx, "tcp", to)
	if err != nil {
		return failure(err)
	}
	defer c.Close()
	return exchange(c, line)
}

// exchange sends a line unless it is empty. It returns the first line of the response, or the kind of failure.
func exchange(c net.Conn, line string) string {
	c.SetDeadline(time.Now().Add(process.Patience))
	if line != "" {
		fmt.Fprintln(c, line)
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return failure(err)
	}
	return strings.TrimSpace(got)
}

// closed is the result of exchange if the peer closes or resets the connection.
const closed = "closed"

func failure(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return closed
	}
	return err.Error()
}
