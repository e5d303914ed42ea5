package mesh

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/controlplane/ca"
	"outrider.dev/internal/mesh"
)

// lateness is how long after the connect the first bytes come: at once, within the time in
// which the proxy waits for them, and after it.
var lateness = []time.Duration{0, 150 * time.Millisecond, 250 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second}

// A lateCall is what a client does on a connection once it has been silent.
type lateCall struct {
	name, to string
	talk     func(net.Conn) error
}

// lateCalls opens connections for each lateness, in turn those of the calls, all at once.
func lateCalls(t *testing.T, from *pod, calls []lateCall) {
	t.Helper()
	const each = 100
	var all sync.WaitGroup
	failed := make([]atomic.Int64, len(lateness))
	for i := range each {
		call := calls[i%len(calls)]
		for j, wait := range lateness {
			c, err := from.dial(context.Background(), "tcp", call.to)
			if err != nil {
				t.Fatalf("%s: %v", call.name, err)
			}
			all.Go(func() {
				defer c.Close()
				time.Sleep(wait)
				c.SetDeadline(time.Now().Add(time.Minute))
				if err := call.talk(c); err != nil {
					if failed[j].Add(1) <= 3 {
						t.Errorf("%s, first byte after %s: %v", call.name, wait, err)
					}
				}
			})
		}
	}
	all.Wait()
	for i, wait := range lateness {
		t.Logf("first byte after %s: %d of %d failed", wait, failed[i].Load(), each)
	}
}

// request makes one, in pieces with a pause between them, and checks that the response has
// the route's header and ends as it should.
func request(pieces ...string) func(net.Conn) error {
	return func(c net.Conn) error {
		for i, p := range pieces {
			if i > 0 {
				time.Sleep(250 * time.Millisecond)
			}
			if _, err := io.WriteString(c, p); err != nil {
				return err
			}
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(r.Body) // with HTTP/1.0 to the end of the connection
		if err != nil || !strings.HasPrefix(string(body), "server ") || r.Header.Get("X-Route") != "web" {
			return fmt.Errorf("%s, route %q: %q, %v", r.Status, r.Header.Get("X-Route"), body, err)
		}
		return nil
	}
}

// A request to a port that declares HTTP is one however late it comes: it has the service's
// route.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.route("web", "web", 8080)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Listener.Close()
	secure.Listener = s.plain.listen(8084)
	secure.StartTLS()
	defer secure.Close()
	s.service("secure", "10.96.0.7", "plain", port(8084, mesh.HTTP), port(8085, mesh.HTTP))
	go repeat(s.plain.listen(8085), "plain")
	const vip = "10.96.0.1:8080"
	preface := func(c net.Conn) error {
		p := new(http.Protocols)
		p.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: p, DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}
		if got := get(&http.Client{Transport: transport}, "http://"+vip+"/"); !strings.HasPrefix(got, "200 server HTTP/") {
			return errors.New(got)
		}
		return nil
	}
	pod := func(c net.Conn) error { // of a headless service: there is no route
		if got := exchange(c, "GET / HTTP/1.0\r\n\r"); got != "HTTP/1.0 200 OK" {
			return errors.New(got)
		}
		return nil
	}
	lateCalls(t, s.client, []lateCall{
		{"read to the end", vip, request("GET / HTTP/1.0\r\n\r\n")},
		{"HTTP/1.1", vip, request("GET / HTTP/1.1\r\nHost: web\r\n\r\n")},
		{"IPv6", "[fd96::1]:8080", request("GET / HTTP/1.0\r\n\r\n")},
		{"in pieces", vip, request("G", "ET / HTTP/1.0\r\n", "\r\n")},
		{"HTTP/2", vip, preface},
		{"to a pod", s.server.v4.String() + ":8083", pod},
		{"to a pod, IPv6", "[" + s.server.v6.String() + "]:8083", pod},
		{"TLS though HTTP is declared", "10.96.0.7:8084", func(c net.Conn) error { return tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }},
		{"bytes though HTTP is declared", "10.96.0.7:8085", func(c net.Conn) error {
			if got := exchange(c, "PING"); got != "plain PING" {
				return errors.New(got)
			}
			return nil
		}},
	})
	if n := s.client.stalls(); n < 4*100 {
		t.Errorf("the proxy waited %d times for first bytes", n)
	}
}

// A silent connection to a port that declares HTTP has no server yet: its request goes to one
// that is there when it comes, by the routes of then, without a control plane too.
func TestSilentConnectionHasNoServer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.route("web", "web", 8080)
	var accepted atomic.Int64
	first, second := s.pod("first", "silent"), s.pod("second", "another")
	go accept(first.listen(8080), func(net.Conn) { accepted.Add(1) })
	go echo(second.listen(8080), "server")
	s.service("silent", "10.96.0.8", "silent", port(8080, mesh.HTTP))
	if got := get(s.client.client(), "http://10.96.0.1:8080/"); !strings.HasPrefix(got, "200 ") {
		t.Fatal(got)
	}
	var silent []net.Conn
	open := func(to string) net.Conn {
		c, err := s.client.dial(context.Background(), "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		silent = append(silent, c)
		return c
	}
	const n = 50
	for range n {
		open("10.96.0.8:8080")
	}
	routed := open("10.96.0.1:8080")
	const waiting = `listener\.envoy_internal_late\.downstream_pre_cx_active`
	eventually(t, "silent connections at the internal listener", func() bool { return s.client.stat(waiting) == n+1 })
	if accepted.Load() != 0 {
		t.Errorf("%d connections to the server", accepted.Load())
	}
	// The first server leaves, another comes.
	s.service("silent", "10.96.0.8", "another", port(8080, mesh.HTTP))
	eventually(t, "the other server", func() bool {
		return strings.HasPrefix(get(s.client.client(), "http://10.96.0.8:8080/"), "200 server")
	})
	for _, c := range silent[:n/2] {
		if got := exchange(c, "GET / HTTP/1.0\r\n\r"); got != "HTTP/1.0 200 OK" {
			t.Error(got)
		}
	}
	s.down()
	if err := request("GET / HTTP/1.0\r\n\r\n")(routed); err != nil {
		t.Errorf("without the control plane: %v", err)
	}
	again := open("10.96.0.1:8080")
	eventually(t, "one more silent connection", func() bool { return s.client.stat(waiting) == n-n/2+1 })
	if err := request("GET / HTTP/1.0\r\n\r\n")(again); err != nil {
		t.Errorf("without the control plane, a new connection: %v", err)
	}
	for _, c := range silent {
		c.Close()
	}
	eventually(t, "no silent connections", func() bool { return s.client.stat(waiting) == 0 })
}

// hello is mutual TLS as a proxy's, with its first record in pieces that end at these numbers
// of bytes, and a pause between them.
func hello(config *tls.Config, talk func(net.Conn) error, ends ...int) func(net.Conn) error {
	return func(c net.Conn) error {
		secure := tls.Client(&inPieces{c, ends}, config)
		if err := secure.Handshake(); err != nil {
			return err
		}
		return talk(secure)
	}
}

type inPieces struct {
	net.Conn
	ends []int
}

func (p *inPieces) Write(b []byte) (int, error) {
	ends, begin := p.ends, 0
	p.ends = nil
	for _, end := range ends {
		if _, err := p.Conn.Write(b[begin:end]); err != nil {
			return begin, err
		}
		begin = end
		time.Sleep(250 * time.Millisecond)
	}
	n, err := p.Conn.Write(b[begin:])
	return begin + n, err
}

// meshTLS is a client's configuration as the proxies', with the certificate of an account.
func meshTLS(t *testing.T, authority *ca.Authority, account string) *tls.Config {
	t.Helper()
	chain, key := certificate(t, authority, account)
	c, err := tls.X509KeyPair([]byte(chain), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"outrider"}, Certificates: []tls.Certificate{c}}
}

// strictPod is a server that takes mutual TLS only.
func (s *shop) strictPod() *pod {
	s.source.set(&mesh.PolicySpec{Name: "strict", Namespace: namespace, Selector: map[string]string{"app": "strict"}, Mode: mesh.ModeStrict})
	p := s.pod("strict", "strict")
	s.service("strict", "", "strict", port(8083, mesh.HTTP), port(6380, mesh.TCP))
	return p.proxied()
}

// A ClientHello is one however late it comes, where a declaration or the policy says that the
// client sends first.
func TestLateHellos(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.service("tls", "", "server", port(8443, mesh.TLS))
	go repeat(s.server.listen(8443), "server")
	strict := s.strictPod()
	go echo(strict.listen(8083), "server")
	go repeat(strict.listen(6380), "server")
	go repeat(strict.listen(6381), "server") // undeclared
	go greet(strict.listen(6382), "server PING")
	s.client.send(strict.v4.String()+":6380", "PING") // its configuration is there
	config := meshTLS(t, s.ca, "client")
	peer := func(want string) func(net.Conn) error {
		return func(c net.Conn) error {
			io.WriteString(c, "GET /peer HTTP/1.0\r\nX-Forwarded-Client-Cert: forged\r\n\r\n")
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return err
			}
			b, err := io.ReadAll(r.Body)
			if !strings.HasSuffix(string(b), want) || want == "" && len(b) > 0 || err != nil {
				return fmt.Errorf("peer %q, %v", b, err)
			}
			return nil
		}
	}
	const identity = "spiffe://cluster.local/ns/shop/sa/client"
	ping := func(c net.Conn) error {
		if got := exchange(c, "PING"); got != "server PING" {
			return errors.New(got)
		}
		return nil
	}
	at := func(p *pod, port int) string { return fmt.Sprintf("%s:%d", p.v4, port) }
	calls := []lateCall{
		{"plain HTTP", at(s.server, 8083), peer("")},
		{"plain HTTP, IPv6", "[" + s.server.v6.String() + "]:8083", peer("")},
		{"HTTP, IPv6", "[" + s.server.v6.String() + "]:8083", hello(config, peer(identity))},
		{"STRICT, undeclared", at(strict, 6381), hello(config, ping)},
		{"STRICT, the server first", at(strict, 6382), hello(config, ping)},
	}
	for _, ends := range [][]int{nil, {1}, {5}, {300}} {
		calls = append(calls,
			lateCall{fmt.Sprint("HTTP ", ends), at(s.server, 8083), hello(config, peer(identity), ends...)},
			lateCall{fmt.Sprint("TLS ", ends), at(s.server, 8443), hello(config, ping, ends...)},
			lateCall{fmt.Sprint("STRICT HTTP ", ends), at(strict, 8083), hello(config, peer(identity), ends...)},
			lateCall{fmt.Sprint("STRICT bytes ", ends), at(strict, 6380), hello(config, ping, ends...)},
		)
	}
	lateCalls(t, s.plain, calls)
}

// An application behind STRICT gets no connection of a client that is not authenticated,
// whatever the client sends, and when.
func TestStrictStaysStrict(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	strict := s.strictPod()
	var accepted atomic.Int64
	ports := []uint16{8083, 6380, 6381}
	for _, n := range ports {
		go accept(strict.listen(n), func(net.Conn) { accepted.Add(1) })
	}
	elsewhere, err := ca.NewAuthority(ca.AuthorityOptions{Dir: t.TempDir(), TrustDomain: mesh.DefaultTrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	anonymous, wrong, right := meshTLS(t, s.ca, "client"), meshTLS(t, elsewhere, "client"), meshTLS(t, s.ca, "client")
	anonymous.Certificates = nil
	late := func(pieces ...string) func(net.Conn) {
		return func(c net.Conn) {
			for _, p := range pieces {
				io.WriteString(c, p)
				time.Sleep(250 * time.Millisecond)
			}
		}
	}
	handshake := func(config *tls.Config) func(net.Conn) {
		return func(c net.Conn) {
			secure := tls.Client(c, config)
			secure.Handshake()
			io.WriteString(secure, "PING\n")
			io.Copy(io.Discard, secure)
		}
	}
	const request = "GET / HTTP/1.0\r\n\r\n"
	clients := map[string]func(net.Conn){
		"plain text": late(request), "plain text, late": late("", request), "one byte": late("G"), "silent": late("", ""),
		"another protocol": late("", "PING 12345678\n"), "no certificate": handshake(anonymous), "a certificate of another authority": handshake(wrong),
	}
	var all sync.WaitGroup
	for name, client := range clients { // any order: they run at once
		for _, n := range ports {
			c, err := s.plain.dial(context.Background(), "tcp", fmt.Sprintf("%s:%d", strict.v4, n))
			if err != nil {
				t.Fatal(name, err)
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			all.Go(func() {
				defer c.Close()
				client(c)
			})
		}
	}
	all.Wait()
	if n := accepted.Load(); n != 0 {
		t.Errorf("the application got %d connections", n)
	}
	c, err := s.plain.dial(context.Background(), "tcp", fmt.Sprintf("%s:6380", strict.v4))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	handshake(right)(c)
	if n := accepted.Load(); n != 1 {
		t.Errorf("and %d with one that is authenticated", n)
	}
}

// A service whose server speaks first takes the detection of HTTP from no other service of the
// same port number.
func TestOneServerFirstService(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.route("web", "web", 8080)
	s.service("greeter", "10.96.0.60 fd96::60", "server", mesh.PortSpec{Port: mesh.Port{Name: "x", Number: 8080, Protocol: mesh.ServerFirst}, Target: 3306})
	s.service("undeclared", "10.96.0.61", "server", mesh.PortSpec{Port: mesh.Port{Name: "x", Number: 3306}, Target: 8080})
	s.route("undeclared", "undeclared", 3306)
	eventually(t, "the listeners", func() bool {
		out, err := s.client.admin.Get(context.Background(), "/listeners", "")
		return err == nil && strings.Contains(string(out), "outbound_10.96.0.60_8080::") && strings.Contains(string(out), "outbound_3306::")
	})
	for to, want := range map[string]string{"10.96.0.1:8080": "web", "10.96.0.61:3306": "undeclared"} { // any order: independent
		r, err := s.client.client().Get("http://" + to)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if got := r.Header.Get("X-Route"); got != want {
			t.Errorf("%s: route %q", to, got)
		}
	}
	for _, to := range []string{"10.96.0.60:8080", "[fd96::60]:8080", "10.96.0.2:3306", "[fd96::2]:3306"} {
		before := s.client.stalls()
		if got := s.client.send(to, ""); got != "server" {
			t.Errorf("%s: %q", to, got)
		}
		if n := s.client.stalls() - before; n != 0 {
			t.Errorf("%s: %d waits for first bytes", to, n)
		}
	}
}
