package standby

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// A listener is a TCP socket that listens in this network namespace.
type listener struct {
	kind  kind // empty: bound to one address or interface
	port  uint16
	inode uint32
}

// From linux/inet_diag.h and net/tcp_states.h. /proc/net/tcp6 would not say whether a
// socket takes IPv4 too.
const (
	inetDiagSKV6Only = 11
	stateEstablished = 1
	stateListen      = 10
	requestLen       = 56 // struct inet_diag_req_v2
	messageLen       = 72 // struct inet_diag_msg
	messageID        = 4  // offset of struct inet_diag_sockid
	messageInode     = 68
)

// listeners lists who listens in this network namespace. Needs no privilege.
func listeners() ([]listener, error) {
	var out []listener
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := make([]byte, requestLen)
		req[0], req[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(req[4:], 1<<stateListen)
		err := diag(req, unix.NLM_F_DUMP, func(m []byte) { out = append(out, parseListener(m)) })
		if err != nil {
			return nil, fmt.Errorf("listing sockets: %w", err)
		}
	}
	return out, nil
}

func parseListener(m []byte) listener {
	id := m[messageID:]
	l := listener{
		kind:  ip4,
		port:  binary.BigEndian.Uint16(id),
		inode: binary.NativeEndian.Uint32(m[messageInode:]),
	}
	source, device := [16]byte(id[4:20]), binary.NativeEndian.Uint32(id[36:])
	if m[0] == unix.AF_INET6 {
		l.kind = both
		if v := attribute(m[messageLen:], inetDiagSKV6Only); len(v) > 0 && v[0] != 0 {
			l.kind = ip6
		}
	}
	if source != [16]byte{} || device != 0 {
		l.kind = ""
	}
	return l
}

func attribute(b []byte, wanted uint16) []byte {
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			break
		}
		if binary.NativeEndian.Uint16(b[2:]) == wanted {
			return b[unix.SizeofRtAttr:n]
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
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
	req := make([]byte, requestLen)
	req[0], req[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if from.Addr().Is4() {
		req[0] = unix.AF_INET
	}
	id := req[8:]
	binary.BigEndian.PutUint16(id, from.Port())
	binary.BigEndian.PutUint16(id[2:], to.Port())
	copy(id[4:20], from.Addr().AsSlice())
	copy(id[20:36], to.Addr().AsSlice())
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	state := elsewhere
	err := diag(req, 0, func(m []byte) {
		switch {
		case m[1] == stateListen:
		case binary.NativeEndian.Uint32(m[messageInode:]) == 0:
			state = abandoned
		default:
			state = holdsIt
		}
	})
	if err != nil {
		return elsewhere
	}
	return state
}

// diag asks the kernel about sockets, and calls f with each answer.
func diag(req []byte, flags uint16, f func(message []byte)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	msg := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+requestLen)
	binary.NativeEndian.PutUint32(msg, uint32(unix.SizeofNlMsghdr+len(req)))
	binary.NativeEndian.PutUint16(msg[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|flags)
	if err := unix.Sendto(fd, append(msg, req...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 32<<10) // a dump comes in pieces of at most this
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				return unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			case len(m.Data) >= messageLen:
				f(m.Data)
				if flags == 0 {
					return nil
				}
			}
		}
	}
}
