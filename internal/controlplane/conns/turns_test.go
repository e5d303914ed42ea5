package conns

import (
	"crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"
)

// occupy takes all that a gate has, by two addresses, until end is called.
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

// waiting returns once so many turns of a gate wait.
func waiting(t *testing.T, g *Gate, n int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		has := 0
		for _, turns := range g.waiting { // any order: a sum
			has += len(turns)
		}
		g.mu.Unlock()
		if has == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d turns wait, want %d", has, n)
		}
	}
}

// hello is the first message of a client.
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

// Nothing is computed for a handshake before its turn. An address at which a client had an
// identity does not wait for those without. A client that leaves waits no more.
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
	l.mu.Lock()
	for o := range l.busy { // any order: there is one
		o.known = true
	}
	l.mu.Unlock()
	dial(t, l, 2)
	accept(t, l.Identified())

	end()
	for _, c := range silent {
		c.SetReadDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); n == 0 {
			t.Errorf("%v; want the server's part of the handshake", err)
		}
	}
	// They go on no more, and have no processor.
	waiting(t, l.handshakes[0], 0)
	for _, g := range l.handshakes {
		occupy(t, g)()
	}

	defer occupy(t, l.handshakes[1])()
	gone := connect(t, l, 1)[0]
	gone.Write(message)
	waiting(t, l.handshakes[1], 1)
	l.mu.Lock()
	all := l.fullest().anonymous
	last := all[len(all)-1]
	l.mu.Unlock()
	last.leave()
	waiting(t, l.handshakes[1], 0)
}

// Where a request without an identity was answered, the next handshake has a turn with those
// that are known.
func TestKnownByARequest(t *testing.T) {
	l := start(t, Options{})
	dial(t, l, 0)
	Known(t.Context()) // of another server
	Known(InContext(t.Context(), accept(t, l.Anonymous())))
	defer occupy(t, l.handshakes[0])()
	dial(t, l, 0)
	accept(t, l.Anonymous())
}

// What a client without an identity sends is read at its turn, what others send at once.
func TestReadsWithoutAnIdentityWaitForTheirTurn(t *testing.T) {
	l := start(t, Options{})
	unknown, known := dial(t, l, 0), dial(t, l, 2)
	to := map[*tls.Conn]net.Conn{unknown: accept(t, l.Anonymous()), known: accept(t, l.Identified())}
	end := occupy(t, l.reads)
	read := make(chan error, 1)
	for _, c := range []*tls.Conn{known, unknown} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := to[c].Read(make([]byte, 1))
			read <- err
		}()
		if c == unknown {
			waiting(t, l.reads, 1)
			end()
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
	}
}

// What is known of an address outlives what others do, as long as there is room.
func TestKnownAddressesAreKept(t *testing.T) {
	l := New(&net.TCPListener{}, Options{})
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	l.originOf(at(0)).known = true
	for i := range 2 * maxIdle {
		l.originOf(at(1 + i)).rate.Allow()
	}
	if o := l.origins[at(0)]; o == nil || len(l.origins) > maxIdle {
		t.Errorf("%+v of %d; want that it is kept", o, len(l.origins))
	}
	for i := range maxIdle { // and there is an end
		l.originOf(at(1 + i)).known = true
	}
	if l.originOf(at(1 << 20)); len(l.origins) > maxIdle {
		t.Errorf("%d addresses; want at most %d", len(l.origins), maxIdle)
	}
}

// Among addresses with as many connections one that is not known loses its oldest: that which
// was there first.
func TestKnownAddressKeepsItsConnection(t *testing.T) {
	l := New(&net.TCPListener{}, Options{})
	var all []*place
	for i := range maxAnonymous + 20 {
		from := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		l.originOf(from).known = i < 10
		all = append(all, l.admit(&stub{from: from}))
	}
	for i, p := range all {
		if closed, want := p.open.Err() != nil, i >= 10 && i < 30; closed != want {
			t.Errorf("connection %d is closed: %v, want %v; the first 10 are of known addresses", i, closed, want)
		}
	}
}
