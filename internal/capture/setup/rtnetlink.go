package setup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// An addressFamily is unix.AF_INET or unix.AF_INET6.
type addressFamily uint8

// A routeRule sends packets with a mark to a routing table.
type routeRule struct {
	family   addressFamily
	mark     uint32
	table    uint32
	priority uint32 // 0: the kernel chooses one before all other rules
	protocol uint8  // which program added it
}

// A localRoute delivers packets to all addresses of its family locally.
type localRoute struct {
	family   addressFamily
	index    int // of the interface
	table    uint32
	protocol uint8 // which program added it
}

// A routeConn is a socket for rtnetlink(7), in the network namespace of the thread
// that opened it. An error of the kernel is a [unix.Errno].
type routeConn struct{ socket *netlink.Conn }

// dialRoute opens a socket. It takes no privilege; changes take NET_ADMIN.
func dialRoute() (*routeConn, error) {
	socket, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	return &routeConn{socket}, nil
}

func (c *routeConn) Close() error { return c.socket.Close() }

// create fails with EEXIST if the same is there, remove with ENOENT or ESRCH if it is not.
const (
	create = netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl
	remove = netlink.Request | netlink.Acknowledge
)

// addRule adds r before the rules that are there.
func (c *routeConn) addRule(r routeRule) error {
	return c.change(unix.RTM_NEWRULE, create, r.marshal())
}

// deleteRule removes the first rule like r.
func (c *routeConn) deleteRule(r routeRule) error {
	return c.change(unix.RTM_DELRULE, remove, r.marshal())
}

// rules lists the rules of a family and a protocol.
func (c *routeConn) rules(family addressFamily, protocol uint8) ([]routeRule, error) {
	return list(c, unix.RTM_GETRULE, family, func(m []byte) (routeRule, bool, error) {
		r, err := parseRule(m)
		return r, r.family == family && r.protocol == protocol, err
	})
}

func (c *routeConn) addRoute(r localRoute) error {
	return c.change(unix.RTM_NEWROUTE, create, r.marshal())
}

func (c *routeConn) deleteRoute(r localRoute) error {
	return c.change(unix.RTM_DELROUTE, remove, r.marshal())
}

// routes lists the local routes of a family and a protocol, in all tables.
func (c *routeConn) routes(family addressFamily, protocol uint8) ([]localRoute, error) {
	return list(c, unix.RTM_GETROUTE, family, func(m []byte) (localRoute, bool, error) {
		r, everything, err := parseRoute(m)
		return r, everything && r.family == family && r.protocol == protocol, err
	})
}

// addAddress gives an interface an address that is usable at once: without duplicate
// address detection.
func (c *routeConn) addAddress(index int, p netip.Prefix) error {
	return c.change(unix.RTM_NEWADDR, create, marshalAddress(index, p))
}

func (c *routeConn) deleteAddress(index int, p netip.Prefix) error {
	return c.change(unix.RTM_DELADDR, remove, marshalAddress(index, p))
}

// outInterface is the index of the interface by which packets to addr leave.
func (c *routeConn) outInterface(to netip.Addr) (int, error) {
	to = to.Unmap()
	data := header(addressFamilyOf(to), uint8(to.BitLen()), 0, 0, 0)
	answers, err := c.execute(unix.RTM_GETROUTE, netlink.Request, attribute(data, unix.RTA_DST, to.AsSlice()))
	if err != nil {
		return 0, err
	}
	for _, m := range answers {
		if r, _, err := parseRoute(m.Data); err != nil || r.index != 0 {
			return r.index, err
		}
	}
	return 0, unix.ENETUNREACH
}

// execute sends a request. An error of the kernel is its number alone, for the words
// that netlink adds help no user.
func (c *routeConn) execute(kind netlink.HeaderType, flags netlink.HeaderFlags, data []byte) ([]netlink.Message, error) {
	answers, err := c.socket.Execute(netlink.Message{Header: netlink.Header{Type: kind, Flags: flags}, Data: data})
	var number unix.Errno
	if errors.As(err, &number) {
		err = number
	}
	return answers, err
}

func (c *routeConn) change(kind netlink.HeaderType, flags netlink.HeaderFlags, data []byte) error {
	_, err := c.execute(kind, flags, data)
	return err
}

// list dumps one kind of object and keeps what parse accepts. Where the kernel does
// not know a family, it dumps the objects of all families.
func list[T any](c *routeConn, kind netlink.HeaderType, family addressFamily, parse func([]byte) (T, bool, error)) ([]T, error) {
	answers, err := c.execute(kind, netlink.Request|netlink.Dump, header(family, 0, 0, 0, 0))
	if err != nil {
		return nil, err
	}
	var out []T
	for _, m := range answers {
		one, keep, err := parse(m.Data)
		if err != nil {
			return nil, fmt.Errorf("an answer of the kernel: %w", err)
		}
		if keep {
			out = append(out, one)
		}
	}
	return out, nil
}

func addressFamilyOf(a netip.Addr) addressFamily {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// headerLen is the length of struct rtmsg (linux/rtnetlink.h) and of struct fib_rule_hdr
// (linux/fib_rules.h), which have the same layout: where a route has its type, a rule has
// its action.
const headerLen = unix.SizeofRtMsg

func header(family addressFamily, bits, protocol, scope, action uint8) []byte {
	out := make([]byte, headerLen)
	out[0], out[1], out[5], out[6], out[7] = uint8(family), bits, protocol, scope, action
	return out
}

func (r routeRule) marshal() []byte {
	data := header(r.family, 0, 0, 0, unix.FR_ACT_TO_TBL)
	data = attribute(data, unix.FRA_TABLE, number(r.table))
	data = attribute(data, unix.FRA_FWMARK, number(r.mark))
	if r.priority != 0 {
		data = attribute(data, unix.FRA_PRIORITY, number(r.priority))
	}
	return attribute(data, unix.FRA_PROTOCOL, []byte{r.protocol})
}

func (r localRoute) marshal() []byte {
	data := header(r.family, 0, r.protocol, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	data = attribute(data, unix.RTA_TABLE, number(r.table))
	return attribute(data, unix.RTA_OIF, number(uint32(r.index)))
}

// marshalAddress is struct ifaddrmsg (linux/if_addr.h) and the address.
func marshalAddress(index int, p netip.Prefix) []byte {
	data := []byte{uint8(addressFamilyOf(p.Addr())), uint8(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	data = append(data, number(uint32(index))...)
	return attribute(data, unix.IFA_LOCAL, p.Addr().AsSlice())
}

func parseRule(m []byte) (r routeRule, err error) {
	err = attributes(m, func(kind uint16, value []byte) {
		switch kind {
		case unix.FRA_TABLE:
			r.table = toNumber(value)
		case unix.FRA_FWMARK:
			r.mark = toNumber(value)
		case unix.FRA_PRIORITY:
			r.priority = toNumber(value)
		case unix.FRA_PROTOCOL:
			if len(value) == 1 {
				r.protocol = value[0]
			}
		}
	})
	if err == nil {
		r.family = addressFamily(m[0])
	}
	return r, err
}

// parseRoute reads a route; everything says whether it is a local one to all addresses.
func parseRoute(m []byte) (r localRoute, everything bool, err error) {
	err = attributes(m, func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_TABLE:
			r.table = toNumber(value)
		case unix.RTA_OIF:
			r.index = int(toNumber(value))
		}
	})
	if err == nil {
		r.family, r.protocol = addressFamily(m[0]), m[5]
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

// attribute appends an attribute, padded to a multiple of 4 bytes.
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
