package standby

import (
	"net/netip"

	"outrider.dev/internal/agent/sockets"
)

// A listener is a TCP socket that listens in this network namespace.
type listener struct {
	kind  kind // empty: bound to one address or interface
	port  uint16
	inode uint32
}

// listeners lists the listening sockets of this network namespace. /proc/net/tcp6 would not say
// whether a socket takes IPv4 too.
func listeners() ([]listener, error) {
	all, err := sockets.Diag(sockets.TCP, sockets.Of(sockets.Listening))
	if err != nil {
		return nil, err
	}
	out := make([]listener, len(all))
	for i, s := range all {
		out[i] = listener{kind: kindOf(s), port: s.Local.Port(), inode: s.Inode}
	}
	return out, nil
}

func kindOf(s sockets.Socket) kind {
	switch {
	case !s.Local.Addr().IsUnspecified() || s.Device != 0:
		return ""
	case s.Local.Addr().Is4():
		return ip4
	case s.V6Only:
		return ip6
	}
	return both
}

// A callerState is what is known of the socket at the other end of a connection.
type callerState uint8

const (
	elsewhere callerState = iota // not in this network namespace, or not to be found out
	holdsIt                      // some process has it open
	abandoned                    // every process has closed it
)

// caller looks for the socket of a connection's other end. A caller that has closed
// and one that has only finished sending look the same from here; a socket that no
// process has any more has no inode.
func caller(from, to netip.AddrPort) callerState {
	s, err := sockets.Find(from, to)
	switch {
	case err != nil || s.State == sockets.Listening:
		return elsewhere
	case s.Inode == 0:
		return abandoned
	}
	return holdsIt
}
