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

	"golang.org/x/sys/unix"
)

// relay carries one connection to the proxy and back until both sides have ended. life
// is the one of the proxy in which it was released.
func (s *Standby) relay(h *held, life int) {
	var up *net.TCPConn
	for up == nil {
		c, err := s.dial()
		if err == nil {
			up = c
			break
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			s.once("the proxy cannot be reached", "error", err)
			s.ended(&s.counts.Failed)
			reset(h.conn)
			return
		}
		s.once("the proxy has died, or does not take what waits", "error", err)
		var again bool
		if again, life = s.waitAgain(h, life); !again {
			return
		}
	}
	s.count(&s.counts.Relayed)
	defer s.ended(nil)
	stop := context.AfterFunc(s.ctx, func() { reset(h.conn); reset(up) })
	defer stop()
	if _, err := up.Write(header(addrPort(h.conn.RemoteAddr()), h.to)); err != nil {
		reset(h.conn)
		reset(up)
		return
	}
	join(h.conn, up)
}

func (s *Standby) dial() (*net.TCPConn, error) {
	s.dials <- struct{}{}
	defer func() { <-s.dials }()
	var d net.Dialer
	c, err := d.DialContext(s.ctx, "tcp", s.o.Relay.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
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
// and the other way goes on, or with a reset.
func join(a, b *net.TCPConn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyTo(a, b)
	}()
	copyTo(b, a)
	<-done
	a.Close()
	b.Close()
}

// buffers are for the first bytes of a connection. A pipe for splice(2) costs more to
// make than most connections carry, and one that is silent must cost nothing.
var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// spliceFrom is how many bytes go through a buffer before splice takes over.
const spliceFrom = 256 << 10

func copyTo(dst, src *net.TCPConn) {
	err := copyFirst(dst, src)
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
func copyFirst(dst, src *net.TCPConn) error {
	raw, err := src.SyscallConn()
	if err != nil {
		return err
	}
	for total := 0; total < spliceFrom; {
		buf, n, err := read(raw)
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

// header says who calls, and where to. Both are of one family.
func header(from, to netip.AddrPort) []byte {
	const versionAndProxy, tcp4, tcp6 = 0x21, 0x11, 0x21
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
