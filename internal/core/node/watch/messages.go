package watch

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
	"outrider.dev/internal/core/capture/nftables"
)

// changes describes messages that were read from a socket.
type changes struct {
	commits int  // transactions of nf_tables
	open    bool // the last of them is incomplete
	rules   bool // objects of nf_tables, in any table: rules of others may take the traffic
	routing bool // what a capture depends on
	lost    bool // unknown changes: the buffer was full, or a message cannot be read
}

// once reports whether there was one transaction, with its end, and no part of a second one.
func (c changes) once() bool { return c.commits == 1 && !c.open && !c.lost }

// read reads all messages that a socket has.
func (w *Watcher) read(s *space, fd int) (got changes) {
	for range maxDatagrams {
		n, from, err := unix.Recvfrom(fd, w.buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		sender, _ := from.(*unix.SockaddrNetlink)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return got
		case errors.Is(err, unix.EINTR):
		case err != nil, n > len(w.buffer):
			got.lost = true // ENOBUFS among others; the next read goes on after it
		case sender == nil || sender.Pid != 0: // a container wrote it, and not the kernel
		case fd == s.filter:
			got.addFilter(w.buffer[:n])
		default:
			got.addRoutes(w.buffer[:n], s.six)
		}
	}
	got.lost = true
	return got
}

// addFilter adds a datagram with messages about nf_tables.
func (c *changes) addFilter(datagram []byte) {
	c.each(datagram, func(m netlink.Message) {
		if c.open = !nftables.EndsTransaction(m); c.open {
			c.rules = true
		} else {
			c.commits++
		}
	})
}

// addRoutes adds a datagram with messages about routing. six says that the rules apply to IPv6.
func (c *changes) addRoutes(datagram []byte, six bool) {
	c.each(datagram, func(m netlink.Message) { c.routing = c.routing || matters(m, six) })
}

// each calls a function for each message of a datagram, up to one that cannot be read.
func (c *changes) each(datagram []byte, add func(netlink.Message)) {
	for len(datagram) > 0 {
		m, rest, err := netlink.Split(datagram)
		if err != nil {
			c.lost = true
			return
		}
		add(m)
		datagram = rest
	}
}

// loopback is the index of lo in every network namespace.
const loopback = 1

// matters reports whether a change of routing may change what a capture does: any routing rule, a route of ours or in a
// table of its own, a state of lo, which loses its routes when it goes down, an address of lo that is removed, its ::1,
// which is back when IPv6 is switched on again, and the first IPv6 address, since a capture without IPv6 does not see
// its connections.
func matters(m netlink.Message, six bool) bool {
	switch m.Kind {
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return true
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		const table, protocol = 4, 5 // struct rtmsg
		return len(m.Data) <= protocol || m.Data[protocol] == capture.RouteProtocol || m.Data[table] < unix.RT_TABLE_DEFAULT
	case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_DELADDR:
		return index(m.Data) == loopback // at the same place in struct ifinfomsg and struct ifaddrmsg
	case unix.RTM_NEWADDR:
		addr := addressOf(m.Data)
		if index(m.Data) == loopback {
			return addr == netip.IPv6Loopback()
		}
		return !six && capture.FamiliesOf([]netip.Addr{addr}).Has(capture.IPv6)
	}
	return false
}

// index returns the index of the interface; that of lo if there is none.
func index(data []byte) uint32 {
	if len(data) < 8 {
		return loopback
	}
	return binary.NativeEndian.Uint32(data[4:])
}

// addressOf returns the address in a message about one.
func addressOf(data []byte) (addr netip.Addr) {
	list := netlink.Attributes{Rest: data[min(len(data), unix.SizeofIfAddrmsg):]}
	for list.Next() && !addr.IsValid() {
		if list.Kind == unix.IFA_ADDRESS {
			addr, _ = netip.AddrFromSlice(list.Value)
		}
	}
	return addr
}
