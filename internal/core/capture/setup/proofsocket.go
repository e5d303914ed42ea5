package setup

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/trace"
)

// connect opens a connection with a mark, as an identity. Its error is the kernel's answer, since
// every proof is rejected.
func connect(c trace.Conn, mark uint32, as identity, open *sockets) error {
	if as == own() {
		return dial(c.Dst, mark, open)
	}
	done := make(chan error, 1)
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer ns.Close()
	go func() {
		// File system IDs belong to the thread, which ends with this goroutine. A socket keeps the
		// IDs of the thread that created it, and owner matches compare these.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil && !errors.Is(err, unix.EPERM) {
				return err
			}
			if err := become(as); err != nil {
				return err
			}
			return dial(c.Dst, mark, open)
		}()
	}()
	return <-done
}

// become sets the thread's file system IDs. The system call reports no failure, but for an
// impossible ID it returns the current one.
func become(as identity) error {
	unix.Setfsgid(as.gid)
	unix.Setfsuid(as.uid)
	gid, _ := unix.SetfsgidRetGid(-1)
	uid, _ := unix.SetfsuidRetUid(-1)
	if uid != as.uid || gid != as.gid {
		return unix.EPERM
	}
	return nil
}

// sockets are the sockets of a proof. They stay open until the proof ends, so that each uses a
// different source port.
type sockets []int

func (s *sockets) close() {
	for _, fd := range *s {
		unix.Close(fd)
	}
}

// open returns a socket bound to source.
func (s *sockets) open(source unix.Sockaddr) (int, error) {
	family := unix.AF_INET6
	if _, ok := source.(*unix.SockaddrInet4); ok {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return 0, err
	}
	*s = append(*s, fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, source)
}

func dial(to netip.AddrPort, mark uint32, open *sockets) error {
	source, addr := unix.Sockaddr(&unix.SockaddrInet6{}), unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		source, addr = &unix.SockaddrInet4{}, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	// A refused connection releases a port that the kernel chose. The first socket connects
	// nowhere, and so keeps the port.
	holder, err := open.open(source)
	if err != nil {
		return err
	}
	if source, err = unix.Getsockname(holder); err != nil {
		return err
	}
	fd, err := open.open(source)
	if err != nil {
		return err
	}
	limit := unix.NsecToTimeval(answerLimit.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return fmt.Errorf("marking a socket: %w (it takes the capability NET_ADMIN)", err)
	}
	if err := unix.Connect(fd, addr); err != nil {
		return err
	}
	return errors.New("accepted by a listener")
}
