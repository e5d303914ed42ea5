package status

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// While a client in the cluster opens as many connections as it can, the requests of the kubelet
// and of the pod are answered.
func TestOneClientCannotUseUpTheConnections(t *testing.T) {
	pod, other := ns.New(t), ns.New(t)
	clients := []netip.Prefix{netip.MustParsePrefix("10.9.0.3/24"), netip.MustParsePrefix("10.9.0.4/24")}
	ns.Connect(pod, "eth0", mustPrefix("10.9.0.2/24"), other, "eth1", clients)
	var r *running
	pod.Do(func() { r = start(t, func(o *Options) { o.header = time.Hour }) }) // so that no connection is closed for its age
	port := r.url[strings.LastIndexByte(r.url, ':'):]
	dial := func(from, to string) net.Conn {
		t.Helper()
		where, d := other, net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
		if from == "" {
			where, d.LocalAddr = pod, nil
		}
		var c net.Conn
		var err error
		where.Do(func() { c, err = d.Dial("tcp", to+port) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	const client, kubelet = "10.9.0.3", "10.9.0.4"
	request := func(c net.Conn, query string) net.Conn {
		fmt.Fprintf(c, "GET /healthz/ready%s HTTP/1.1\r\nHost: a\r\n\r\n", query)
		return c
	}
	status := func(c net.Conn) string {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 4096)
		n, err := io.ReadAtLeast(c, b, 12)
		if err != nil {
			return err.Error()
		}
		return string(b[9:n])
	}

	mine := request(dial("", "127.0.0.1"), "?wait=5m")
	process.Eventually(t, "the pod's own waiter", func() bool { return r.board.Waiting() == 1 })
	for range heldLimit[outside] {
		request(dial(client, "10.9.0.2"), "?wait=5m")
	}
	process.Eventually(t, "the client's requests are held", func() bool { return r.board.Waiting() == 1+heldLimit[outside] })
	if got := status(request(dial(client, "10.9.0.2"), "?wait=5m")); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "Retry-After: 1") ||
		!strings.Contains(got, "envoy-not-live") {
		t.Errorf("one too many: %s", got)
	}
	second := request(dial("", "127.0.0.1"), "?wait=5m")
	process.Eventually(t, "a slot for the pod", func() bool { return r.board.Waiting() == 2+heldLimit[outside] })

	// Connections without a request, many more than the limit.
	for range openLimit[outside] + 50 {
		dial(client, "10.9.0.2")
	}
	process.Eventually(t, "the client's oldest are closed", func() bool { return r.board.Waiting() == 2 })
	if got := status(request(dial(kubelet, "10.9.0.2"), "")); !strings.HasPrefix(got, "503 ") {
		t.Errorf("the kubelet gets %s", got)
	}
	if _, body, _ := callIn(t, pod, "GET", "127.0.0.1"+port+"/metrics"); !strings.Contains(body, "\noutrider_agent_waiters_refused_total 1\n") ||
		strings.Contains(body, "\noutrider_agent_connections_dropped_total 0\n") {
		t.Errorf("metrics:\n%s", body)
	}
	r.board.Set(readiness.Envoy, true, "")
	for _, c := range []net.Conn{mine, second} {
		if got := status(c); !strings.HasPrefix(got, "200 ") {
			t.Errorf("a waiter of the pod: %s", got)
		}
	}
}

// callIn sends a request from a network namespace.
func callIn(t *testing.T, in *ns.Namespace, method, url string) (int, string, http.Header) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, to string) (conn net.Conn, err error) {
		in.Do(func() { conn, err = net.Dial("tcp", to) })
		return conn, err
	}}}
	req, err := http.NewRequest(method, "http://"+url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
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

func TestTheOldestConnectionOfTheLargestClientIsClosed(t *testing.T) {
	set := connSet{limit: 3, by: map[string][]net.Conn{}}
	conns := map[string]net.Conn{}
	conn := func(name string) net.Conn {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		conns[name] = a
		return a
	}
	for _, tt := range []struct{ client, name, victim string }{
		{"a", "a1", ""}, {"a", "a2", ""}, {"b", "b1", ""},
		{"c", "c1", "a1"},
	} {
		if got := set.add(tt.client, conn(tt.name)); got != conns[tt.victim] {
			t.Errorf("%s closes another connection than %q", tt.name, tt.victim)
		}
	}
	set.remove("a", conns["a1"]) // it was removed already
	set.remove("a", conns["a2"])
	if set.open != 2 || len(set.by) != 2 {
		t.Errorf("%d connections of %d clients are open", set.open, len(set.by))
	}
	set.add("b", conn("b2"))
	if got := set.add("b", conn("b3")); got != conns["b1"] {
		t.Error("the new connection's client has the most: its own oldest must be closed")
	}
}
