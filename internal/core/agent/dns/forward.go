package dns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A forwarder queries the pod's own name servers.
type forwarder struct {
	conf *confFile

	mu     sync.Mutex
	failed map[netip.AddrPort]time.Time // a server is tried last until this time
	own    map[origin]bool              // sources of the forwarder's own queries under way
}

// An origin is the source of a query.
type origin struct {
	tcp     bool
	address netip.AddrPort
}

func newForwarder(c *confFile) *forwarder {
	return &forwarder{conf: c, failed: map[netip.AddrPort]time.Time{}, own: map[origin]bool{}}
}

// send forwards a query and returns the answer, whose ID is not the client's. It tries the servers
// one after the other, at most twice each, and returns a failure only if none succeeds.
func (f *forwarder) send(ctx context.Context, q query, tcp bool) ([]byte, error) {
	c := f.conf.get()
	if len(c.servers) == 0 {
		return nil, errors.New("resolv.conf names no name server")
	}
	ctx, cancel := context.WithTimeout(ctx, allTimeout)
	defer cancel()
	var failure []byte
	var errs []error
	for range 2 {
		for _, server := range f.order(c.servers) {
			answer, err := f.try(ctx, server, q, tcp, c.timeout)
			if err == nil && !isFailure(answer) {
				f.mark(server, false)
				return answer, nil
			}
			if err == nil {
				failure = answer
				continue
			}
			if ctx.Err() != nil {
				break
			}
			f.mark(server, true)
			errs = append(errs, err)
		}
		if failure != nil || ctx.Err() != nil {
			break
		}
	}
	if failure != nil {
		return failure, nil
	}
	return nil, errors.Join(append(errs, ctx.Err())...)
}

// isFailure reports whether an answer is a failure after which another server may succeed.
func isFailure(answer []byte) bool {
	switch codeOf(answer) {
	case dnsmessage.RCodeServerFailure, dnsmessage.RCodeRefused, dnsmessage.RCodeNotImplemented:
		return true
	}
	return false
}

// order returns the servers in another order: servers that failed lately come last.
func (f *forwarder) order(servers []netip.AddrPort) []netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	var good, bad []netip.AddrPort
	for _, s := range servers {
		if now.Before(f.failed[s]) {
			bad = append(bad, s)
		} else {
			good = append(good, s)
		}
	}
	return append(good, bad...)
}

func (f *forwarder) mark(server netip.AddrPort, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !failed:
		delete(f.failed, server)
	case len(f.failed) < 16*maxServers: // a bound: a resolv.conf that keeps changing may name ever new servers
		f.failed[server] = time.Now().Add(failedLast)
	default:
		clear(f.failed)
	}
}

// try queries one server: over TCP if the client used TCP; otherwise over UDP, and again over TCP
// if the answer was truncated. A truncated answer is better than none.
func (f *forwarder) try(ctx context.Context, server netip.AddrPort, q query, tcp bool, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if tcp {
		return f.exchange(ctx, "tcp", server, q)
	}
	answer, err := f.exchange(ctx, "udp", server, q)
	if err != nil || !isTruncated(answer) {
		return answer, err
	}
	if whole, err := f.exchange(ctx, "tcp", server, q); err == nil {
		return whole, nil
	}
	return answer, nil
}

// exchange sends a query to one server and returns the answer. It uses a new socket, so that its port cannot be
// guessed, and ignores messages that do not answer the query.
func (f *forwarder) exchange(ctx context.Context, network string, server netip.AddrPort, q query) ([]byte, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	conn.SetDeadline(end)
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	defer f.track(originOf(conn.LocalAddr()))()

	message := framed(q.raw)
	rand.Read(message[2:4]) // never fails
	id := binary.BigEndian.Uint16(message[2:])
	if network == "udp" {
		message = message[2:]
	}
	if _, err := conn.Write(message); err != nil {
		return nil, err
	}
	for {
		answer, err := receive(conn, network)
		if err != nil {
			return nil, fmt.Errorf("querying %s: %w", server, err)
		}
		if answers(answer, id, q.question) {
			return answer, nil
		}
	}
}

// buffers are for answers over UDP, whose size is not known in advance.
var buffers = sync.Pool{New: func() any { return new([maxMessage]byte) }}

func receive(conn net.Conn, network string) ([]byte, error) {
	if network == "tcp" {
		return readMessage(conn)
	}
	b := buffers.Get().(*[maxMessage]byte)
	defer buffers.Put(b)
	n, err := conn.Read(b[:])
	return append([]byte(nil), b[:n]...), err
}

// framed returns a message with its length in front, as sent over TCP.
func framed(message []byte) []byte {
	out := make([]byte, 2, 2+len(message))
	binary.BigEndian.PutUint16(out, uint16(len(message)))
	return append(out, message...)
}

// readMessage reads a length and a message (RFC 1035, section 4.2.2).
func readMessage(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

func originOf(a net.Addr) origin {
	switch a := a.(type) {
	case *net.UDPAddr:
		return origin{false, unmapped(a.AddrPort())}
	case *net.TCPAddr:
		return origin{true, unmapped(a.AddrPort())}
	}
	return origin{}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// track records the source of a query until it is answered.
func (f *forwarder) track(o origin) (done func()) {
	f.mu.Lock()
	f.own[o] = true
	f.mu.Unlock()
	return func() {
		f.mu.Lock()
		delete(f.own, o)
		f.mu.Unlock()
	}
}

// isOwn reports whether a query comes from the proxy itself. This happens if the capture rules
// redirect the proxy's queries like the application's; forwarding would then loop.
func (f *forwarder) isOwn(o origin) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own[o]
}
