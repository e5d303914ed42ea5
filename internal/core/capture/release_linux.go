package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"outrider.dev/internal/base/contract"
)

// A NotReleasedError names a port whose release no rule accepted: the port is not parked with a
// time limit, or the sender is neither root nor a user of the proxy.
type NotReleasedError struct{ Port uint16 }

func (e *NotReleasedError) Error() string {
	return fmt.Sprintf("port %d is not released: no rule accepted it", e.Port)
}

// Hint returns advice for the user.
func (e *NotReleasedError) Hint() string {
	return "the rules accept it from root and from the users of -u and -g, with --park-only from every user, for ports that are parked with a time limit; capture verify reads the rules"
}

// Release ends the parking of ports from inside the pod: connections to them are refused at once
// until a listener is seen there again. The rules accept a release from the proxy's users and from
// root, and with --park-only from every user. They drop the accepted packet, which the kernel
// reports to the sender at once.
func Release(ports ...uint16) error {
	var errs []error
	for _, p := range ports {
		var reasons []error
		released := false
		for _, a := range releaseAddrs { // one family may be switched off or not captured
			ok, err := release(a.Addr(), p)
			released = released || ok
			if err != nil {
				reasons = append(reasons, err)
			}
		}
		switch {
		case released:
		case len(reasons) == len(releaseAddrs):
			errs = append(errs, fmt.Errorf("releasing port %d: %w", p, errors.Join(reasons...)))
		default:
			errs = append(errs, &NotReleasedError{p})
		}
	}
	return errors.Join(errs...)
}

// ReleaseMesh releases the ports on which --park-only parks connections to another mesh's proxy. It
// reports whether calling it again makes sense. It does not if no rule accepts a release from this
// user.
func ReleaseMesh() (again bool) {
	for _, p := range meshPorts {
		var refused *NotReleasedError
		if err := Release(p); !errors.As(err, &refused) {
			again = true
		}
	}
	return again
}

// release asks the rules to release a port, by sending a packet to it, and reports whether our rule accepted, and
// so dropped, the packet. A second packet, to a port that is never parked, distinguishes our rule from one that
// drops everything.
func release(to netip.Addr, port uint16) (bool, error) {
	dropped, err := send(netip.AddrPortFrom(to, port))
	if !dropped {
		return false, err
	}
	others, err := send(netip.AddrPortFrom(to, contract.StatusPort))
	if others {
		return false, errors.New("a rule of another program drops every such packet")
	}
	return err == nil, err
}

// send sends a packet and reports whether a rule has dropped it.
func send(to netip.AddrPort) (dropped bool, err error) {
	dialer := net.Dialer{LocalAddr: &net.UDPAddr{Port: releasePort}, Control: shared}
	conn, err := dialer.Dial("udp", to.String())
	if err != nil {
		return false, err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("released"))
	if errors.Is(err, syscall.EPERM) {
		return true, nil
	}
	return false, err
}

// shared lets several sockets use releasePort at once. Another socket may belong to a concurrent release, or to
// an earlier one: a child process that was just forked keeps its copy of the socket open until its exec.
func shared(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	})
	return errors.Join(failed, err)
}
