// Package sockets lists the TCP and UDP sockets of the calling thread's network namespace. It
// uses sock_diag(7), which needs no privilege, or /proc/net if the kernel lacks sock_diag or a
// seccomp profile forbids it.
package sockets

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Socket is one end of a connection, or a listener.
type Socket struct {
	Local, Remote netip.AddrPort
	State         State
	UID           uint32
	Inode         uint32 // 0 if no process has it open
	Unread        uint32 // bytes that no process has read; for a listener: connections that are not accepted
	Unsent        uint32 // bytes, and the FIN as one, that the peer has not acknowledged
}

// A State of a socket (linux include/net/tcp_states.h). A connected UDP socket is
// Established.
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

// States is a set of values of State.
type States uint32

// Any contains all states.
const Any = ^States(0)

// Of returns the set of the given states.
func Of(list ...State) (s States) {
	for _, one := range list {
		s |= 1 << one
	}
	return s
}

// A Protocol is unix.IPPROTO_TCP or unix.IPPROTO_UDP.
type Protocol uint8

// The protocols whose sockets can be listed.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// List returns the sockets of a protocol, IPv4 and IPv6, that are in one of states.
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

// Pending counts the bytes that a user's TCP connections still have to pass on: those that the user has not
// read, and those that the peer has not acknowledged. Within the machine, bytes are delivered up to 40 ms
// before they are acknowledged, so unacknowledged bytes do not count within the machine. Bytes that a process
// sent to the user before it closed its socket do count: on a busy machine they may not be delivered yet.
// Sockets for which apart returns true do not count.
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
			bytes += uint64(s.Unsent) // for a listener this field is the limit of its queue
		}
	}
	for _, s := range all {
		if s.Inode == 0 && s.State == FinWait1 && peers[unmapped(s.Local)] { // s.Remote may not be the user's address: the connection may be redirected
			bytes += uint64(s.Unsent)
		}
	}
	return bytes, nil
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// Listeners counts the TCP sockets that listen and that others than the processes pids, of the user uid, have
// open. If another user has one, those of the same user are not counted.
func Listeners(uid uint32, pids ...int) (n int, err error) {
	all, err := List(TCP, Of(Listening))
	same := map[uint32]bool{}
	for _, s := range all {
		if s.UID == uid {
			same[s.Inode] = true
		} else {
			n++
		}
	}
	if err != nil || n > 0 {
		return n, err
	}
	for _, pid := range pids {
		open, err := Inodes(fmt.Sprintf("/proc/%d", pid))
		if err != nil {
			return 0, err
		}
		maps.DeleteFunc(same, func(inode uint32, _ bool) bool { return open[inode] })
	}
	return len(same), nil
}

// Inodes returns the inodes of the sockets that a process has open; dir is its directory in /proc. The process must
// be of the same user, with no more privileges.
func Inodes(dir string) (map[uint32]bool, error) {
	dir = filepath.Join(dir, "fd")
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[uint32]bool{}
	for _, entry := range list {
		link, _ := os.Readlink(filepath.Join(dir, entry.Name())) // an error means that it is closed meanwhile
		if text, ok := strings.CutPrefix(link, "socket:["); ok {
			if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); err == nil {
				out[uint32(inode)] = true // as in the kernel's answers
			}
		}
	}
	return out, nil
}

// Others counts the open sockets of users other than uid: TCP and UDP, listening or not, IPv4
// and IPv6. Sockets that no process has open do not count.
func Others(uid uint32) (n int, err error) {
	all, err := listOpen()
	for _, s := range all {
		if s.UID != uid {
			n++
		}
	}
	return n, err
}

// listOpen returns the sockets that a process has open, TCP and UDP.
func listOpen() ([]Socket, error) {
	tcp, err := List(TCP, Any&^Of(TimeWait))
	if err != nil {
		return nil, err
	}
	udp, err := List(UDP, Any&^Of(TimeWait))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(append(tcp, udp...), func(s Socket) bool { return s.Inode == 0 }), nil
}

// Elsewhere counts the open sockets that no process of the calling process's container has, as [Others] does: also
// those of the same user. Sockets of the users in apart do not count.
func Elsewhere(apart ...uint32) (n int, err error) { return elsewhere("/proc", apart) }

func elsewhere(proc string, apart []uint32) (n int, err error) {
	here, err := processes(proc)
	if err != nil {
		return 0, err
	}
	own := here.inodes() // also before the list, so that a socket that is closed meanwhile is not taken for another's
	all, err := listOpen()
	if err != nil {
		return 0, err
	}
	var doubtful []Socket
	for _, s := range all {
		switch {
		case slices.Contains(apart, s.UID) || own[s.Inode]:
		case here.users[s.UID]:
			doubtful = append(doubtful, s)
		default:
			n++
		}
	}
	if len(doubtful) == 0 || n > 0 {
		return n + len(doubtful), nil
	}
	if here, err = processes(proc); err != nil {
		return 0, err
	}
	own = here.inodes()
	return len(slices.DeleteFunc(doubtful, func(s Socket) bool { return own[s.Inode] || here.hidden[s.UID] })), nil
}

// A container holds the processes of the caller's container.
type container struct {
	dirs   []string
	users  map[uint32]bool
	hidden map[uint32]bool // users of processes whose files the caller may not see: all of their sockets count as the container's
}

// processes returns the processes of the caller's container, from a directory such as /proc. If the containers of the pod
// share their processes, those of other containers are in other cgroups.
func processes(proc string) (*container, error) {
	list, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile(filepath.Join(proc, "self", "cgroup"))
	if err != nil {
		return nil, err
	}
	c := &container{users: map[uint32]bool{uint32(os.Geteuid()): true}, hidden: map[uint32]bool{}}
	for _, entry := range list {
		if _, err := strconv.ParseUint(entry.Name(), 10, 32); err != nil {
			continue
		}
		dir := filepath.Join(proc, entry.Name())
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !slices.Equal(group, own) {
			continue // it has ended, or is another container's
		}
		if id, ok := userOf(dir); ok {
			c.dirs = append(c.dirs, dir)
			c.users[id] = true
		}
	}
	return c, nil
}

func (c *container) inodes() map[uint32]bool {
	out := map[uint32]bool{}
	for _, dir := range c.dirs {
		open, err := Inodes(dir)
		if id, ok := userOf(dir); err != nil && ok {
			c.hidden[id] = true
		}
		maps.Copy(out, open)
	}
	return out
}

// userOf returns the effective user of a process; false if the process has ended. The owner of its directory is another
// one if it may not be traced.
func userOf(dir string) (uint32, bool) {
	text, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			if f := strings.Fields(ids); len(f) > 1 {
				id, err := strconv.ParseUint(f[1], 10, 32)
				return uint32(id), err == nil
			}
		}
	}
	return 0, false
}

// Calls returns the number of TCP connections that processes of the calling thread's network namespace have opened so
// far, from any process to anywhere.
func Calls() (uint64, error) {
	const path = "/proc/thread-self/net/snmp"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return opened(string(text))
}

// opened reads the counter ActiveOpens from two lines of a table: "Tcp: NAME ..." and "Tcp: NUMBER ...".
func opened(table string) (uint64, error) {
	var names []string
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		if i := slices.Index(names, "ActiveOpens"); i > 0 && i < len(f) {
			return strconv.ParseUint(f[i], 10, 64)
		}
		break
	}
	return 0, errors.New("/proc/net/snmp has no Tcp: ActiveOpens")
}
