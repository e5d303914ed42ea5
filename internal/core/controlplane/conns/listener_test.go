package conns

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"outrider.dev/internal/base/wire"
	"outrider.dev/test/process"
)

// start serves a listener on loopback. The identity of a client is the serial number of its certificate.
func start(t *testing.T, o Options) *Listener {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, 1)}, NextProtos: []string{"h2"}, ClientAuth: tls.RequestClientCert}
		o.Identify = func(s tls.ConnectionState) (string, error) { return s.PeerCertificates[0].SerialNumber.String(), nil }
	}
	l := New(raw, o)
	ended := make(chan error, 1)
	go func() { ended <- l.Serve() }()
	t.Cleanup(func() {
		l.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

func certificate(t *testing.T, serial int64) tls.Certificate {
	t.Helper()
	return certificateUntil(t, serial, time.Now().Add(time.Hour))
}

func certificateUntil(t *testing.T, serial int64, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// dial connects with a certificate that has this serial number; 0: without a certificate.
func dial(t *testing.T, l *Listener, serial int64) *tls.Conn {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	if serial != 0 {
		config.Certificates = []tls.Certificate{certificate(t, serial)}
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: process.Patience}, "tcp", l.from.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCertificateSelectsTheServer(t *testing.T) {
	l := start(t, Options{})
	dial(t, l, 0)
	anonymous := accept(t, l.Anonymous())
	dial(t, l, 2)
	identified := accept(t, l.Identified())
	if c := l.Counters(); c.Anonymous != 1 || c.Identified != 1 {
		t.Errorf("%+v; want one connection of each kind", c)
	}
	for _, c := range []net.Conn{anonymous, identified} {
		_, info, err := Credentials().ServerHandshake(c)
		if err != nil || info.(Info).ConnectionState().NegotiatedProtocol != "h2" {
			t.Errorf("%v, %v; want the state of TLS", info, err)
		}
		c.Close()
		c.Close()
	}
	if c := l.Counters(); c != (Counters{}) {
		t.Errorf("%+v; want none after they are closed", c)
	}
}

func TestClientIsToldWhyItsConnectionIsRefused(t *testing.T) {
	l := start(t, Options{Proxies: 1})
	for range connectionsPerProxy {
		dial(t, l, 2)
		accept(t, l.Identified())
	}
	c := dial(t, l, 2)
	f := http2.NewFramer(io.Discard, c)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("%v; want a frame GOAWAY", err)
		}
		if away, ok := frame.(*http2.GoAwayFrame); ok {
			if text := string(away.DebugData()); !strings.Contains(text, `4 connections of "2" from one address`) {
				t.Errorf("%q; want the limit and the client", text)
			}
			break
		}
	}
	dial(t, l, 3) // another identity at the same address has its own limit
	accept(t, l.Identified())
}

// connect opens n connections that send nothing.
func connect(t *testing.T, l *Listener, n int) []net.Conn {
	t.Helper()
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", l.from.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	return all
}

func closed(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(process.Patience))
	var timeout net.Error
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%d bytes, %v; want that the server closes the connection", n, err)
	}
}

func TestAddressThatConnectsTooFastIsRefused(t *testing.T) {
	l := start(t, Options{})
	// Four times the burst, because each second of the test allows further connections.
	connect(t, l, 4*addressBurst)
	process.Eventually(t, "refused connections", func() bool { return l.Counters().Refused[TooFast] > 0 })
}

// A stub is an accepted connection from an address, without a network.
type stub struct {
	net.Conn
	from   netip.Addr
	closed bool
}

func (s *stub) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(s.from, 1)) }
func (s *stub) Close() error         { s.closed = true; return nil }

func TestAddressWithMostConnectionsLosesItsOldestOnes(t *testing.T) {
	l := New(&net.TCPListener{}, Options{})
	admit := func(address string) *stub {
		s := &stub{from: netip.MustParseAddr(address)}
		l.admit(s)
		return s
	}
	one := admit("10.0.0.1")
	var many []*stub
	for i := range maxWaiting {
		// The addresses of one machine count as one. Its rate is unlimited, because this test is about the
		// number of connections.
		l.stateOf(block(netip.MustParseAddr("fd00::1"))).rate.SetLimit(rate.Inf)
		many = append(many, admit(netip.AddrFrom16([16]byte{0xfd, 15: byte(i)}).String()))
	}
	last := admit("10.0.0.2")
	switch {
	case one.closed || last.closed:
		t.Error("connections of other addresses are closed")
	case !many[0].closed || !many[maxWaiting/16].closed || many[maxWaiting/16+1].closed:
		t.Error("the oldest of the address with most are not what is closed")
	}
	const refused = maxWaiting/16 + 1
	if c := l.Counters(); c.Anonymous != maxWaiting+2-refused || c.Refused[TooMany] != refused {
		t.Errorf("%+v; want %d refused, and the others open", c, refused)
	}
}

func TestWhatIsKnownOfAddressesIsBounded(t *testing.T) {
	l := New(&net.TCPListener{}, Options{})
	for i := range 3 * maxIdle {
		s := &stub{from: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
		p := l.admit(s)
		if err := l.join(p, "x", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		p.leave()
	}
	if len(l.addresses) > maxIdle || len(l.clients) > maxIdle || l.Counters() != (Counters{}) {
		t.Errorf("%d addresses, %d clients, %+v; want at most %d", len(l.addresses), len(l.clients), l.Counters(), maxIdle)
	}
}

func TestHandshakeThatFailsFreesItsSlot(t *testing.T) {
	l := start(t, Options{})
	c := connect(t, l, 1)[0]
	if _, err := c.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(process.Patience))
	io.Copy(io.Discard, c) // returns after the alert
	closed(t, c)
	process.Eventually(t, "a refusal", func() bool { return l.Counters().Refused[Handshake] > 0 })
	if n := l.Counters().Anonymous; n != 0 {
		t.Errorf("%d connections are counted; want none", n)
	}
}

func TestClientThatCallsTooOftenLosesItsConnection(t *testing.T) {
	l := start(t, Options{Proxies: 1})
	for name, serial := range map[string]int64{"identified": 2, "anonymous": 0} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, l, serial)
			from := l.Anonymous()
			if serial != 0 {
				from = l.Identified()
			}
			server := accept(t, from)
			_, info, err := Credentials().ServerHandshake(server)
			if err != nil {
				t.Fatal(err)
			}
			server.(*Conn).limiters().certificates.SetLimit(rate.Inf) // so that the limit of all calls is reached first
			ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
			for range 100 * callBurstPerProxy { // far more than the burst, because time that passes allows further calls
				if _, err = Tap(ctx, &tap.Info{FullMethodName: "/any"}); err != nil {
					break
				}
			}
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%v; want ResourceExhausted", err)
			}
			closed(t, client)
		})
	}
}

// The rate for requests of certificates is lower than that for all calls. A client that exceeds it receives
// the reason, and its connection stays open.
func TestRequestsForCertificatesHaveTheirOwnRate(t *testing.T) {
	l := start(t, Options{Proxies: 1})
	tapped := func(serial int64) func(method string) error {
		from := l.Anonymous()
		dial(t, l, serial)
		if serial != 0 {
			from = l.Identified()
		}
		c := accept(t, from)
		_, info, err := Credentials().ServerHandshake(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
		return func(method string) error {
			may := c.(*Conn).limiters()
			may.calls.SetLimit(rate.Inf)
			may.certificates.SetLimit(0) // so that no new certificates are allowed during the test
			_, err := Tap(ctx, &tap.Info{FullMethodName: method})
			return err
		}
	}
	for name, serial := range map[string]int64{"identified": 2, "anonymous": 0} {
		call := tapped(serial)
		for i := range certificateBurst {
			if err := call(wire.CertificatePath); err != nil {
				t.Fatalf("%s: request %d of a burst: %v", name, i+1, err)
			}
		}
		if err := call(wire.CertificatePath); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "20 requests for certificates, or with tokens, a second") {
			t.Errorf("%s: %v; want ResourceExhausted with the limit", name, err)
		}
		if err := call("/any"); (err == nil) != (serial != 0) {
			t.Errorf("%s: another call: %v; want that it is refused without an identity: it may have a token", name, err)
		}
	}
	if err := tapped(3)(wire.CertificatePath); err != nil {
		t.Errorf("another client: %v", err)
	}
	if n := l.Counters().Refused[CallsTooFast]; n != 3 {
		t.Errorf("%d refusals are counted; want 3", n)
	}
}

func TestClientThatSendsTooMuchIsSlowedDown(t *testing.T) {
	c := newClient("", 1)
	now := time.Now()
	if d := c.bytes.ReserveN(now, minBytesBurst).DelayFrom(now); d > 0 {
		t.Errorf("waits %s for what one proxy sends; want none", d)
	}
	if d := c.bytes.ReserveN(now, minBytesRate).DelayFrom(now); d < 900*time.Millisecond {
		t.Errorf("waits %s for a second's bytes more; want a second", d)
	}
}

// A connection ends when the certificate that opened it expires, whatever its server does. If the connection
// is closed before, its timer is stopped.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	l := start(t, Options{})
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	config.Certificates = []tls.Certificate{certificateUntil(t, 7, time.Now().Add(time.Second))}
	short, err := tls.DialWithDialer(&net.Dialer{Timeout: process.Patience}, "tcp", l.from.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	served := accept(t, l.Identified()).(*Conn)
	long := dial(t, l, 8)
	left := accept(t, l.Identified()).(*Conn)
	short.SetReadDeadline(time.Now().Add(process.Patience))
	if _, err := short.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after the certificate's expiry: %v; want the end of the connection", err)
	}
	<-served.open.Done()
	select {
	case <-left.open.Done():
		t.Error("the connection with the longer certificate is closed too")
	default:
	}
	long.Close()
	left.Close()
	if left.expiry.Stop() {
		t.Error("a timer is kept for a connection that was closed")
	}
	if c := l.Counters(); c.Identified != 0 {
		t.Errorf("%+v; want none", c)
	}
}
