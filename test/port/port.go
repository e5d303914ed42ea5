// Package port gives tests ports that no other process gets.
package port

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Hold returns a port of 127.0.0.1 on which nothing listens. The port is bound until the end of the test, so the
// kernel gives it to no other process. A listener with SO_REUSEADDR, which Go and Envoy set, can still use it.
func Hold(t testing.TB) netip.AddrPort {
	t.Helper()
	at, release, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return at
}

// Take returns a port as Hold does, for a program that is not a test. The port is bound until release is called.
func Take() (at netip.AddrPort, release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return at, nil, err
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, &unix.SockaddrInet4{}))
	name, unnamed := unix.Getsockname(fd)
	if err := errors.Join(err, unnamed); err != nil {
		unix.Close(fd)
		return at, nil, err
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*unix.SockaddrInet4).Port)), func() { unix.Close(fd) }, nil
}
