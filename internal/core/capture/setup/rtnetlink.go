package setup

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

// An entryKind is a kind of entries: routing rules, routes or addresses.
type entryKind struct {
	name          string
	add, del, get uint16
}

var (
	policyRules = &entryKind{"routing rule", unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_GETRULE}
	localRoutes = &entryKind{"local route", unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.RTM_GETROUTE}
	addresses   = &entryKind{"address of lo", unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_GETADDR}
)

// An entry is a routing rule, a route, or an address.
type entry struct {
	kind               *entryKind
	family, protocol   uint8
	action             uint8 // of a rule; the type of a route
	table, mark, index uint32
	message            []byte // as the kernel lists it; a request to add or delete it has the same form
}

func (e entry) String() string {
	family := "IPv4"
	if e.family == unix.AF_INET6 {
		family = "IPv6"
	}
	switch e.kind {
	case policyRules:
		return fmt.Sprintf("the %s rule for mark %#x, to table %d", family, e.mark, e.table)
	case localRoutes:
		return fmt.Sprintf("the local %s route of table %d", family, e.table)
	}
	return "::6 on lo"
}

// same reports whether two entries of ours are equal, ignoring attributes that the kernel adds.
func (e entry) same(f entry) bool {
	return e.kind == f.kind && e.family == f.family && e.table == f.table && e.mark == f.mark
}

// localRoute returns a route that makes every address local, in a separate table.
func localRoute(family uint8, want capture.Routing) entry {
	m := header(family, 0, routeProtocol, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	m = attribute(m, unix.RTA_TABLE, number(uint32(want.Table)))
	m = attribute(m, unix.RTA_OIF, number(loopback))
	return entry{kind: localRoutes, family: family, table: uint32(want.Table), message: m}
}

// policyRule returns a routing rule by which marked packets use the table of localRoute. It has no priority, so
// the kernel places it before all others.
func policyRule(family uint8, want capture.Routing) entry {
	m := header(family, 0, 0, 0, unix.FR_ACT_TO_TBL)
	m = attribute(m, unix.FRA_TABLE, number(uint32(want.Table)))
	m = attribute(m, unix.FRA_FWMARK, number(want.Mark))
	m = attribute(m, unix.FRA_PROTOCOL, []byte{routeProtocol})
	return entry{kind: policyRules, family: family, table: uint32(want.Table), mark: want.Mark, message: m}
}

// sixAddress is the address [sixSource] of lo.
var sixAddress = entry{kind: addresses, family: unix.AF_INET6, message: addressOfLo(sixSource)}

// six returns the address ::6 of lo, or nil.
func (r router) six() (*address, error) {
	list, err := r.addresses()
	for _, a := range list {
		if a.index == loopback && a.prefix == sixSource {
			return &a, err
		}
	}
	return nil, err
}

// ours lists the rules, and then the routes, that capture has added.
func (r router) ours() (out []entry, err error) {
	for _, kind := range []*entryKind{policyRules, localRoutes} {
		err := r.Dump(kind.get, raw(header(unix.AF_UNSPEC, 0, 0, 0, 0)), func(data []byte) error {
			e, err := parseEntry(kind, slices.Clone(data))
			// The kernel also lists entries of other families, for example of multicast routing.
			known := e.family == unix.AF_INET || e.family == unix.AF_INET6
			if known && e.protocol == routeProtocol {
				out = append(out, e)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("listing each %s: %w", kind.name, err)
		}
	}
	return out, nil
}

// An address is an IP address and the index of its interface.
type address struct {
	index  uint32
	prefix netip.Prefix

	protocol uint8 // the program that added it
}

// addresses lists the addresses of all interfaces.
func (r router) addresses() (out []address, err error) {
	err = r.Dump(unix.RTM_GETADDR, raw(make([]byte, unix.SizeofIfAddrmsg)), func(data []byte) error {
		a, err := parseAddress(data)
		if a.prefix.IsValid() {
			out = append(out, a)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("listing addresses: %w", err)
	}
	return out, err
}

// parseAddress reads struct ifaddrmsg (linux/if_addr.h) and its attributes. For families other than
// IPv4 and IPv6, the prefix is zero.
func parseAddress(m []byte) (a address, err error) {
	if len(m) < unix.SizeofIfAddrmsg {
		return a, fmt.Errorf("%d bytes, want at least %d", len(m), unix.SizeofIfAddrmsg)
	}
	a.index = binary.NativeEndian.Uint32(m[4:])
	list := netlink.Attributes{Rest: m[unix.SizeofIfAddrmsg:]}
	for list.Next() {
		if list.Kind == ifaProto && len(list.Value) == 1 {
			a.protocol = list.Value[0]
		}
		// If IFA_LOCAL is present, IFA_ADDRESS is the other end of a point-to-point link.
		if list.Kind == unix.IFA_LOCAL || list.Kind == unix.IFA_ADDRESS && !a.prefix.IsValid() {
			if addr, ok := netip.AddrFromSlice(list.Value); ok {
				a.prefix = netip.PrefixFrom(addr, int(m[1]))
			}
		}
	}
	return a, list.Err
}

// route returns the route of packets to an address, with a mark unless it is 0.
func (r router) route(to netip.Addr, mark uint32) (found entry, err error) {
	to = to.Unmap()
	family := uint8(unix.AF_INET6)
	if to.Is4() {
		family = unix.AF_INET
	}
	data := attribute(header(family, uint8(to.BitLen()), 0, 0, 0), unix.RTA_DST, to.AsSlice())
	if mark != 0 {
		data = attribute(data, unix.RTA_MARK, number(mark))
	}
	err = r.Get(unix.RTM_GETROUTE, raw(data), func(data []byte) (err error) {
		found, err = parseEntry(localRoutes, slices.Clone(data))
		return err
	})
	return found, err
}

// interfaceTo returns the interface by which packets to an address leave.
func (r router) interfaceTo(to netip.Addr) (name string, err error) {
	route, err := r.route(to, 0)
	if err == nil && route.index == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return "", err
	}
	link := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(link[4:], route.index)
	err = r.Get(unix.RTM_GETLINK, raw(link), func(data []byte) error {
		list := netlink.Attributes{Rest: data[min(len(data), unix.SizeofIfInfomsg):]}
		for list.Next() {
			if list.Kind == unix.IFLA_IFNAME {
				name = list.Text()
			}
		}
		return list.Err
	})
	return name, err
}

// create fails with EEXIST if the same entry exists, remove with ENOENT or ESRCH if none does.
const (
	remove = unix.NLM_F_REQUEST | unix.NLM_F_ACK
	create = remove | unix.NLM_F_CREATE | unix.NLM_F_EXCL
)

func (r router) change(kind, flags uint16, data []byte) error {
	return r.Ask(kind, flags, raw(data), func([]byte) error { return nil })
}

// raw appends data that is already a complete message.
func raw(data []byte) func(*netlink.Batch) {
	return func(b *netlink.Batch) { b.Buf = append(b.Buf, data...) }
}

// headerLen is the length of struct rtmsg (linux/rtnetlink.h) and of struct fib_rule_hdr
// (linux/fib_rules.h). Their layouts are equal: the type of a route is at the same place as the
// action of a rule.
const headerLen = unix.SizeofRtMsg

func header(family, bits, protocol, scope, action uint8) []byte {
	out := make([]byte, headerLen)
	out[0], out[1], out[5], out[6], out[7] = family, bits, protocol, scope, action
	return out
}

// addressOfLo returns struct ifaddrmsg (linux/if_addr.h) with an address of lo. The address is
// usable at once, since it skips duplicate address detection.
func addressOfLo(p netip.Prefix) []byte {
	data := []byte{unix.AF_INET6, uint8(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	data = append(data, number(loopback)...)
	data = attribute(data, unix.IFA_LOCAL, p.Addr().AsSlice())
	return attribute(data, ifaProto, []byte{routeProtocol})
}

// ifaProto is IFA_PROTO, which exists since Linux 5.18. Older kernels ignore it.
const ifaProto = 11

func parseEntry(kind *entryKind, m []byte) (entry, error) {
	if len(m) < headerLen {
		return entry{}, fmt.Errorf("%d bytes, want at least %d", len(m), headerLen)
	}
	e := entry{kind: kind, family: m[0], protocol: m[5], action: m[7], message: m}
	isRule := kind == policyRules
	list := netlink.Attributes{Rest: m[headerLen:]}
	number := func() (n uint32) {
		if len(list.Value) == 4 {
			n = binary.NativeEndian.Uint32(list.Value)
		}
		return n
	}
	for list.Next() {
		switch t := list.Kind; {
		case t == unix.RTA_TABLE: // equals FRA_TABLE
			e.table = number()
		case isRule && t == unix.FRA_FWMARK:
			e.mark = number()
		case isRule && t == unix.FRA_PROTOCOL && len(list.Value) == 1:
			e.protocol = list.Value[0]
		case !isRule && t == unix.RTA_OIF:
			e.index = number()
		}
	}
	return e, list.Err
}

// attribute appends an attribute, padded to a multiple of 4 bytes.
func attribute(data []byte, kind uint16, value []byte) []byte {
	data = binary.NativeEndian.AppendUint16(data, uint16(unix.SizeofRtAttr+len(value)))
	data = append(binary.NativeEndian.AppendUint16(data, kind), value...)
	return append(data, make([]byte, -len(value)&3)...)
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
