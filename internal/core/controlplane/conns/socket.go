package conns

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

var errClosedByClient = errors.New("the client has closed the connection")

// awaitBytes waits until a client has sent something, or closed its side, and reads nothing.
func awaitBytes(c net.Conn) error {
	return withSocket(c, func(raw syscall.RawConn) error {
		return raw.Read(func(fd uintptr) bool { return events(fd, unix.POLLIN|unix.POLLRDHUP) != 0 })
	})
}

// closedByClient reports whether the client has closed its side, also if bytes before that were not read
// yet: a handshake with it would be for nothing.
func closedByClient(c net.Conn) bool {
	var closed bool
	err := withSocket(c, func(raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { closed = events(fd, unix.POLLRDHUP)&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0 })
	})
	return closed || err != nil
}

// events returns what has happened of these; POLLHUP and POLLERR are always among them.
func events(fd uintptr, of int16) int16 {
	fds := []unix.PollFd{{Fd: int32(fd), Events: of}}
	if n, err := unix.Poll(fds, 0); n <= 0 || err != nil {
		return 0
	}
	return fds[0].Revents
}

// receiveBuffer sets how much the kernel keeps of what a client has sent and the server not
// read; of a listening socket also for connections that it has not accepted yet. A window clamp
// that is inherited is raised with it. An error leaves the kernel's own size.
func receiveBuffer(c any, n int) {
	withSocket(c, func(raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, n)
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, n)
		})
	})
}

// withSocket calls do if c has a socket.
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
