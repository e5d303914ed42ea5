package standby

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inFlight is the maximum number of relayed connections that wait for the proxy's first answer at the same
// time. A connection without an answer counts for answerWait only, because its client may have sent nothing
// yet. If all held connections were relayed at once, the proxy would accept all of them before it answers the
// first.
const (
	inFlight   = 64
	answerWait = 5 * time.Millisecond
)

// dialers is the number of goroutines that open connections to the proxy. Connecting on loopback takes CPU time
// but no waiting, so more goroutines would only lose the order of arrival.
const dialers = 2

// A released connection is on its way to the proxy. life is the value of Standby.life when it
// was released.
type released struct {
	*held
	life int
}

// dialAll relays the released connections in order of arrival, until the standby is closed.
func (s *Standby) dialAll() {
	for {
		r, ok := s.released.take()
		if !ok {
			return
		}
		s.slots <- struct{}{}
		answered := sync.OnceFunc(func() { <-s.slots })
		up, ok := s.dial(r)
		if !ok {
			answered()
			continue
		}
		late := time.AfterFunc(answerWait, answered)
		s.work.Go(func() {
			defer s.ended(nil)
			s.relay(r.held, up, func() {
				late.Stop()
				answered()
			})
		})
	}
}

// relay carries one connection to the proxy and back until both sides have ended.
func (s *Standby) relay(h *held, up *net.TCPConn, answered func()) {
	stop := context.AfterFunc(s.ctx, func() { reset(h.conn); reset(up) })
	defer stop()
	// If the destination is the relay, the standby itself made this connection, to an earlier proxy that did
	// not accept it. Its PROXY header is already sent.
	if h.to != s.o.Relay {
		if _, err := up.Write(header(addrPort(h.conn.RemoteAddr()), h.to)); err != nil {
			reset(h.conn)
			reset(up)
			return
		}
	}
	join(h.conn, up, answered)
}

// dial connects to the proxy. If the proxy is gone, the held connection waits again, unless the
// next proxy listens already: then dial tries again.
func (s *Standby) dial(r released) (up *net.TCPConn, ok bool) {
	for {
		d := net.Dialer{KeepAlive: -1} // no keep-alive within one machine
		up, err := d.DialTCP(s.ctx, "tcp", netip.AddrPort{}, s.o.Relay)
		if err == nil {
			s.count(&s.counts.Relayed)
			return up, true
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			s.warnOnce("the proxy cannot be reached", "error", err)
			s.ended(&s.counts.Failed)
			reset(r.conn)
			return nil, false
		}
		s.warnOnce("the proxy has died, or does not take held connections", "error", err)
		var again bool
		if again, r.life = s.waitAgain(r.held, r.life); !again {
			return nil, false
		}
	}
}

// waitAgain holds a connection again after dial has found no proxy. If the next proxy got ready meanwhile,
// waitAgain returns true instead, and dial must try again.
func (s *Standby) waitAgain(h *held, life int) (again bool, now int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready && s.life != life {
		return true, s.life
	}
	s.counts.Relaying--
	s.keep(h)
	return false, life
}

// ended is called when a connection is no longer relayed. why is a counter to increase, or nil.
func (s *Standby) ended(why *uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why != nil {
		*why++
	}
	if s.counts.Relaying--; s.counts.Relaying == 0 && len(s.held) == 0 {
		s.log.Info("last early connection ended", "relayed", s.counts.Relayed)
	}
}

// join copies in both directions until both have ended. A FIN is passed on and ends one direction only; a reset
// ends both. answered is called at the first bytes from b, or at its end.
func join(a, b *net.TCPConn, answered func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyTo(b, a, func() {})
	}()
	copyTo(a, b, answered)
	<-done
	a.Close()
	b.Close()
}

// buffers hold the first bytes of a connection. Most connections carry so little that a pipe for splice(2)
// would not pay off, and a silent connection must have neither buffer nor pipe.
var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// spliceFrom is the number of bytes that go through a buffer before splice takes over.
const spliceFrom = 256 << 10

func copyTo(dst, src *net.TCPConn, began func()) {
	err := copyFirst(dst, src, began)
	if err == nil {
		_, err = io.Copy(dst, src) // by splice(2)
	}
	if err == nil || err == io.EOF {
		err = dst.CloseWrite()
	}
	if err != nil {
		reset(dst)
		reset(src)
	}
}

// copyFirst copies the first spliceFrom bytes. It returns io.EOF if src ended, and nil if
// there may be more.
func copyFirst(dst, src *net.TCPConn, began func()) error {
	raw, err := src.SyscallConn()
	if err != nil {
		return err
	}
	for total := 0; total < spliceFrom; {
		buf, n, err := read(raw)
		if total == 0 {
			began()
		}
		if err != nil {
			return err
		}
		_, err = dst.Write(buf[:n])
		buffers.Put(buf)
		if err != nil {
			return err
		}
		total += n
	}
	return nil
}

// read waits until there are bytes, and only then takes a buffer and reads into it.
func read(raw syscall.RawConn) (buf *[16 << 10]byte, n int, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		buf = buffers.Get().(*[16 << 10]byte)
		for {
			if n, err = unix.Read(int(fd), buf[:]); err != unix.EINTR {
				break
			}
		}
		if err != nil || n == 0 {
			buffers.Put(buf)
		}
		return err != unix.EAGAIN
	})
	if err = cmp.Or(waited, err); err == nil && n == 0 {
		err = io.EOF
	}
	return buf, n, err
}

// signature begins a header of the PROXY protocol, version 2
// (haproxy.org/download/2.9/doc/proxy-protocol.txt, section 2.2).
const signature = "\r\n\r\n\x00\r\nQUIT\n"

// The two bytes after the signature: version 2 with the command PROXY, and the address family
// with TCP.
const versionAndProxy, tcp4, tcp6 = 0x21, 0x11, 0x21

// header returns a PROXY protocol header with a source and a destination of the same family.
func header(from, to netip.AddrPort) []byte {
	addrs := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	b := append([]byte(signature), versionAndProxy, tcp6)
	if from.Addr().Is4() {
		b[len(b)-1] = tcp4
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(addrs)+4))
	b = append(b, addrs...)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	return binary.BigEndian.AppendUint16(b, to.Port())
}
