// Package sockets lists the TCP and UDP sockets of a network namespace, by sock_diag(7),
// which needs no privilege, or by /proc/net where a kernel or a seccomp profile has no
// sock_diag.
//
// Both ways tell the same of a [Socket] but for what only the first knows. The namespace
// is that of the thread that asks; by /proc/net it is the process's.
package sockets

import (
	"errors"
	"net/netip"
)

// A Socket is one end of a connection, or what waits for one.
type Socket struct {
	Local, Remote netip.AddrPort
	State         State
	UID           uint32
	Inode         uint32 // 0 where no process has it open

	// Only sock_diag tells these.
	Device uint32 // the index of the interface that it is bound to; 0: none
	V6Only bool   // of a socket for IPv6: it does not take IPv4 too
}

// A State of a socket (linux include/net/tcp_states.h). One for UDP is Established if it
// is connected.
type State uint8

// The states that the agent uses.
const (
	Established State = 1
	SynSent     State = 2
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

// Has says whether the set has a state.
func (s States) Has(one State) bool { return one < 32 && s&(1<<one) != 0 }

// A Protocol is the kind of sockets: unix.IPPROTO_TCP or unix.IPPROTO_UDP.
type Protocol uint8

// The protocols.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// List lists the sockets of a protocol, of both families, that are in one of states.
func List(p Protocol, states States) ([]Socket, error) {
	all, err := Diag(p, states)
	if err != nil {
		var again error
		if all, again = Proc("/proc", p, states); again != nil {
			return nil, errors.Join(err, again)
		}
	}
	return all, nil
}

// Others counts what other users than uid have open: TCP and UDP, listening or not, by
// both families. A socket that no process has open does not count.
func Others(uid uint32) (n int, err error) {
	for _, p := range []Protocol{TCP, UDP} {
		all, err := List(p, Any&^Of(TimeWait))
		if err != nil {
			return 0, err
		}
		for _, s := range all {
			if s.Inode != 0 && s.UID != uid {
				n++
			}
		}
	}
	return n, nil
}
