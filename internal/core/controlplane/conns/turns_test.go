package conns

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"outrider.dev/test/process"
)

// occupy takes all units of a gate, for several addresses, until end is called.
func occupy(t *testing.T, g *Gate) (end func()) {
	t.Helper()
	var ends []func()
	for last := byte(1); g.Free() > 0; last++ {
		leave, err := g.Enter(t.Context(), netip.AddrFrom4([4]byte{192, 0, 2, last}), min(g.share, g.Free()))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, leave)
	}
	return func() {
		for _, leave := range ends {
			leave()
		}
	}
}

// waiting waits until n turns wait at a gate.
func waiting(t *testing.T, g *Gate, n int) {
	t.Helper()
	process.Retry(t, func() error {
		g.mu.Lock()
		has := 0
		for e := g.turns.Front(); e != nil; e = e.Next() {
			for _, turns := range e.Value.(*waiter).names {
				has += len(turns)
			}
		}
		g.mu.Unlock()
		if has == n {
			return nil
		}
		return fmt.Errorf("%d turns wait, want %d", has, n)
	})
}

// hello returns the first message (ClientHello) of a TLS client.
func hello(t *testing.T) []byte {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	go tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake()
	message := make([]byte, 16<<10)
	n, err := far.Read(message)
	if err != nil {
		t.Fatal(err)
	}
	return message[:n]
}

// The server computes nothing for a handshake before its turn. An authenticated address does not wait for
// addresses that are not authenticated. A client that disconnects no longer waits.
func TestHandshakesWaitForTheirTurn(t *testing.T) {
	l := start(t, Options{handshake: time.Hour})
	end := occupy(t, l.handshakes[0])
	message := hello(t)
	silent := connect(t, l, 2)
	for _, c := range silent {
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	waiting(t, l.handshakes[0], 2)
	oldest := func(from netip.Addr) []*slot {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.before.slots[from]
	}
	local := netip.MustParseAddr("127.0.0.1")
	l.mu.Lock()
	l.stateOf(local).authenticated = true
	l.mu.Unlock()
	dial(t, l, 2)
	accept(t, l.Identified())

	end()
	for _, c := range silent {
		c.SetReadDeadline(time.Now().Add(process.Patience))
		if n, err := c.Read(make([]byte, 1)); n == 0 {
			t.Errorf("%v; want the server's part of the handshake", err)
		}
	}
	// These clients do not continue their handshakes, and do not occupy a processor.
	waiting(t, l.handshakes[0], 0)
	for _, g := range l.handshakes {
		occupy(t, g)()
	}

	defer occupy(t, l.handshakes[1])()
	left := connect(t, l, 1)[0]
	left.Write(message)
	waiting(t, l.handshakes[1], 1)
	all := oldest(local)
	all[len(all)-1].leave()
	waiting(t, l.handshakes[1], 0)
}

// After a request that authenticates its address, the next handshake from there uses the queue of
// authenticated addresses.
func TestAddressAuthenticatedByARequest(t *testing.T) {
	l := start(t, Options{})
	dial(t, l, 0)
	Authenticated(t.Context()) // no effect: the context contains no connection of a listener
	Authenticated(InContext(t.Context(), accept(t, l.Anonymous())))
	defer occupy(t, l.handshakes[0])()
	dial(t, l, 0)
	accept(t, l.Anonymous())
}

// Bytes from a client without an identity are read when it is its turn. Bytes from other clients are read at
// once.
func TestReadsWithoutAnIdentityWaitForTheirTurn(t *testing.T) {
	l := start(t, Options{})
	without, with := dial(t, l, 0), dial(t, l, 2)
	to := map[*tls.Conn]net.Conn{without: accept(t, l.Anonymous()), with: accept(t, l.Identified())}
	end := occupy(t, l.reads)
	read := make(chan error, 1)
	for _, c := range []*tls.Conn{with, without} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := to[c].Read(make([]byte, 1))
			read <- err
		}()
		if c == without {
			waiting(t, l.reads, 1)
			end()
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
	}
}

// If there are too many addresses, the authenticated ones are removed last.
func TestAuthenticatedAddressesAreKept(t *testing.T) {
	l := New(&net.TCPListener{}, Options{})
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	l.stateOf(at(0)).authenticated = true
	for i := range 2 * maxIdle {
		l.stateOf(at(1 + i)).rate.Allow()
	}
	if o := l.addresses[at(0)]; o == nil || len(l.addresses) > maxIdle {
		t.Errorf("%+v of %d; want that it is kept", o, len(l.addresses))
	}
	for i := range maxIdle { // authenticated addresses are limited too
		l.stateOf(at(1 + i)).authenticated = true
	}
	if l.stateOf(at(1 << 20)); len(l.addresses) > maxIdle {
		t.Errorf("%d addresses; want at most %d", len(l.addresses), maxIdle)
	}
}

// If there are too many addresses, one that has used its burst is kept while others are as good as new: it would
// get a new burst otherwise.
func TestThrottledAddressIsKept(t *testing.T) {
	l := New(&net.TCPListener{}, Options{})
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	throttled := l.stateOf(at(0))
	throttled.rate.SetLimit(0) // so that no time adds a token
	for throttled.rate.Allow() {
	}
	for i := range 2 * maxIdle {
		l.stateOf(at(1 + i))
	}
	if l.addresses[at(0)] != throttled || len(l.addresses) > maxIdle {
		t.Errorf("%+v of %d; want that it is kept", l.addresses[at(0)], len(l.addresses))
	}
}

// Among addresses with the same number of connections, those that are not authenticated lose their oldest
// connections. The pool before the handshake is larger: it has space for all proxies of a mesh.
func TestAuthenticatedAddressKeepsItsConnection(t *testing.T) {
	l := New(&net.TCPListener{}, Options{})
	for name, tt := range map[string]struct {
		pool *pool
		most int
	}{"before the handshake": {l.before, maxWaiting}, "after it": {l.after, maxAnonymous}} {
		var all []*slot
		for i := range tt.most + 20 {
			from := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			l.stateOf(from).authenticated = i < 10
			p := l.admit(&stub{from: from})
			if tt.pool == l.after {
				l.established(p)
			}
			all = append(all, p)
		}
		for i, p := range all {
			if closed, want := p.open.Err() != nil, i >= 10 && i <= 10+tt.most/16; closed != want {
				t.Errorf("%s: connection %d is closed: %v, want %v; the first 10 are of authenticated addresses", name, i, closed, want)
			}
			p.leave()
		}
	}
	refused := int64(maxWaiting/16 + maxAnonymous/16 + 2)
	if c := l.Counters(); c.Anonymous != 0 || c.Refused[TooMany] != refused || len(l.before.slots)+len(l.after.slots) != 0 {
		t.Errorf("%+v, of %d and %d addresses; want none open, %d closed", c, len(l.before.slots), len(l.after.slots), refused)
	}
}

// The server does no work for a client that closed its connection while it waited for a slot or a processor.
func TestClientThatClosedItsConnectionIsNotServed(t *testing.T) {
	for name, waits := range map[string]func(*Listener) *Gate{
		"for a slot":      func(l *Listener) *Gate { return l.opening[0] },
		"for a processor": func(l *Listener) *Gate { return l.handshakes[0] },
	} {
		t.Run(name, func(t *testing.T) {
			l := start(t, Options{TLS: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				t.Error("the handshake goes on")
				return nil, errors.New("never")
			}}})
			end := occupy(t, waits(l))
			c := connect(t, l, 1)[0]
			if _, err := c.Write(hello(t)); err != nil {
				t.Fatal(err)
			}
			waiting(t, waits(l), 1)
			c.Close()
			end()
			process.Eventually(t, "the connection is counted as closed by its client", func() bool { return l.Counters().Refused[ClosedByClient] == 1 })
			if c := l.Counters(); c.Anonymous != 0 || c.Refused[Handshake] != 0 {
				t.Errorf("%+v; want no connection, and no failed handshake", c)
			}
		})
	}
}

// A client that has sent nothing does not occupy an opening slot. A client that stops in the middle loses its
// slot, but the server still continues when the client does.
func TestSlowClientHasNoSlot(t *testing.T) {
	l := start(t, Options{slow: time.Millisecond})
	all := l.opening[0].Free()
	near, err := net.Dial("tcp", l.from.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the connection is there", func() bool { return l.Counters().Anonymous == 1 })
	occupy(t, l.opening[0])()

	goOn := make(chan struct{})
	client := tls.Client(&stopping{Conn: near, until: goOn}, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	defer client.Close()
	ended := make(chan error, 1)
	go func() { ended <- client.Handshake() }()
	process.Eventually(t, "the slot is free", func() bool {
		return client.NetConn().(*stopping).stopped.Load() && l.opening[0].Free() == all
	})
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	accept(t, l.Anonymous())
}

// A client that sends nothing, or stops in the middle of its handshake, is disconnected after the timeout,
// and counted.
func TestHandshakeThatTakesTooLongIsCounted(t *testing.T) {
	l := start(t, Options{handshake: 10 * time.Millisecond})
	for i, message := range [][]byte{nil, hello(t)} {
		c := connect(t, l, 1)[0]
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
		process.Eventually(t, "the handshake is counted", func() bool { return l.Counters().Refused[Handshake] == int64(i+1) })
	}
	if c := l.Counters(); c.Anonymous != 0 {
		t.Errorf("%+v; want no connection", c)
	}
}

// A stopping connection delays the client's second message until the test allows it.
type stopping struct {
	net.Conn
	writes  int
	stopped atomic.Bool
	until   chan struct{}
}

func (s *stopping) Write(p []byte) (int, error) {
	if s.writes++; s.writes == 2 {
		s.stopped.Store(true)
		<-s.until
	}
	return s.Conn.Write(p)
}

// A connection is opening until Settled is called, the client makes a call of another method, or the
// connection is closed. The same holds for a connection that has no identity at first and proves one.
func TestOpening(t *testing.T) {
	l := start(t, Options{slow: time.Hour, Opening: func(method string) bool { return method == "/first" }})
	all := l.opening[0].Free() + l.opening[1].Free()
	taken := func() int64 { return all - l.opening[0].Free() - l.opening[1].Free() }
	opened := func(serial int64, from net.Listener) (*Conn, context.Context) {
		dial(t, l, serial)
		c := accept(t, from).(*Conn)
		_, info, err := Credentials().ServerHandshake(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
		if Tap(ctx, &tap.Info{FullMethodName: "/first"}); taken() != 1 {
			t.Fatalf("%d slots are taken, want 1", taken())
		}
		return c, ctx
	}
	for name, end := range map[string]func(*Conn, context.Context){
		"settled":      func(_ *Conn, ctx context.Context) { Settled(ctx); Settled(ctx) },
		"another call": func(_ *Conn, ctx context.Context) { Tap(ctx, &tap.Info{FullMethodName: "/second"}) },
		"closed":       func(c *Conn, ctx context.Context) { c.Close(); Settled(ctx) },
	} {
		for serial, from := range map[int64]net.Listener{2: l.Identified(), 0: l.Anonymous()} {
			c, ctx := opened(serial, from)
			if serial == 0 {
				if Tap(ctx, &tap.Info{FullMethodName: "/second"}); taken() != 1 {
					t.Fatalf("%d slots are taken without an identity, want 1", taken())
				}
				if err := Identify(ctx, "x", time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			end(c, ctx)
			process.Eventually(t, name+": the slot is free", func() bool { return taken() == 0 })
			c.Close()
		}
	}
	Settled(t.Context()) // no effect: the context contains no connection of a listener
}
