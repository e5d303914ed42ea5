package conns

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

var errClosedByClient = errors.New("the client has closed the connection")

// awaitBytes waits until a client has sent something or closed its side. It reads nothing.
func awaitBytes(c net.Conn) error {
	return withSocket(c, func(raw syscall.RawConn) error {
		return raw.Read(func(fd uintptr) bool { return events(fd, unix.POLLIN|unix.POLLRDHUP) != 0 })
	})
}

// closedByClient reports whether the client has closed its side, even if earlier bytes are still unread. A
// handshake with such a client would be wasted work.
func closedByClient(c net.Conn) bool {
	var closed bool
	err := withSocket(c, func(raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { closed = events(fd, unix.POLLRDHUP)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0 })
	})
	return closed || err != nil
}

// events returns those of the given events that have occurred; POLLHUP and POLLERR are always included.
func events(fd uintptr, of int16) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: of}}
	if n, err := unix.Poll(fds, 0); n <= 0 || err != nil {
		return 0
	}
	return fds[0].Revents
}

// receiveBuffer limits the bytes that the kernel buffers before the server reads them. On a listening socket
// it also applies to connections that are not accepted yet. TCP_WINDOW_CLAMP is set to the same size, because
// a connection inherits it too. If a call fails, the kernel's default remains.
func receiveBuffer(c any, n int) {
	withSocket(c, func(raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, n)
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, n)
		})
	})
}

// withSocket calls a function with the socket of c; it does nothing if c is none.
func withSocket(c any, do func(syscall.RawConn) error) error {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	return do(raw)
}
