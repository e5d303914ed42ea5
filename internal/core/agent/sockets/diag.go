package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/netlink"
)

// From linux/inet_diag.h: the lengths of a request and an answer, and offsets of their fields.
const (
	requestLen      = 56 // struct inet_diag_req_v2
	requestProtocol = 1
	requestStates   = 4
	requestID       = 8 // struct inet_diag_sockid

	answerLen    = 72 // struct inet_diag_msg
	answerState  = 1
	answerID     = 4 // struct inet_diag_sockid
	answerUnread = 56
	answerUnsent = 60
	answerUID    = 64
	answerInode  = 68
)

// Offsets in a struct inet_diag_sockid.
const (
	idLocalPort  = 0
	idRemotePort = 2
	idLocal      = 4
	idRemote     = 20
	idCookie     = 40
)

// diag implements List with sock_diag. It takes tenths of a millisecond; /proc/net is slower,
// because reading it walks over the connections of the whole machine.
func diag(p Protocol, states States) ([]Socket, error) {
	var requests [][]byte
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		req := request(family, p)
		binary.NativeEndian.PutUint32(req[requestStates:], uint32(states))
		requests = append(requests, req)
	}
	out, err := query(unix.NLM_F_DUMP, requests...)
	if err != nil {
		return nil, fmt.Errorf("listing sockets: %w", err)
	}
	return out, nil
}

// Find returns the TCP socket of the connection between two addresses. If there is no such
// connection but a listener on local, it returns the listener. An error that wraps unix.ENOENT
// means that there is neither.
func Find(local, remote netip.AddrPort) (Socket, error) {
	family := byte(unix.AF_INET6)
	if local.Addr().Is4() {
		family = unix.AF_INET
	}
	req := request(family, TCP)
	id := req[requestID:]
	binary.BigEndian.PutUint16(id[idLocalPort:], local.Port())
	binary.BigEndian.PutUint16(id[idRemotePort:], remote.Port())
	copy(id[idLocal:idRemote], local.Addr().AsSlice())
	copy(id[idRemote:], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(id[idCookie:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	found, err := query(unix.NLM_F_ACK, req)
	if err == nil && len(found) == 0 {
		err = unix.ENOENT
	}
	if err != nil {
		return Socket{}, fmt.Errorf("looking for the socket from %s to %s: %w", local, remote, err)
	}
	return found[0], nil
}

func request(family byte, p Protocol) []byte {
	req := make([]byte, requestLen)
	req[0], req[requestProtocol] = family, byte(p)
	return req
}

// query sends requests one after the other, and returns the answers to all.
func query(flags uint16, requests ...[]byte) (out []Socket, err error) {
	conn, err := netlink.Open(unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for _, req := range requests {
		fill := func(b *netlink.Batch) { b.Buf = append(b.Buf, req...) }
		if err := conn.Ask(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_REQUEST|flags, fill, func(data []byte) error {
			s, err := parseAnswer(data)
			out = append(out, s)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func parseAnswer(m []byte) (Socket, error) {
	if len(m) < answerLen {
		return Socket{}, errors.New("the kernel's answer is not about a socket")
	}
	id := m[answerID:]
	return Socket{
		Local:  netip.AddrPortFrom(address(m[0], id[idLocal:]), binary.BigEndian.Uint16(id[idLocalPort:])),
		Remote: netip.AddrPortFrom(address(m[0], id[idRemote:]), binary.BigEndian.Uint16(id[idRemotePort:])),
		State:  State(m[answerState]),
		UID:    binary.NativeEndian.Uint32(m[answerUID:]),
		Inode:  binary.NativeEndian.Uint32(m[answerInode:]),
		Unread: binary.NativeEndian.Uint32(m[answerUnread:]),
		Unsent: binary.NativeEndian.Uint32(m[answerUnsent:]),
	}, nil
}

func address(family byte, raw []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(raw))
	}
	return netip.AddrFrom16([16]byte(raw))
}
