package mesh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds/resource"
)

// A shop is the world of most tests: a client and a server with proxies, and one server
// without.
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
	w.service("pods", "", "server", port(8083, mesh.HTTP), port(6380, mesh.TCP))
	var l net.Listener
	var err error
	w.router.Do(func() { l, err = net.Listen("tcp", outside+":8080") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go echo(l, "outside")
	s.client = w.pod("client", "client").proxied()
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
}

func (s *shop) bytes(t *testing.T) {
	tests := map[string]struct {
		to, say, want string
		stalls        uint64 // of both proxies: waits for first bytes that did not come
	}{
		"the server is declared to speak first": {to: "10.96.0.2:3306", want: "server"},
		"the same by IPv6":                      {to: "[fd96::2]:3306", want: "server"},
		"the same to a pod":                     {to: s.server.v4.String() + ":3306", want: "server"},
		"the same without a proxy there":        {to: "10.96.0.5:3306", want: "plain"},
		"the server speaks first, undeclared":   {to: "10.96.0.2:9999", want: "server", stalls: 1},
		"the client speaks first":               {to: "10.96.0.2:6379", say: "PING", want: "server PING"},
		"a port with bytes here and HTTP there": {to: "10.96.0.4:7000", say: "PING", want: "server PING"},
		"a pod of a headless service":           {to: s.server.v4.String() + ":6380", say: "PING", want: "server PING"},
		"no listener":                           {to: s.plain.v4.String() + ":1", say: "PING", want: "EOF or reset"},
		"an unused address inside the networks": {to: "10.244.255.1:6379", say: "PING", want: "EOF or reset"},
		"a service has no such port":            {to: "10.96.0.2:1", say: "PING", want: "EOF or reset"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				before := s.client.stalls() + s.server.stalls()
				got, took := s.client.ask(tt.to, tt.say)
				if got == "EOF" || strings.Contains(got, "reset") {
					got = "EOF or reset"
				}
				if got != tt.want {
					t.Errorf("%q after %s, want %q", got, took, tt.want)
				}
				if n := s.client.stalls() + s.server.stalls() - before; n != tt.stalls {
					t.Errorf("%d waits for first bytes, want %d", n, tt.stalls)
				}
			}
		})
	}
}

// mutualTLS compares the server's counters of TLS handshakes.
func (s *shop) mutualTLS(t *testing.T) {
	const handshakes = `listener\.0\.0\.0\.0_15006\.ssl\.handshake`
	tests := map[string]struct {
		from *pod
		to   string
		tls  bool
	}{
		"a service's port":                             {s.client, "10.96.0.2:6379", true},
		"a pod's port":                                 {s.client, s.server.v4.String() + ":6380", true},
		"one where the server speaks first":            {s.client, "10.96.0.2:3306", false},
		"without a proxy, to a port that takes both":   {s.plain, s.server.v4.String() + ":6379", false},
		"without a proxy, where the server is to talk": {s.plain, s.server.v4.String() + ":3306", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := s.server.stat(handshakes)
			if got, _ := tt.from.ask(tt.to, "PING"); !strings.HasPrefix(got, "server") {
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

// Many first requests at once, to as many services: each is answered. How soon depends
// on the machine, and a second is not enough for a busy one; so the timeout is long.
func TestManyAtOnce(t *testing.T) {
	s := newShop(t, withLongTimeout)
	const n = 100
	var parts []mesh.Part
	for i := range n {
		spec := &mesh.ServiceSpec{
			Name: fmt.Sprintf("many%d", i), Namespace: namespace, Selector: map[string]string{"app": "server"},
			Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.97.0.%d", i+1))},
			Ports:     []mesh.PortSpec{port(8080, mesh.HTTP)},
		}
		parts = append(parts, spec)
	}
	s.source.set(parts...)
	body := bytes.Repeat([]byte("x"), 100_000)
	var wg sync.WaitGroup
	c := s.client.client()
	c.Timeout = 2 * longTimeout
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

// longTimeout is more than any machine needs.
const longTimeout = 20 * time.Second

func withLongTimeout(s *resource.Source) { s.FirstUseTimeout = longTimeout }

// ownPorts: a connection to a capture port of the proxy is closed, and makes no others.
func (s *shop) ownPorts(t *testing.T) {
	before := s.client.stat(`listener\.0\.0\.0\.0_15001\.downstream_cx_total`)
	dsts := []string{"127.0.0.1:15001", "[::1]:15006", s.client.v4.String() + ":15001", "10.96.0.1:15001", "127.0.0.1:15007"}
	for _, dst := range dsts {
		for _, p := range []*pod{s.client} {
			if got, took := p.ask(dst, ""); got != "EOF" && !strings.Contains(got, "reset") {
				t.Errorf("%s: %q after %s, want it closed", dst, got, took)
			}
		}
	}
	if after := s.client.stat(`listener\.0\.0\.0\.0_15001\.downstream_cx_total`); after-before > uint64(2*len(dsts)) {
		t.Errorf("%d connections of %d", after-before, len(dsts))
	}
}

// A control plane that is away stops no service that is used; one that is not used yet
// fails within a bound, by address and by route, and works when it is back. Streams that
// are idle meanwhile stay.
func TestControlPlaneAway(t *testing.T) {
	s := newShop(t)
	s.route("split", "web", 8080)
	s.service("late", "10.96.0.9", "server", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	s.service("later", "10.96.0.10", "server", port(8080, mesh.HTTP))
	s.route("late", "later", 8080)
	c := s.client.client()
	for _, url := range []string{"http://10.96.0.1:8080/", "http://10.96.0.5:8080/"} {
		if got := get(c, url); !strings.HasPrefix(got, "200 ") {
			t.Fatalf("%s: %s", url, got)
		}
	}
	idle, err := s.client.dial(context.Background(), "", "10.96.0.2:6379")
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	buf := make([]byte, 100)
	idle.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintln(idle, "PING")
	if n, err := idle.Read(buf); string(buf[:n]) != "server PING\n" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	s.down()
	for _, url := range []string{"http://10.96.0.1:8080/", "http://10.96.0.5:8080/"} {
		if got := get(c, url); !strings.HasPrefix(got, "200 ") {
			t.Errorf("used before, with the control plane away: %s: %s", url, got)
		}
	}
	for _, url := range []string{"http://10.96.0.9:8080/", "http://10.96.0.10:8080/"} {
		start := time.Now()
		got := get(c, url)
		if !strings.HasPrefix(got, "503 ") || time.Since(start) > 5*time.Second {
			t.Errorf("not used before: %s: %s after %s", url, got, time.Since(start))
		}
	}
	if got, took := s.client.ask("10.96.0.9:6379", "PING"); took > 5*time.Second {
		t.Errorf("not used before, bytes: %q after %s", got, took)
	}
	s.up()
	eventually(t, "new services after the control plane is back", func() bool {
		return strings.HasPrefix(get(c, "http://10.96.0.9:8080/"), "200 ") && strings.HasPrefix(get(c, "http://10.96.0.10:8080/"), "200 ")
	})
	if got, _ := s.client.ask("10.96.0.9:6379", "PING"); got != "server PING" {
		t.Errorf("bytes after the control plane is back: %q", got)
	}
	fmt.Fprintln(idle, "PING")
	if n, err := idle.Read(buf); string(buf[:n]) != "server PING\n" {
		t.Errorf("idle connection: %q, %v", buf[:n], err)
	}
}

// route sends the requests to a service's port to it, with a header that shows it.
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
