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

// inFlight is how many relayed connections may wait for the proxy's first answer at once, and
// answerWait how long one without an answer counts: its client may have sent nothing yet.
// All at once would keep the proxy from answering any before it has accepted the last.
const (
	inFlight   = 64
	answerWait = 5 * time.Millisecond
)

// dialers is how many goroutines open connections to the proxy. On loopback that is work
// and no waiting, so more would only lose the order.
const dialers = 2

// A released connection is on its way to the proxy. life is the one of the proxy in which
// it was released.
type released struct {
	*held
	life int
}

// dialAll takes what is released, longest held first, until the standby is closed.
func (s *Standby) dialAll() {
	for r := range s.released {
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
	// A connection to the relay is one that we made to a proxy that did not accept it.
	if h.to != s.o.Relay {
		if _, err := up.Write(header(addrPort(h.conn.RemoteAddr()), h.to)); err != nil {
			reset(h.conn)
			reset(up)
			return
		}
	}
	join(h.conn, up, answered)
}

// dial connects to the proxy. Where that is gone, the connection waits again, unless the
// next one is there already.
func (s *Standby) dial(r released) (up *net.TCPConn, ok bool) {
	for {
		d := net.Dialer{KeepAlive: -1} // it is this machine's other end
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

// waitAgain is for a connection that found the proxy gone. It waits for the next life
// of the proxy, unless that has begun meanwhile: then it is to try again.
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

// ended is called when a connection is not relayed any longer.
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

// join copies both ways, and passes on how each way ends: with a FIN,
// and the other way goes on, or with a reset. answered is called at the first bytes or
// the end of b.
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

// buffers are for the first bytes of a connection. A pipe for splice(2) costs more to
// make than most connections carry, and one that is silent must cost nothing.
var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// spliceFrom is how many bytes go through a buffer before splice takes over.
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

// copyFirst copies the first bytes. It returns io.EOF at the end of src, and nil when
// there is more.
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

// read waits for bytes without a buffer, and reads them into one.
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

// What follows it: version 2 and the command PROXY, and the family with TCP.
const versionAndProxy, tcp4, tcp6 = 0x21, 0x11, 0x21

// header has the source and the destination. Both are of one family.
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
