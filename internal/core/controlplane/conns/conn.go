package conns

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"outrider.dev/internal/base/latest"
)

// A slot contains the state of an open connection that is needed for the limits.
type slot struct {
	listener *Listener
	raw      net.Conn
	from     netip.Addr // [block] of the client's address
	address  *address
	pool     *pool                  // the pool that counts the slot; nil with an identity or after closing
	evicted  bool                   // closed in favour of another connection; guarded by listener.mu
	settle   func()                 // ends the opening stage; set before the handshake
	number   uint64                 // order of arrival
	client   atomic.Pointer[client] // nil without an identity; set once
	expiry   *time.Timer            // closes the connection when it fires; guarded by listener.mu

	once sync.Once
	open context.Context // ends when the slot is freed
	free context.CancelFunc
}

// leave closes the connection and frees its slot.
func (s *slot) leave() {
	s.once.Do(func() {
		s.raw.Close()
		s.listener.release(s)
		s.free()
	})
}

func (s *slot) limiters() limiters {
	if c := s.client.Load(); c != nil {
		return c.limiters
	}
	return s.address.limiters
}

// A transport is the connection beneath TLS. It limits the bytes that it reads from a client, because their
// number bounds the server's work between two reads.
type transport struct {
	net.Conn
	*slot
	established bool   // the handshake is over
	read        int    // bytes read after the handshake, without an identity
	turn        func() // ends the handshake's turn at a processor; may be nil
}

// hello waits for a turn at a processor. The turn ends when the handshake reads again, so that a client which
// stops in the middle does not occupy a processor. Authenticated addresses have a separate queue.
func (t *transport) hello() (err error) {
	t.turn, err = t.listener.handshakes[t.listener.queueOf(t.slot)].Enter(t.open, t.from, 1)
	if err == nil && closedByClient(t.raw) {
		err = errClosedByClient
	}
	return err
}

// Read is limited to the client's rate. After a handshake without an identity, it also waits for the turn of
// the client's address.
func (t *transport) Read(p []byte) (int, error) {
	t.done()
	n, err := t.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	if wait := t.limiters().bytes.ReserveN(time.Now(), n).Delay(); wait > 0 {
		latest.Wait(t.open, time.After(wait))
	}
	switch {
	case !t.established:
	case t.client.Load() == nil:
		if t.read += n; t.read > maxAnonymousBytes && !t.listener.o.Unidentified {
			t.listener.refuse(t.slot, TooMuch, fmt.Sprintf("%d bytes are read from a client without an identity", maxAnonymousBytes))
			return 0, net.ErrClosed
		}
		leave, closed := t.listener.reads.Enter(t.open, t.from, min(int64(n), t.listener.reads.share))
		if closed != nil {
			return 0, net.ErrClosed
		}
		time.AfterFunc(readTime, leave)
	default:
		// Yield, because otherwise a client that sends without a pause would occupy a processor for 10 ms at
		// a time.
		runtime.Gosched()
	}
	return n, err
}

// done ends the handshake's turn at a processor.
func (t *transport) done() {
	if t.turn != nil {
		t.turn()
		t.turn = nil
	}
}

// Close also ends a Read that waits for its turn.
func (t *transport) Close() error {
	t.leave()
	return nil
}

type connKey struct{}

// InContext stores a connection in the context of its requests, for [Authenticated]. It is meant for
// [http.Server.ConnContext].
func InContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Authenticated marks the address of a request's client as authenticated. Call it after a request that only
// the intended client can have sent. Later handshakes from that address use the queue of authenticated
// addresses, so that half-open connections, from however many addresses, do not delay them.
func Authenticated(request context.Context) {
	if c, ok := request.Value(connKey{}).(*Conn); ok {
		c.listener.mu.Lock()
		c.address.authenticated = true
		c.listener.mu.Unlock()
	}
}

// A Conn is an accepted connection, after its TLS handshake if there is TLS.
type Conn struct {
	net.Conn
	*slot
}

// Close closes the connection and frees its slot.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// farewell is the time in which a client may read why it was refused.
const farewell = time.Second

// goAway sends the reason for closing the connection in an HTTP/2 GOAWAY frame, because clients log its text.
func (c *Conn) goAway(text string) {
	c.Conn.SetDeadline(time.Now().Add(farewell))
	f := http2.NewFramer(c.Conn, c.Conn)
	if f.WriteSettings() != nil || f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte(text)) != nil {
		return
	}
	if secure, ok := c.Conn.(*tls.Conn); ok {
		secure.CloseWrite()
	}
	// Closing a connection with unread bytes would reset it before the client has read the reason.
	discard := make([]byte, 512)
	for {
		if _, err := c.Conn.Read(discard); err != nil {
			return
		}
	}
}

// A queue is the listener from which one server accepts connections.
type queue struct {
	from   net.Listener
	conns  chan *Conn
	once   sync.Once
	closed chan struct{}
}

func newQueue(from net.Listener) *queue {
	return &queue{from: from, conns: make(chan *Conn), closed: make(chan struct{})}
}

// add waits until the server accepts c. If the server stops, c is closed.
func (q *queue) add(c *Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		c.Close()
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *queue) Addr() net.Addr { return q.from.Addr() }
