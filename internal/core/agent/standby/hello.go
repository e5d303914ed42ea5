package standby

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxHeader bounds the addresses of a header. The proxy sends 36 bytes for IPv6, and nothing
// after them.
const maxHeader = 216

// readHeader reads a header of the PROXY protocol, version 2, with addresses for TCP. It reads
// nothing beyond it.
func readHeader(r io.Reader) (from, to netip.AddrPort, err error) {
	const fixed = len(signature) + 4
	b := make([]byte, fixed+maxHeader)
	if _, err = io.ReadFull(r, b[:fixed]); err != nil {
		return from, to, fmt.Errorf("reading a PROXY header: %w", err)
	}
	n := int(binary.BigEndian.Uint16(b[fixed-2:]))
	ip := map[byte]int{tcp4: 4, tcp6: 16}[b[fixed-3]] // bytes of an address
	if string(b[:len(signature)]) != signature || b[fixed-4] != versionAndProxy || ip == 0 || n < 2*ip+4 || n > maxHeader {
		return from, to, fmt.Errorf("PROXY header % x: want version 2, with addresses for TCP", b[:fixed])
	}
	if _, err = io.ReadFull(r, b[fixed:fixed+n]); err != nil {
		return from, to, fmt.Errorf("reading a PROXY header: %w", err)
	}
	b = b[fixed:]
	address := func(ipAt, portAt int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(b[ipAt : ipAt+ip])
		return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b[portAt:]))
	}
	return address(0, 2*ip), address(ip, 2*ip+2), nil
}

// A TLS record (RFC 8446, section 5.1) begins with its type, a version of two bytes, of which
// the first is 3, and a length.
const (
	recordHeader  = 5
	handshake     = 22
	maxRecordSize = 1 << 14
)

// mayBeHello reports whether the first bytes of a connection may begin a ClientHello.
func mayBeHello(b []byte) bool {
	return len(b) > 0 && b[0] == handshake && (len(b) == 1 || b[1] == 3)
}

// readHello reads the first record of a connection, once it is there completely. It reads
// nothing, and returns nil, if that is none of TLS.
func readHello(c *net.TCPConn, until time.Time) ([]byte, error) {
	b, err := peek(c, recordHeader, until)
	if err != nil {
		return nil, err
	}
	if len(b) < recordHeader || !mayBeHello(b) || binary.BigEndian.Uint16(b[3:]) > maxRecordSize {
		return nil, nil
	}
	n := recordHeader + int(binary.BigEndian.Uint16(b[3:]))
	if b, err = peek(c, n, until); err != nil {
		return nil, err
	}
	if len(b) < n {
		return nil, io.ErrUnexpectedEOF
	}
	_, err = io.ReadFull(c, b)
	return b, err
}

// peek returns the next n bytes of a connection, and leaves them there. It waits for them until
// a time, the zero one: not at all, and then returns [os.ErrDeadlineExceeded]. It returns fewer
// if the other side sends no more.
func peek(c *net.TCPConn, n int, until time.Time) ([]byte, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	var got int
	var failed error
	look := func(fd uintptr) bool {
		for {
			if got, _, failed = unix.Recvfrom(int(fd), b, unix.MSG_PEEK|unix.MSG_DONTWAIT); failed != unix.EINTR {
				break
			}
		}
		if failed == unix.EAGAIN {
			failed = os.ErrDeadlineExceeded
			return false
		}
		return failed != nil || got == n || ended(int(fd))
	}
	if until.IsZero() {
		err = raw.Control(func(fd uintptr) { look(fd) })
	} else {
		c.SetReadDeadline(until)
		err = raw.Read(look)
		c.SetReadDeadline(time.Time{})
	}
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	return b[:max(got, 0)], nil
}

// ended reports whether the other side of a connection has sent all.
func ended(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents != 0
}
