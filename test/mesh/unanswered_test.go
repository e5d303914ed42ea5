package mesh

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"outrider.dev/internal/core/mesh"
)

// An application that closes its connections without an answer, as many do at SIGTERM, may have read what was in
// flight. A request with a safe method is sent to another endpoint then, at most twice; one with another method is
// not, and neither is a request without mutual TLS, or to a port that declares no protocol: the endpoint's proxy, if there
// is one, does not tell who ended the connection.
func TestUnansweredIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client, foreign := w.pod("client", "client").proxied(), w.pod("foreign", "foreign")
	good, rude := w.pod("good", "server").proxied(), w.pod("rude", "server").proxied()
	worse := []*pod{w.pod("worse1", "worse").proxied(), w.pod("worse2", "worse").proxied()}
	w.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP))
	w.service("routed", "10.96.0.2", "server", port(8080, mesh.HTTP))
	w.service("worse", "10.96.0.3", "worse", port(8080, mesh.HTTP))
	w.service("undeclared", "10.96.0.4", "worse", port(9000, mesh.Unknown))
	bare := []*pod{w.pod("bare1", "bare"), w.pod("bare2", "bare")}
	w.service("bare", "10.96.0.5", "bare", port(8080, mesh.HTTP))
	w.route("routed", "routed", 8080)

	var answered, dropped atomic.Int64
	go http.Serve(good.listen(8080), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		w.Header().Set("x-outrider-unanswered", "TLSv1.3 1") // this header must have no effect in a response of an application
		fmt.Fprint(w, "good")
	}))
	for _, p := range slices.Concat(worse, bare, []*pod{rude}) {
		go drops(p.listen(8080), &dropped)
	}
	for _, p := range worse {
		go drops(p.listen(9000), &dropped)
	}
	for _, p := range append(worse, rude, good) {
		w.eventually(t, "the proxy has its ports", func() bool {
			resp, err := foreign.client().Get("http://" + p.v4.String() + ":8080/")
			if err == nil {
				resp.Body.Close()
			}
			return err == nil // an error means that the proxy has treated the connection as TCP
		})
	}
	const n = 30
	call := func(from *pod, method, url, by string) (failed int64) {
		t.Helper()
		answered.Store(0)
		dropped.Store(0)
		for range n {
			resp, body := from.do(t, method, url)
			if resp.Header.Get("x-outrider-unanswered") != "" {
				t.Errorf("%s %s: the client got %v", method, url, resp.Header)
			}
			if resp.StatusCode == http.StatusOK {
				continue
			}
			failed++
			if method != "HEAD" && !strings.HasPrefix(string(body), "outrider ("+by+"): ") {
				t.Errorf("%s %s: %d %q", method, url, resp.StatusCode, body)
			}
		}
		return failed
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		for _, url := range []string{"http://10.96.0.1:8080/", "http://10.96.0.2:8080/"} {
			if failed := call(client, method, url, "inbound"); failed > 0 || answered.Load() != n || dropped.Load() == 0 {
				t.Errorf("%s %s: %d failed, %d answered, %d dropped; want that all are answered, some of them by a second application", method, url, failed, answered.Load(), dropped.Load())
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		if failed := call(client, method, "http://10.96.0.1:8080/", "inbound"); failed == 0 || failed != dropped.Load() || answered.Load()+failed != n {
			t.Errorf("%s: %d failed, %d answered, %d dropped; want that each was sent once", method, failed, answered.Load(), dropped.Load())
		}
	}
	// A request that no application answers reaches three of them at most.
	if failed := call(client, "GET", "http://10.96.0.3:8080/", "inbound"); failed != n || dropped.Load() != 3*n {
		t.Errorf("of applications that all close: %d failed of %d, which were sent %d times; want 3 times each", failed, n, dropped.Load())
	}
	for _, url := range []string{"http://10.96.0.4:9000/", "http://10.96.0.5:8080/"} {
		before := w.excused.Load()
		if failed, again := call(client, "GET", url, "outbound"), w.excused.Load()-before; failed != n || dropped.Load() != n+again {
			t.Errorf("%s: %d failed of %d, which were sent %d times; want once each, and %d that the test repeated", url, failed, n, dropped.Load(), again)
		}
	}
	if failed := call(foreign, "GET", "http://"+rude.v4.String()+":8080/", "inbound"); failed != n || dropped.Load() != n {
		t.Errorf("without mutual TLS: %d failed of %d, which were sent %d times; want once each", failed, n, dropped.Load())
	}
}

// drops reads a request on each connection, counts it, and closes the connection without an answer.
func drops(l net.Listener, count *atomic.Int64) {
	accept(l, func(c net.Conn) {
		if n, _ := c.Read(make([]byte, 64<<10)); n > 0 {
			count.Add(1)
		}
	})
}
