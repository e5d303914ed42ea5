package mesh

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/process"
)

// Policies determine whether a port accepts connections with and without mutual TLS. A change takes effect at once, in
// the proxies of both sides.
func TestPolicies(t *testing.T) {
	s := newShop(t)
	server := s.server.v4.String()
	set := func(mode mesh.Mode, ports map[uint16]mesh.Mode) {
		s.source.set(&mesh.PolicySpec{Name: "server", Namespace: namespace, Selector: map[string]string{"app": "server"}, Mode: mode, Ports: ports})
	}
	type call struct {
		from *pod
		to   string
		ok   bool
	}
	steps := []struct {
		name  string
		mode  mesh.Mode
		ports map[uint16]mesh.Mode
		calls []call
	}{
		{"without a policy both are taken", mesh.Unset, nil, []call{
			{s.client, "10.96.0.2:6379", true}, {s.client, "10.96.0.2:3306", true}, {s.plain, server + ":6379", true}, {s.plain, server + ":3306", true}}},
		{"STRICT refuses plain connections", mesh.ModeStrict, nil, []call{
			{s.client, "10.96.0.2:6379", true}, {s.client, "10.96.0.2:3306", true}, {s.plain, server + ":6379", false}, {s.plain, server + ":3306", false},
			{s.client, server + ":5555", true}, {s.plain, server + ":5555", false}}},
		{"but not at a port with DISABLE", mesh.ModeStrict, map[uint16]mesh.Mode{6379: mesh.ModeDisable}, []call{
			{s.client, "10.96.0.2:6379", true}, {s.plain, server + ":6379", true}, {s.plain, server + ":3306", false}}},
		{"DISABLE takes no mutual TLS, and calls plainly", mesh.ModeDisable, nil, []call{
			{s.client, "10.96.0.2:6379", true}, {s.client, "10.96.0.2:3306", true}, {s.plain, server + ":6379", true}}},
	}
	go repeat(s.server.listen(5555), "server") // a port that no service declares
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			set(step.mode, step.ports)
			for _, c := range step.calls {
				// Retry, because the two proxies receive the change one after the other.
				s.eventually(t, fmt.Sprintf("%s to %s: %t", c.from.name, c.to, c.ok), func() bool {
					return strings.HasPrefix(c.from.send(c.to, "PING"), "server") == c.ok
				})
			}
		})
	}
}

// A client's proxy does not connect to a server that has another identity than the service's workloads.
func TestWrongIdentity(t *testing.T) {
	w := newWorld(t)
	client, server := w.pod("client", "client").proxied(), w.pod("server", "server")
	server.certified = "another"
	server.proxied()
	go repeat(server.listen(6379), "server")
	w.service("db", "10.96.0.2", "server", port(6379, mesh.TCP))
	for _, to := range []string{"10.96.0.2:6379", server.v4.String() + ":6379"} {
		w.eventually(t, "a refused certificate at "+to, func() bool {
			got := client.send(to, "PING")
			if got == "server PING" {
				t.Fatalf("%s answers %q", to, got)
			}
			return client.stat(`cluster\..*ssl\.fail_verify_san`) > 0
		})
	}
}

// With TLS 1.3 a client's proxy learns after it has sent a request that the server refused the client's certificate, and
// cannot know that nothing has read the request. One with a safe method is sent to another endpoint then, whether or not the
// service has routes; any other one is sent once, and so are bytes.
func TestRefusedCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	elsewhere, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(t.TempDir()), TrustDomain: mesh.DefaultTrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	client, refuses, good := w.pod("client", "client"), w.pod("refuses", "server"), w.pod("good", "server")
	w.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP), port(6379, mesh.TCP))
	w.service("routed", "10.96.0.2", "server", port(8080, mesh.HTTP))
	w.route("routed", "routed", 8080)
	refuses.trusts = elsewhere
	var answered atomic.Int64
	for _, p := range []*pod{refuses, good} {
		go http.Serve(p.listen(8080), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered.Add(1) }))
		go repeat(p.listen(6379), p.name)
		p.proxied()
	}
	client.proxied()
	refused := func() uint64 { return refuses.stat(`listener\..*\.ssl\.fail_verify_error`) }
	want := regexp.MustCompile(`^outrider \((outbound|routed)\): .*: ` + regexp.QuoteMeta(refuses.v4.String()) + `:8080 \(TLS: TLSv1\.3\) ended the connection before it answered: .* \(UC, `)
	const n = 30 // of so many requests, some begin at each of the two endpoints
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "DELETE"} {
		for _, url := range []string{"http://10.96.0.1:8080/", "http://10.96.0.2:8080/"} {
			answered.Store(0)
			before, failed := refused(), uint64(0)
			for range n {
				resp, body := client.do(t, method, url)
				if resp.StatusCode == http.StatusOK {
					continue
				}
				if failed++; resp.StatusCode != http.StatusServiceUnavailable || !want.Match(body) {
					t.Errorf("%s %s: %d %q, want 503 %s", method, url, resp.StatusCode, body, want)
				}
			}
			w.eventually(t, "refused certificates", func() bool { return refused() > before && refused() >= before+failed })
			safe := method != "POST" && method != "DELETE"
			if safe == (failed > 0) || !safe && failed != refused()-before || answered.Load() != int64(n-failed) {
				t.Errorf("%s %s: of %d %d failed and %d were answered, with %d refused certificates", method, url, n, failed, answered.Load(), refused()-before)
			}
		}
	}
	before, ended := refused(), uint64(0)
	for range n {
		if got := client.send("10.96.0.1:6379", "PING"); got == closed {
			ended++
		} else if got != "good PING" {
			t.Errorf("bytes: %q", got)
		}
	}
	process.EventuallyEqual(t, "refused certificates of connections of bytes", before+ended, refused, w.envoys...)
}

// TLS between the applications works, within mutual TLS of the proxies and without it.
func TestTLSOfTheApplication(t *testing.T) {
	s := newShop(t)
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "inside") }))
	app.Listener.Close()
	app.Listener, app.EnableHTTP2 = s.server.listen(8443), true
	app.StartTLS()
	t.Cleanup(app.Close)
	s.service("secure", "10.96.0.7", "server", port(8443, mesh.TLS))
	s.service("declared-http", "10.96.0.8", "server", mesh.PortSpec{Port: mesh.Port{Name: "x", Number: 8444, Protocol: mesh.HTTP}, Target: 8443})
	for _, p := range []*pod{s.client, s.plain} {
		for _, to := range []string{"10.96.0.7:8443", "10.96.0.8:8444", s.server.v4.String() + ":8443"} {
			if p == s.plain && strings.HasPrefix(to, "10.96") {
				continue // not tested at this address, which belongs to no service
			}
			c := &http.Client{Transport: &http.Transport{DialContext: p.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: process.Patience}
			if got := get(c, "https://"+to); got != "200 inside\n" {
				t.Errorf("%s to %s: %s", p.name, to, got)
			}
		}
	}
}

// Requests succeed with HTTP/2 without TLS and with prior knowledge, and with a body of 3 MB in the first request to a
// service, whether or not the service has routes.
func TestHTTP2AndLargeBodies(t *testing.T) {
	s := newShop(t)
	s.route("web", "web", 8080)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Client{Transport: &http.Transport{DialContext: s.client.dial, Protocols: protocols}, Timeout: process.Patience}
	for name, tt := range map[string]struct {
		c    *http.Client
		url  string
		want string
	}{
		"HTTP/2 by route":          {h2, "http://10.96.0.1:8080/", "HTTP/2.0"},
		"HTTP/2 to a gRPC port":    {h2, "http://10.96.0.1:8081/", "HTTP/2.0"},
		"HTTP/2 without proxies":   {h2, "http://10.96.0.5:8080/", "HTTP/2.0"},
		"HTTP/2 to a pod":          {h2, "http://" + s.server.v4.String() + ":8083/", "HTTP/2.0"},
		"HTTP/1.1 with 3 MB":       {s.client.client(), "http://10.96.0.3:7000/", "HTTP/1.1"},
		"HTTP/1.1 with 3 MB again": {s.client.client(), "http://[fd96::1]:8080/", "HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			const size = 3 << 20
			r, err := tt.c.Post(tt.url, "text/plain", io.LimitReader(zeros{}, size))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			b, _ := io.ReadAll(r.Body)
			if got := string(b); !strings.Contains(got, tt.want) || !strings.Contains(got, fmt.Sprintf("body=%d <nil>", size)) {
				t.Errorf("%d %s, want %s", r.StatusCode, got, tt.want)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Separate listeners accept connections that were opened before the proxy's start, with their original destinations
// in a PROXY header.
func TestEarlyConnections(t *testing.T) {
	s := newShop(t)
	tests := map[string]struct {
		at       *pod
		listener string
		to       netip.AddrPort
		line     string
		want     string
	}{
		"outbound":                        {s.client, "127.0.0.1:15007", netip.MustParseAddrPort("10.96.0.2:6379"), "PING", "server PING"},
		"outbound, the server first":      {s.client, "127.0.0.1:15007", netip.MustParseAddrPort("[fd96::2]:3306"), "", "server"},
		"outbound, a request":             {s.client, "127.0.0.1:15007", netip.MustParseAddrPort("10.96.0.1:8080"), "GET / HTTP/1.0\r\n\r", "HTTP/1.0 200 OK"},
		"inbound":                         {s.server, "127.0.0.1:15016", netip.AddrPortFrom(s.server.v4, 6379), "PING", "server PING"},
		"inbound, the server first, IPv6": {s.server, "127.0.0.1:15016", netip.AddrPortFrom(s.server.v6, 3306), "", "server"},
		"to a port of the proxy":          {s.client, "127.0.0.1:15007", netip.MustParseAddrPort("10.96.0.1:15001"), "", closed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var c net.Conn
			var err error
			tt.at.As(proxyUser, proxyUser, func() { c, err = net.Dial("tcp", tt.listener) })
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write(proxyHeader(tt.to))
			if got := exchange(c, tt.line); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// proxyHeader returns a header of version 2 of the PROXY protocol, for a connection to this destination.
func proxyHeader(to netip.AddrPort) []byte {
	family, from := byte(0x11), netip.MustParseAddr("10.1.1.1")
	if to.Addr().Is6() {
		family, from = 0x21, netip.MustParseAddr("fd01::1")
	}
	body := append(from.AsSlice(), to.Addr().AsSlice()...)
	body = binary.BigEndian.AppendUint16(body, 4000)
	body = binary.BigEndian.AppendUint16(body, to.Port())
	out := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21"), family)
	return append(binary.BigEndian.AppendUint16(out, uint16(len(body))), body...)
}

// Open connections are not cut when a port number that is new in the mesh is added, or when endpoints change.
func TestChangesCutNothing(t *testing.T) {
	s := newShop(t)
	var conns []net.Conn
	for _, to := range []string{"10.96.0.2:6379", "10.96.0.4:7000", s.server.v4.String() + ":6380"} {
		c, err := s.client.dial(context.Background(), "", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := exchange(c, "PING"); got != "server PING" {
			t.Fatalf("%s: %s", to, got)
		}
		conns = append(conns, c)
	}
	added := s.client.stat(`listener_manager\.listener_added`)
	s.service("new", "10.97.1.1", "server", port(8888, mesh.HTTP), port(3307, mesh.ServerFirst), port(6381, mesh.TCP))
	s.service("web", "10.96.0.1 fd96::1", "server", port(8080, mesh.HTTP), port(8090, mesh.Unknown))
	s.eventually(t, "listeners for the new port numbers", func() bool { return s.client.stat(`listener_manager\.listener_added`) >= added+2 })
	more := s.pod("server2", "server").proxied()
	go repeat(more.listen(6379), "server2")
	s.eventually(t, "the new endpoint", func() bool { return s.client.send("10.96.0.2:6379", "PING") == "server2 PING" })
	for _, c := range conns {
		if got := exchange(c, "PING"); got != "server PING" {
			t.Errorf("%s: %s", c.RemoteAddr(), got)
		}
	}
	process.EventuallyEqual(t, "the listeners that drain: those of ports 8081 and 8082, and the early one, for 3307", 3,
		func() uint64 { return s.client.stat(`listener_manager\.total_listeners_draining`) }, s.envoys...)
}
