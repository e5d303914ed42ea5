package conns

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// A place is what an open connection is counted as.
type place struct {
	listener *Listener
	raw      net.Conn
	from     netip.Addr // [block] of the client's address
	origin   *origin
	client   *client     // nil without an identity; set once, before a server has the connection
	expiry   *time.Timer // of the client's certificate; nil without one; likewise

	once   sync.Once
	closed chan struct{} // is closed once the place is free
}

// leave closes the connection and frees its place.
func (p *place) leave() {
	p.once.Do(func() {
		p.raw.Close()
		p.listener.release(p)
		close(p.closed)
	})
}

// mayCall reports whether another call of the client is within its rate.
func (p *place) mayCall() bool {
	if p.client == nil {
		return p.origin.calls.Allow()
	}
	return p.client.calls.Allow()
}

// A Conn is an accepted connection, after its TLS handshake if there is one.
type Conn struct {
	net.Conn
	*place
}

// Read slows a client down that sends more bytes than its limit: what a server has
// received and not yet used is in memory.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 || c.client == nil {
		return n, err
	}
	if wait := c.client.bytes.ReserveN(time.Now(), n).Delay(); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.closed:
		}
	}
	return n, err
}

// Close closes the connection and frees its place.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// farewell is how long a client may take to read why it is refused.
const farewell = time.Second

// goAway says why the connection is closed, in the way of HTTP/2: clients log the text.
func (c *Conn) goAway(text string) {
	c.Conn.SetDeadline(time.Now().Add(farewell))
	f := http2.NewFramer(c.Conn, c.Conn)
	if f.WriteSettings() != nil || f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte(text)) != nil {
		return
	}
	if secure, ok := c.Conn.(*tls.Conn); ok {
		secure.CloseWrite()
	}
	// A close with unread bytes would reset the connection before the client has read.
	discard := make([]byte, 512)
	for {
		if _, err := c.Conn.Read(discard); err != nil {
			return
		}
	}
}

// A queue is the listener of one server.
type queue struct {
	from   net.Listener
	conns  chan *Conn
	once   sync.Once
	closed chan struct{}
}

func newQueue(from net.Listener) *queue {
	return &queue{from: from, conns: make(chan *Conn), closed: make(chan struct{})}
}

// add waits until the server accepts c. A server that stops closes it.
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
