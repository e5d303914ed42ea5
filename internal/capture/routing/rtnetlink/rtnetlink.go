// Package rtnetlink asks the kernel for what a capture needs of rtnetlink(7): rules by
// packet mark, local routes of everything, addresses of an interface, and the interface
// by which packets leave.
//
// It works in the network namespace of the thread that calls [Dial]. An error of the
// kernel is a [unix.Errno], wrapped.
package rtnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Family is unix.AF_INET or unix.AF_INET6.
type Family uint8

// A Rule sends packets with a mark to a routing table.
type Rule struct {
	Family   Family
	Mark     uint32
	Table    uint32
	Priority uint32 // 0: the kernel chooses, before the rules of others
	Protocol uint8  // whose it is
}

// A LocalRoute delivers packets to all addresses of its family locally.
type LocalRoute struct {
	Family   Family
	Index    int // of the interface
	Table    uint32
	Protocol uint8 // whose it is
}

// A Conn is a socket to the kernel.
type Conn struct{ socket *netlink.Conn }

// Dial opens a socket. It takes no privilege; changes take NET_ADMIN.
func Dial() (*Conn, error) {
	socket, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	return &Conn{socket}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.socket.Close() }

// create fails with EEXIST if the same is there, remove with ENOENT or ESRCH if it is not.
const (
	create = netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl
	remove = netlink.Request | netlink.Acknowledge
)

// AddRule adds r before the rules that are there.
func (c *Conn) AddRule(r Rule) error { return c.change(unix.RTM_NEWRULE, create, r.marshal()) }

// DeleteRule removes the first rule like r.
func (c *Conn) DeleteRule(r Rule) error { return c.change(unix.RTM_DELRULE, remove, r.marshal()) }

// Rules lists the rules of a family that are of protocol.
func (c *Conn) Rules(family Family, protocol uint8) ([]Rule, error) {
	return list(c, unix.RTM_GETRULE, family, func(m []byte) (Rule, bool, error) {
		r, err := parseRule(m)
		return r, r.Family == family && r.Protocol == protocol, err
	})
}

// AddLocalRoute adds r.
func (c *Conn) AddLocalRoute(r LocalRoute) error {
	return c.change(unix.RTM_NEWROUTE, create, r.marshal())
}

// DeleteLocalRoute removes r.
func (c *Conn) DeleteLocalRoute(r LocalRoute) error {
	return c.change(unix.RTM_DELROUTE, remove, r.marshal())
}

// LocalRoutes lists such routes of a family in all tables, that are of protocol.
func (c *Conn) LocalRoutes(family Family, protocol uint8) ([]LocalRoute, error) {
	return list(c, unix.RTM_GETROUTE, family, func(m []byte) (LocalRoute, bool, error) {
		r, everything, err := parseRoute(m)
		return r, everything && r.Family == family && r.Protocol == protocol, err
	})
}

// AddAddress gives an interface an address, usable at once: without a search for others
// that have it.
func (c *Conn) AddAddress(index int, p netip.Prefix) error {
	return c.change(unix.RTM_NEWADDR, create, marshalAddress(index, p))
}

// DeleteAddress takes an address from an interface.
func (c *Conn) DeleteAddress(index int, p netip.Prefix) error {
	return c.change(unix.RTM_DELADDR, remove, marshalAddress(index, p))
}

// OutInterface is the index of the interface by which packets to addr leave.
func (c *Conn) OutInterface(to netip.Addr) (int, error) {
	to = to.Unmap()
	data := header(familyOf(to), uint8(to.BitLen()), 0, 0, 0)
	answers, err := c.execute(message(unix.RTM_GETROUTE, netlink.Request, attribute(data, unix.RTA_DST, to.AsSlice())))
	if err != nil {
		return 0, err
	}
	for _, m := range answers {
		if r, _, err := parseRoute(m.Data); err != nil || r.Index != 0 {
			return r.Index, err
		}
	}
	return 0, unix.ENETUNREACH
}

// execute asks the kernel. An error is the kernel's number: that it came by netlink helps
// nobody.
func (c *Conn) execute(m netlink.Message) ([]netlink.Message, error) {
	answers, err := c.socket.Execute(m)
	var number unix.Errno
	if errors.As(err, &number) {
		err = number
	}
	return answers, err
}

func (c *Conn) change(kind netlink.HeaderType, flags netlink.HeaderFlags, data []byte) error {
	_, err := c.execute(message(kind, flags, data))
	return err
}

// list asks for all of a kind and keeps what parse wants. The kernel answers for all
// families where it does not know the one that was asked for.
func list[T any](c *Conn, kind netlink.HeaderType, family Family, parse func([]byte) (T, bool, error)) ([]T, error) {
	answers, err := c.execute(message(kind, netlink.Request|netlink.Dump, header(family, 0, 0, 0, 0)))
	if err != nil {
		return nil, err
	}
	var out []T
	for _, m := range answers {
		one, wanted, err := parse(m.Data)
		if err != nil {
			return nil, fmt.Errorf("an answer of the kernel: %w", err)
		}
		if wanted {
			out = append(out, one)
		}
	}
	return out, nil
}

func message(kind netlink.HeaderType, flags netlink.HeaderFlags, data []byte) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: flags}, Data: data}
}

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// headerLen is the length of struct rtmsg (linux/rtnetlink.h) and of struct fib_rule_hdr
// (linux/fib_rules.h), which have the same layout: where a route has its type, a rule has
// its action.
const headerLen = unix.SizeofRtMsg

func header(family Family, bits, protocol, scope, action uint8) []byte {
	out := make([]byte, headerLen)
	out[0], out[1], out[5], out[6], out[7] = uint8(family), bits, protocol, scope, action
	return out
}

func (r Rule) marshal() []byte {
	data := header(r.Family, 0, 0, 0, unix.FR_ACT_TO_TBL)
	data = attribute(data, unix.FRA_TABLE, number(r.Table))
	data = attribute(data, unix.FRA_FWMARK, number(r.Mark))
	if r.Priority != 0 {
		data = attribute(data, unix.FRA_PRIORITY, number(r.Priority))
	}
	return attribute(data, unix.FRA_PROTOCOL, []byte{r.Protocol})
}

func (r LocalRoute) marshal() []byte {
	data := header(r.Family, 0, r.Protocol, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	data = attribute(data, unix.RTA_TABLE, number(r.Table))
	return attribute(data, unix.RTA_OIF, number(uint32(r.Index)))
}

// marshalAddress is struct ifaddrmsg (linux/if_addr.h) and the address.
func marshalAddress(index int, p netip.Prefix) []byte {
	data := []byte{uint8(familyOf(p.Addr())), uint8(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	data = append(data, number(uint32(index))...)
	return attribute(data, unix.IFA_LOCAL, p.Addr().AsSlice())
}

func parseRule(m []byte) (r Rule, err error) {
	err = attributes(m, func(kind uint16, value []byte) {
		switch kind {
		case unix.FRA_TABLE:
			r.Table = toNumber(value)
		case unix.FRA_FWMARK:
			r.Mark = toNumber(value)
		case unix.FRA_PRIORITY:
			r.Priority = toNumber(value)
		case unix.FRA_PROTOCOL:
			if len(value) == 1 {
				r.Protocol = value[0]
			}
		}
	})
	if err == nil {
		r.Family = Family(m[0])
	}
	return r, err
}

// parseRoute reads a route; everything says whether it is a local one to all addresses.
func parseRoute(m []byte) (r LocalRoute, everything bool, err error) {
	err = attributes(m, func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_TABLE:
			r.Table = toNumber(value)
		case unix.RTA_OIF:
			r.Index = int(toNumber(value))
		}
	})
	if err == nil {
		r.Family, r.Protocol = Family(m[0]), m[5]
		everything = m[1] == 0 && m[7] == unix.RTN_LOCAL
	}
	return r, everything, err
}

// attributes calls f with each attribute behind a header.
func attributes(m []byte, f func(kind uint16, value []byte)) error {
	if len(m) < headerLen {
		return fmt.Errorf("%d bytes, want at least %d", len(m), headerLen)
	}
	all, err := netlink.NewAttributeDecoder(m[headerLen:])
	if err != nil {
		return err
	}
	for all.Next() {
		f(all.Type(), all.Bytes())
	}
	return all.Err()
}

// attribute appends an attribute, and what makes the next begin at a multiple of 4.
func attribute(data []byte, kind uint16, value []byte) []byte {
	data = binary.NativeEndian.AppendUint16(data, uint16(unix.SizeofRtAttr+len(value)))
	data = append(binary.NativeEndian.AppendUint16(data, kind), value...)
	return append(data, make([]byte, -len(value)&3)...)
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// toNumber is the number in an attribute, 0 if it is none.
func toNumber(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}
