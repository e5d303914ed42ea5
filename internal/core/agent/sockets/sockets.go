// Package sockets lists the TCP and UDP sockets of the calling thread's network namespace,
// by sock_diag(7), which needs no privilege, or by /proc/net if the kernel or a seccomp
// profile has no sock_diag.
package sockets

import (
	"errors"
	"net/netip"

	"outrider.dev/internal/base/contract"
)

// A Socket is one end of a connection, or a listener.
type Socket struct {
	Local, Remote netip.AddrPort
	State         State
	UID           uint32
	Inode         uint32 // 0 if no process has it open
	Unread        uint32 // bytes that no process has read; of a listener: connections that are not accepted
	Unsent        uint32 // bytes, and the end, that the peer has not acknowledged
}

// A State of a socket (linux include/net/tcp_states.h). One for UDP is Established if it
// is connected.
type State uint8

// The states that the agent uses.
const (
	Established State = 1
	SynSent     State = 2
	SynReceived State = 3
	FinWait1    State = 4
	TimeWait    State = 6
	Listening   State = 10
)

// States is a set of them.
type States uint32

// Any are all states.
const Any = ^States(0)

// Of makes a set.
func Of(list ...State) (s States) {
	for _, one := range list {
		s |= 1 << one
	}
	return s
}

// A Protocol is the kind of sockets: unix.IPPROTO_TCP or unix.IPPROTO_UDP.
type Protocol uint8

// The protocols.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// List lists the sockets of a protocol, of both families, that are in one of states.
func List(p Protocol, states States) ([]Socket, error) {
	all, err := diag(p, states)
	if err != nil {
		var again error
		if all, again = proc(p, states); again != nil {
			return nil, errors.Join(err, again)
		}
	}
	return all, nil
}

// Pending sums what a user's TCP connections have still to pass on: the bytes that it has not
// read, and those that the peer has not acknowledged. Within the machine bytes are delivered
// before they are acknowledged, which takes up to 40 ms: there those alone count that a process has
// left behind for the user, which on a busy machine may be under way. Sockets for which apart is
// true are not counted.
func Pending(uid uint32, apart func(Socket) bool) (bytes uint64, err error) {
	all, err := List(TCP, Any&^Of(TimeWait))
	if err != nil {
		return 0, err
	}
	peers := map[netip.AddrPort]bool{}
	for _, s := range all {
		if s.UID != uid || s.Inode == 0 || apart(s) {
			continue
		}
		peers[unmapped(s.Remote)] = true
		bytes += uint64(s.Unread)
		here, there := s.Local.Addr().Unmap(), s.Remote.Addr().Unmap()
		if s.State != Listening && !here.IsLoopback() && !there.IsLoopback() && here != there {
			bytes += uint64(s.Unsent) // of a listener it is the limit of its queue
		}
	}
	for _, s := range all {
		if s.Inode == 0 && s.State == FinWait1 && peers[unmapped(s.Local)] { // its own remote end may be another than the user's: redirected
			bytes += uint64(s.Unsent)
		}
	}
	return bytes, nil
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// Others counts the sockets that users other than uid have open: TCP and UDP, listening or
// not, of both families. A socket that no process has open does not count, nor does the
// agent's proof of capture, which it makes as another user.
func Others(uid uint32) (n int, err error) {
	for _, p := range []Protocol{TCP, UDP} {
		all, err := List(p, Any&^Of(TimeWait))
		if err != nil {
			return 0, err
		}
		for _, s := range all {
			if s.Inode != 0 && s.UID != uid && !contract.CaptureProof(s.Remote) {
				n++
			}
		}
	}
	return n, nil
}
