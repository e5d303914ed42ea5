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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
	"outrider.dev/test/process"
)

// pause is longer than the time for which a proxy waits for first bytes.
const pause = 250 * time.Millisecond

// lateness lists delays between connect and the first bytes. Some are shorter and some are longer than the time for
// which a proxy waits for first bytes.
var lateness = []time.Duration{0, 150 * time.Millisecond, 250 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second}

// A lateCall is a connection on which the client is silent at first. talk is its exchange with the server afterwards.
type lateCall struct {
	name, to string
	talk     func(net.Conn) error
}

// runLate opens 100 connections for each lateness, all at the same time, and divides them among the calls. It fails
// the test if one of them fails.
func runLate(t *testing.T, dial func(ctx context.Context, network, to string) (net.Conn, error), calls []lateCall) {
	t.Helper()
	const each, shown = 100, 3
	var all sync.WaitGroup
	failed := make([]atomic.Int64, len(lateness))
	for i := range each {
		call := calls[i%len(calls)]
		for j, wait := range lateness {
			c, err := dial(t.Context(), "tcp", call.to)
			if err != nil {
				t.Fatalf("%s: %v", call.name, err)
			}
			all.Go(func() {
				defer c.Close()
				time.Sleep(wait)
				c.SetDeadline(time.Now().Add(process.Patience))
				if err := call.talk(c); err != nil && failed[j].Add(1) <= shown {
					t.Errorf("%s, first byte after %s: %v", call.name, wait, err)
				}
			})
		}
	}
	all.Wait()
	for i, wait := range lateness {
		t.Logf("first byte after %s: %d of %d failed", wait, failed[i].Load(), each)
	}
}

// meshConfig returns the TLS configuration with which a proxy connects to another. The arguments are that proxy's
// certificate chain and key in PEM.
func meshConfig(chain, key []byte) (*tls.Config, error) {
	c, err := tls.X509KeyPair(chain, key)
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"outrider"}, Certificates: []tls.Certificate{c}}, err
}

// hello returns a call over TLS that sends its first record in pieces, with a pause after each. The arguments ends
// are the offsets at which the pieces end.
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
	begin := 0
	for _, end := range p.ends {
		if _, err := p.Conn.Write(b[begin:end]); err != nil {
			return begin, err
		}
		begin = end
		time.Sleep(pause)
	}
	p.ends = nil
	n, err := p.Conn.Write(b[begin:])
	return begin + n, err
}

// request returns a call that sends an HTTP request in pieces, with a pause between them. It checks that the response
// has the header that the route sets, and ends correctly.
func request(pieces ...string) func(net.Conn) error {
	return func(c net.Conn) error {
		for i, p := range pieces {
			if i > 0 {
				time.Sleep(pause)
			}
			if _, err := io.WriteString(c, p); err != nil {
				return err
			}
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(r.Body) // with HTTP/1.0 the body ends with the connection
		if err != nil || !strings.HasPrefix(string(body), "server ") || r.Header.Get("X-Route") != "web" {
			return fmt.Errorf("%s, route %q: %q, %v", r.Status, r.Header.Get("X-Route"), body, err)
		}
		return nil
	}
}

// A request to a port that declares HTTP is routed as HTTP, even if it arrives long after the connection was opened.
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
	pod := func(c net.Conn) error { // calls a pod of a headless service, which has no route
		if got := exchange(c, "GET / HTTP/1.0\r\n\r"); got != "HTTP/1.0 200 OK" {
			return errors.New(got)
		}
		return nil
	}
	runLate(t, s.client.dial, []lateCall{
		{name: "read to the end", to: vip, talk: request("GET / HTTP/1.0\r\n\r\n")},
		{name: "HTTP/1.1", to: vip, talk: request("GET / HTTP/1.1\r\nHost: web\r\n\r\n")},
		{name: "IPv6", to: "[fd96::1]:8080", talk: request("GET / HTTP/1.0\r\n\r\n")},
		{name: "in pieces", to: vip, talk: request("G", "ET / HTTP/1.0\r\n", "\r\n")},
		{name: "HTTP/2", to: vip, talk: preface},
		{name: "to a pod", to: s.server.v4.String() + ":8083", talk: pod},
		{name: "to a pod, IPv6", to: "[" + s.server.v6.String() + "]:8083", talk: pod},
		{name: "TLS though HTTP is declared", to: "10.96.0.7:8084", talk: func(c net.Conn) error { return tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }},
		{name: "bytes though HTTP is declared", to: "10.96.0.7:8085", talk: func(c net.Conn) error {
			if got := exchange(c, "PING"); got != "plain PING" {
				return errors.New(got)
			}
			return nil
		}},
	})
	if n := s.client.stalls(); n < 100 { // not all, because a busy proxy may accept a connection only after its silence has ended
		t.Errorf("the proxy waited %d times for first bytes", n)
	}
}

// The proxy does not choose a server for a silent connection to a port that declares HTTP. When the request arrives,
// the servers and routes of that time count, even without a control plane.
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
		c.SetDeadline(time.Now().Add(process.Patience))
		silent = append(silent, c)
		return c
	}
	const n = 50
	for range n {
		open("10.96.0.8:8080")
	}
	routed := open("10.96.0.1:8080")
	const waiting = `listener\.envoy_internal_late\.downstream_pre_cx_active`
	s.eventually(t, "silent connections at the internal listener", func() bool { return s.client.stat(waiting) == n+1 })
	if accepted.Load() != 0 {
		t.Errorf("%d connections to the server", accepted.Load())
	}
	// Remove the first server from the service, and add another one.
	s.service("silent", "10.96.0.8", "another", port(8080, mesh.HTTP))
	row := 0 // number of consecutive successes, because any of Envoy's threads may take a connection, and each must have the change
	s.eventually(t, "the other server, 20 times in a row", func() bool {
		if row++; !strings.HasPrefix(get(s.client.client(), "http://10.96.0.8:8080/"), "200 server") {
			row = 0
		}
		return row == 20
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
	s.eventually(t, "one more silent connection", func() bool { return s.client.stat(waiting) == n-n/2+1 })
	if err := request("GET / HTTP/1.0\r\n\r\n")(again); err != nil {
		t.Errorf("without the control plane, a new connection: %v", err)
	}
	for _, c := range silent {
		c.Close()
	}
	s.eventually(t, "no silent connections", func() bool { return s.client.stat(waiting) == 0 })
}

// meshTLS returns the TLS configuration with which the proxy of a service account connects to another proxy.
func meshTLS(t *testing.T, authority *ca.Authority, account string) *tls.Config {
	t.Helper()
	chain, key := certificate(t, authority, account)
	config, err := meshConfig([]byte(chain), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// strictPod makes a server that accepts only mutual TLS.
func (s *shop) strictPod() *pod {
	s.source.set(&mesh.PolicySpec{Name: "strict", Namespace: namespace, Selector: map[string]string{"app": "strict"}, Mode: mesh.ModeStrict})
	p := s.pod("strict", "strict")
	s.service("strict", "", "strict", port(8083, mesh.HTTP), port(6380, mesh.TCP))
	return p.proxied()
}

// If the policy requires mutual TLS, a ClientHello is recognized even if it arrives long after the connection was
// opened. Otherwise it is recognized within a second; after that the connection counts as TCP, and a server that sends
// first greets the silent client.
func TestLateHellos(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.service("tls", "", "server", port(8443, mesh.TLS))
	go repeat(s.server.listen(8443), "server")
	strict := s.strictPod()
	go echo(strict.listen(8083), "server")
	go repeat(strict.listen(6380), "server")
	go repeat(strict.listen(6381), "server") // a port that no Service declares
	for _, p := range []*pod{strict, s.server} {
		go greet(p.listen(6382), "server PING")
	}
	s.client.send(strict.v4.String()+":6380", "PING") // makes the proxy load its configuration
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
		{name: "plain HTTP", to: at(s.server, 8083), talk: peer("")},
		{name: "plain HTTP, IPv6", to: "[" + s.server.v6.String() + "]:8083", talk: peer("")},
		{name: "STRICT, undeclared", to: at(strict, 6381), talk: hello(config, ping)},
		{name: "STRICT, the server first", to: at(strict, 6382), talk: hello(config, ping)},
	}
	for _, ends := range [][]int{nil, {1}, {5}, {300}} {
		calls = append(calls,
			lateCall{name: fmt.Sprint("STRICT HTTP ", ends), to: at(strict, 8083), talk: hello(config, peer(identity), ends...)},
			lateCall{name: fmt.Sprint("STRICT bytes ", ends), to: at(strict, 6380), talk: hello(config, ping, ends...)},
		)
	}
	runLate(t, s.plain.dial, calls)
	for _, c := range []lateCall{
		{name: "HTTP", to: at(s.server, 8083), talk: hello(config, peer(identity))},
		{name: "HTTP, IPv6", to: "[" + s.server.v6.String() + "]:8083", talk: hello(config, peer(identity), 5)},
		{name: "TLS", to: at(s.server, 8443), talk: hello(config, ping)},
		{name: "bytes", to: at(s.server, 6380), talk: hello(config, ping)},
		{name: "undeclared, the server first", to: at(s.server, 6382), talk: hello(config, ping)},
	} {
		s.eventually(t, c.name+", mutual TLS after a pause", func() bool { // retry, because a busy machine may make the pause too long
			conn, err := s.plain.dial(t.Context(), "tcp", c.to)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			time.Sleep(pause)
			conn.SetDeadline(time.Now().Add(process.Patience))
			return c.talk(conn) == nil
		})
	}
	if got := s.plain.send(at(s.server, 6382), ""); got != "server PING" {
		t.Errorf("undeclared, the server first, in plain text: %q", got)
	}
}

// An application for which the policy is STRICT gets no connection from an unauthenticated client, whatever bytes
// the client sends, and after any delay.
func TestStrictStaysStrict(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	strict := s.strictPod()
	var accepted atomic.Int64
	ports := []uint16{8083, 6380, 6381}
	for _, n := range ports {
		go accept(strict.listen(n), func(net.Conn) { accepted.Add(1) })
	}
	elsewhere, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(t.TempDir()), TrustDomain: mesh.DefaultTrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	anonymous, wrong, right := meshTLS(t, s.ca, "client"), meshTLS(t, elsewhere, "client"), meshTLS(t, s.ca, "client")
	anonymous.Certificates = nil
	pieces := func(pieces ...string) func(net.Conn) {
		return func(c net.Conn) {
			for _, p := range pieces {
				io.WriteString(c, p)
				time.Sleep(pause)
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
		"plain text": pieces(request), "plain text, late": pieces("", request), "one byte": pieces("G"), "silent": pieces("", ""),
		"another protocol": pieces("", "PING 12345678\n"), "no certificate": handshake(anonymous), "a certificate of another authority": handshake(wrong),
	}
	var all sync.WaitGroup
	for name, client := range clients { // any order: the clients run concurrently
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

// A service whose server sends first does not disable the detection of HTTP for other services with the same port
// number.
func TestOneServerFirstService(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.route("web", "web", 8080)
	s.service("greeter", "10.96.0.60 fd96::60", "server", mesh.PortSpec{Port: mesh.Port{Name: "x", Number: 8080, Protocol: mesh.ServerFirst}, Target: 3306})
	s.service("undeclared", "10.96.0.61", "server", mesh.PortSpec{Port: mesh.Port{Name: "x", Number: 3306}, Target: 8080})
	s.route("undeclared", "undeclared", 3306)
	s.eventually(t, "the listeners", func() bool {
		out, err := s.client.admin.Get(context.Background(), "/listeners", "")
		return err == nil && strings.Contains(string(out), "outbound_10.96.0.60_8080::") && strings.Contains(string(out), "outbound_3306::")
	})
	for to, want := range map[string]string{"10.96.0.1:8080": "web", "10.96.0.61:3306": "undeclared"} { // any order: independent calls
		// Retry, because the connection of a busy client may be silent for longer than a proxy inspects it.
		s.eventually(t, to+" by the route "+want, func() bool {
			r, err := s.client.client().Get("http://" + to)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			return r.Header.Get("X-Route") == want
		})
	}
	for _, to := range []string{"10.96.0.60:8080", "[fd96::60]:8080", "10.96.0.2:3306", "[fd96::2]:3306"} {
		process.EventuallyEqual(t, to+": waits for first bytes", 0, func() uint64 { // repeat this until each of Envoy's threads has the new listeners
			before := s.client.stalls()
			if got := s.client.send(to, ""); got != "server" {
				t.Errorf("%s: %q", to, got)
			}
			return s.client.stalls() - before
		}, s.envoys...)
	}
}

// A call that is made a moment before its service is created reaches the service, also if earlier connections to the
// service's address were lost.
func TestNewService(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(r *resource.Source) { r.FirstUseTimeout = process.Patience })
	s.router.IP("route", "add", "blackhole", "10.96.0.12/30")
	results := make(chan string, 2)
	go func() { results <- get(s.client.client(), "http://10.96.0.12:8080/") }()
	go func() { results <- s.client.send("10.96.0.13:6379", "PING") }()
	for _, name := range []string{"http|10.96.0.12:8080", "tcp|10.96.0.13:6379"} {
		s.eventually(t, "a subscription to "+name, func() bool {
			return slices.ContainsFunc(s.toServe.Proxies(), func(p xds.ProxyStatus) bool {
				return slices.ContainsFunc(p.Types, func(ty xds.TypeStatus) bool { return slices.Contains(ty.Subscribed, name) })
			})
		})
	}
	s.service("fresh", "10.96.0.12", "server", port(8080, mesh.HTTP))
	s.service("fresh-bytes", "10.96.0.13", "server", port(6379, mesh.TCP))
	for range 2 {
		if got := <-results; !strings.HasPrefix(got, "200 server") && got != "server PING" {
			t.Error(got)
		}
	}
}
