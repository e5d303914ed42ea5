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
	"time"

	"outrider.dev/test/process"
)

// echo responds with the content of the request, in HTTP/1.1 and HTTP/2 without TLS.
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

// accept serves each connection.
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

// greet speaks first, and then echoes each line.
func greet(l net.Listener, name string) {
	accept(l, func(c net.Conn) {
		fmt.Fprintln(c, name)
		io.Copy(c, c)
	})
}

// repeat waits for a line and echoes it with a name.
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

// A retrying transport retries a failed request if a proxy of the world has waited for first bytes
// in vain: a busy client may be silent for longer than that wait, and its connection is then
// treated as TCP. Each of these waits excuses one request.
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
			r.Body, _ = r.GetBody() // the body is in memory: never an error
		}
	}
}

// excuses reports whether there was a wait in vain that has not excused a request yet.
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

// get returns status and body, or the error.
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

// send connects and exchanges one line.
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

// exchange sends a line unless it is empty, and returns the first line of the response.
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

// closed is the result of an exchange on a connection that the peer closes or resets.
const closed = "closed"

func failure(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return closed
	}
	return err.Error()
}
