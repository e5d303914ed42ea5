package relay

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// awaitHangup closes gone when the peer of c closes the connection. It does not read from c. The
// returned function ends the watch; only then may c be read.
func awaitHangup(c *net.UnixConn, gone chan<- struct{}) (stop func()) {
	raw, err := c.SyscallConn()
	if err != nil { // c is closed
		close(gone)
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Read calls hungUp after each event of the connection, until hungUp returns true.
		if raw.Read(hungUp) == nil {
			close(gone)
		}
	}()
	return func() {
		c.SetReadDeadline(time.Unix(1, 0)) // ends Read
		<-done
		c.SetReadDeadline(time.Time{})
	}
}

func hungUp(fd uintptr) bool {
	list := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(list, 0)
	return err == nil && n > 0
}
