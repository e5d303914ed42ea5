package mesh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/resource"
	"outrider.dev/test/process"
)

// failedToPassThrough is the counter of failed connections to addresses that belong to no service.
const failedToPassThrough = `cluster\.PassthroughCluster\.upstream_cx_connect_fail`

// A shop is the world of most tests: a client and a server with proxies, and a server without one.
type shop struct {
	*world
	client, server, plain *pod
}

func newShop(t testing.TB, change ...func(*resource.Source)) *shop {
	w := newWorld(t, change...)
	s := &shop{world: w}
	s.server = w.pod("server", "server")
	s.plain = w.pod("plain", "plain")
	w.service("web", "10.96.0.1 fd96::1", "server", port(8080, mesh.HTTP), port(8081, mesh.GRPC), port(8082, mesh.HTTP))
	w.service("db", "10.96.0.2 fd96::2", "server", port(3306, mesh.ServerFirst), port(6379, mesh.TCP), port(9999, mesh.Unknown))
	w.service("mixed", "10.96.0.3", "server", port(7000, mesh.HTTP))
	w.service("mixed-bytes", "10.96.0.4", "server", mesh.PortSpec{Port: mesh.Port{Name: "b", Number: 7000, Protocol: mesh.TCP}, Target: 6379})
	w.service("old", "10.96.0.5", "plain", port(8080, mesh.HTTP), port(3306, mesh.ServerFirst))
	w.service("empty", "10.96.0.6", "none", port(8080, mesh.HTTP))
	w.service("dual", "10.96.0.77", "server", other(8080, mesh.UDP), other(8080, mesh.SCTP), port(8080, mesh.HTTP), other(6379, mesh.SCTP), port(6379, mesh.TCP))
	w.service("pods", "", "server", port(8083, mesh.HTTP), port(6380, mesh.TCP))
	var l net.Listener
	var err error
	w.router.Do(func() { l, err = net.Listen("tcp", outside+":8080") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go echo(l, "outside")
	s.client = w.pod("client", "client")
	s.client.stats = []string{failedToPassThrough}
	s.client.proxied()
	s.server.proxied()
	for _, p := range []*pod{s.server, s.plain} {
		for _, n := range []uint16{7000, 8080, 8081, 8083} {
			go echo(p.listen(n), p.name)
		}
		for _, n := range []uint16{3306, 9999} {
			go greet(p.listen(n), p.name)
		}
		for _, n := range []uint16{6379, 6380} {
			go repeat(p.listen(n), p.name)
		}
	}
	return s
}

func TestTraffic(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	t.Run("requests", s.requests)
	t.Run("bytes", s.bytes)
	t.Run("mutual TLS", s.mutualTLS)
	t.Run("own ports", s.ownPorts)
	raw, err := s.client.admin.Get(context.Background(), "/clusters", "")
	if err != nil || strings.Contains(string(raw), "|"+outside+":") {
		t.Errorf("the proxy subscribed to an external address, or %v", err)
	}
}

func (s *shop) requests(t *testing.T) {
	server4, plain4 := s.server.v4.String(), s.plain.v4.String()
	tests := map[string]struct{ url, want string }{
		"by virtual address":                     {"http://10.96.0.1:8080/a", "200 server HTTP/1.1 host=10.96.0.1:8080 path=/a body=0 <nil>"},
		"by virtual address, IPv6":               {"http://[fd96::1]:8080/a", "200 server HTTP/1.1 host=[fd96::1]:8080 path=/a body=0 <nil>"},
		"a port with HTTP here and bytes there":  {"http://10.96.0.3:7000/", "200 server HTTP/1.1 host=10.96.0.3:7000 path=/ body=0 <nil>"},
		"HTTP/1.1 to a gRPC port becomes HTTP/2": {"http://10.96.0.1:8081/", "200 server HTTP/2.0 host=10.96.0.1:8081 path=/ body=0 <nil>"},
		"ports of UDP and SCTP are the same":     {"http://10.96.0.77:8080/", "200 server HTTP/1.1 host=10.96.0.77:8080 path=/ body=0 <nil>"},
		"a service without proxies":              {"http://10.96.0.5:8080/", "200 plain HTTP/1.1 host=10.96.0.5:8080 path=/ body=0 <nil>"},
		"a pod of a headless service":            {"http://" + server4 + ":8083/", "200 server HTTP/1.1 host=" + server4 + ":8083 path=/ body=0 <nil>"},
		"a pod of a headless service, IPv6":      {"http://[" + s.server.v6.String() + "]:8083/", "200 server HTTP/1.1 host=[" + s.server.v6.String() + "]:8083 path=/ body=0 <nil>"},
		"a pod without a proxy":                  {"http://" + plain4 + ":8080/", "200 plain HTTP/1.1 host=" + plain4 + ":8080 path=/ body=0 <nil>"},
		"a service without endpoints":            {"http://10.96.0.6:8080/", "503 outrider (outbound): 10.96.0.6:8080 at 10.96.0.6:8080: no endpoint is ready"},
		"an address outside":                     {"http://" + outside + ":8080/", "200 outside HTTP/1.1 host=" + outside + ":8080 path=/ body=0 <nil>"},
		"no listener behind a service's port":    {"http://10.96.0.1:8082/", "503 "},
		"no listener at a pod without a proxy":   {"http://" + plain4 + ":8082/", "503 "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, time := range []string{"first", "second"} {
				if got := get(s.client.client(), tt.url); !strings.HasPrefix(got, tt.want) {
					t.Errorf("%s time: %q, want %q", time, got, tt.want)
				}
			}
		})
	}
	before := s.client.stat(failedToPassThrough)
	if got := get(s.client.client(), "http://"+plain4+":8082/"); !strings.HasPrefix(got, "503 ") || s.client.stat(failedToPassThrough) != before+1 {
		t.Errorf("no listener at a pod: %q after %d tries, want one", got, s.client.stat(failedToPassThrough)-before)
	}
}

func (s *shop) bytes(t *testing.T) {
	tests := map[string]struct {
		to, line, want string
		stalls         uint64 // number of waits for first bytes, in both proxies, that ended without a byte
		fails          uint64 // number of failed tries to connect to an address without a service
	}{
		"the server is declared to speak first": {to: "10.96.0.2:3306", want: "server"},
		"the same by IPv6":                      {to: "[fd96::2]:3306", want: "server"},
		"the same to a pod":                     {to: s.server.v4.String() + ":3306", want: "server"},
		"the same without a proxy there":        {to: "10.96.0.5:3306", want: "plain"},
		"the server speaks first, undeclared":   {to: "10.96.0.2:9999", want: "server", stalls: 1},
		"the client speaks first":               {to: "10.96.0.2:6379", line: "PING", want: "server PING"},
		"a port with bytes here and HTTP there": {to: "10.96.0.4:7000", line: "PING", want: "server PING"},
		"a pod of a headless service":           {to: s.server.v4.String() + ":6380", line: "PING", want: "server PING"},
		"no listener":                           {to: s.plain.v4.String() + ":1", line: "PING", want: closed, fails: 1},
		"an unused address inside the networks": {to: "10.244.255.1:6379", line: "PING", want: closed, fails: 1},
		"a service has no such port":            {to: "10.96.0.2:1", line: "PING", want: closed, fails: 16},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				// Repeat the case if the counts differ, because a busy client may be silent for longer
				// than a proxy waits for first bytes.
				process.EventuallyEqual(t, "waits for first bytes, and failed tries", [2]uint64{tt.stalls, tt.fails}, func() [2]uint64 {
					stalls, fails := s.client.stalls()+s.server.stalls(), s.client.stat(failedToPassThrough)
					if got := s.client.send(tt.to, tt.line); got != tt.want {
						t.Errorf("%q, want %q", got, tt.want)
					}
					return [2]uint64{s.client.stalls() + s.server.stalls() - stalls, s.client.stat(failedToPassThrough) - fails}
				}, s.envoys...)
			}
		})
	}
}

// mutualTLS tests from the server's counters of TLS handshakes whether connections use mutual TLS.
func (s *shop) mutualTLS(t *testing.T) {
	const handshakes = `listener\.0\.0\.0\.0_15006\.ssl\.handshake`
	tests := map[string]struct {
		from *pod
		to   string
		tls  bool
	}{
		"a service's port":                               {s.client, "10.96.0.2:6379", true},
		"one with the number of a port of SCTP":          {s.client, "10.96.0.77:6379", true},
		"a pod's port":                                   {s.client, s.server.v4.String() + ":6380", true},
		"one where the server speaks first":              {s.client, "10.96.0.2:3306", false},
		"without a proxy, to a port that takes both":     {s.plain, s.server.v4.String() + ":6379", false},
		"without a proxy, where the server speaks first": {s.plain, s.server.v4.String() + ":3306", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := s.server.stat(handshakes)
			if got := tt.from.send(tt.to, "PING"); !strings.HasPrefix(got, "server") {
				t.Errorf("%q", got)
			}
			if got := s.server.stat(handshakes) > before; got != tt.tls {
				t.Errorf("mutual TLS: %t, want %t", got, tt.tls)
			}
		})
	}
	if n := s.server.stat(`listener\.0\.0\.0\.0_15006\.ssl\.no_certificate`); n != 0 {
		t.Errorf("%d connections by TLS without a certificate", n)
	}
}

// Many simultaneous first requests, each to a different service, are all answered.
func TestManyAtOnce(t *testing.T) {
	s := newShop(t, func(r *resource.Source) { r.FirstUseTimeout = process.Patience })
	const n = 100
	for i := range n {
		s.service(fmt.Sprintf("many%d", i), fmt.Sprintf("10.97.0.%d", i+1), "server", port(8080, mesh.HTTP))
	}
	body := bytes.Repeat([]byte("x"), 100_000)
	var wg sync.WaitGroup
	c := s.client.client()
	c.Timeout = 2 * process.Patience
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			r, err := c.Post(fmt.Sprintf("http://10.97.0.%d:8080/", i+1), "text/plain", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			if b, _ := io.ReadAll(r.Body); !strings.Contains(string(b), "body=100000 <nil>") {
				t.Errorf("service %d: %d %s", i, r.StatusCode, b)
			}
		})
	}
	wg.Wait()
	t.Logf("%d first requests of 100 kB at once: %s", n, time.Since(start))
}

// ownPorts checks that a connection to a port to which capture redirects is closed, and that the proxy opens no
// further connections for it.
func (s *shop) ownPorts(t *testing.T) {
	before := s.client.stat(`listener\.0\.0\.0\.0_15001\.downstream_cx_total`)
	dsts := []string{"127.0.0.1:15001", "[::1]:15006", s.client.v4.String() + ":15001", "10.96.0.1:15001", "127.0.0.1:15007"}
	for _, dst := range dsts {
		if got := s.client.send(dst, ""); got != closed {
			t.Errorf("%s: %q, want it closed", dst, got)
		}
	}
	if after := s.client.stat(`listener\.0\.0\.0\.0_15001\.downstream_cx_total`); after-before > uint64(2*len(dsts)) {
		t.Errorf("%d connections of %d", after-before, len(dsts))
	}
}

// route adds a route for a service's port. Without rules the route leads to the service itself, and sets a header in
// the responses.
func (w *world) route(name, service string, port uint16, rules ...mesh.Route) {
	if rules == nil {
		rules = []mesh.Route{{
			Filters:  []mesh.Filter{{ResponseHeaders: &mesh.Headers{Set: [][2]string{{"X-Route", name}}}}},
			Backends: []mesh.Backend{{Namespace: namespace, Name: service, Port: port, Weight: 1}},
		}}
	}
	w.source.set(&mesh.RouteSpec{
		Name: name, Namespace: namespace, Parents: []mesh.Parent{{Namespace: namespace, Name: service, Port: port}}, Rules: rules,
	})
}
