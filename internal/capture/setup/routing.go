package setup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
	"outrider.dev/internal/capture/netlink"
)

// routeProtocol marks the routing rules and routes that capture adds, so that they
// are found and removed whatever flags made them, and no others are touched
// (ip -details rule; /etc/iproute2/rt_protos names none with this number).
const routeProtocol = 151

// addressFamilies are the families of netlink, with the model's.
var addressFamilies = []struct {
	family uint8
	model  capture.Families
}{{unix.AF_INET, capture.IPv4}, {unix.AF_INET6, capture.IPv6}}

// sixSource is the address from which the proxy passes inbound connections on over IPv6.
var sixSource = netip.MustParsePrefix("::6/128")

// A router is a connection to rtnetlink(7), in the network namespace of the thread that
// opened it. It changes what transparent proxying needs outside the packet filter: a
// routing policy by packet mark, a table that makes every address local, and the
// address ::6. All of it is about the interface lo. An error of the kernel is a [unix.Errno].
type router struct{ *netlink.Conn }

// loopback is the index of lo in every network namespace (LOOPBACK_IFINDEX, net/flow.h of
// the kernel).
const loopback = 1

// openRouter takes no privilege; changes take NET_ADMIN.
func openRouter() (router, error) {
	c, err := netlink.Open(unix.NETLINK_ROUTE)
	if err != nil {
		return router{}, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return router{c}, nil
}

// applyRouting replaces the routing of the current namespace, had (see removeRouting). The
// notes are about what the machine does not support. addedSix reports whether ::6 is on lo
// since this call.
func applyRouting(had, want capture.Routing, families capture.Families) (notes []string, addedSix bool, err error) {
	r, err := openRouter()
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	off := want != (capture.Routing{}) && families.Has(capture.IPv6) && ipv6Off()
	if off {
		notes = []string{noteIPv6Off}
	}
	if have, err := r.read(families); err != nil || have != want {
		if err := r.replacePolicy(want, families, off); err != nil {
			return notes, false, err
		}
	} else if !off {
		return notes, false, nil
	}
	if had.SixSource && !want.SixSource {
		return notes, false, r.removeSixSource()
	}
	if want.SixSource {
		addedSix, err = r.addSixSource(off)
	}
	return notes, addedSix, err
}

// addSixSource reports whether the address was not there.
func (r router) addSixSource(off bool) (added bool, err error) {
	err = r.change(unix.RTM_NEWADDR, create, addressOfLo(sixSource))
	if err == nil || errors.Is(err, unix.EEXIST) || off && noIPv6(err) {
		return err == nil, nil
	}
	return false, fmt.Errorf("adding ::6 to lo: %w", err)
}

// replacePolicy removes the routing rules and routes that are there, and adds those that
// are wanted.
func (r router) replacePolicy(want capture.Routing, families capture.Families, off bool) error {
	if err := r.removePolicy(); err != nil || want.Mark == 0 {
		return err
	}
	for _, f := range addressFamilies {
		if !families.Has(f.model) {
			continue
		}
		if err := r.addPolicy(f.family, want, off); err != nil {
			return errors.Join(err, r.removePolicy())
		}
	}
	return nil
}

// noteIPv6Off is for the user of a namespace where [ipv6Off] holds.
const noteIPv6Off = "IPv6 is switched off on lo (net.ipv6.conf.lo.disable_ipv6): its rules are in place; " +
	"run capture again when it is switched on, for the address ::6 and for the route of TPROXY"

// ipv6Off reports whether lo can have no address and no route of IPv6. The rules for the
// family are written all the same: where IPv6 is switched on later, its connections must
// not go round the proxy.
func ipv6Off() bool {
	value, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	return errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(value)) != "0"
}

// readRouting returns the routing that capture has added for families. What IPv6 cannot
// have where it is switched off counts as added.
func readRouting(families capture.Families) (capture.Routing, error) {
	r, err := openRouter()
	if err != nil {
		return capture.Routing{}, err
	}
	defer r.Close()
	return r.read(families)
}

func (r router) read(families capture.Families) (out capture.Routing, err error) {
	entries, err := r.ours()
	if err != nil {
		return out, err
	}
	off := families.Has(capture.IPv6) && ipv6Off()
	var policies []capture.Routing // of the families, and of others that have one
	for _, f := range addressFamilies {
		policy := policyOf(entries, f.family, off)
		if families.Has(f.model) || policy != (capture.Routing{}) {
			policies = append(policies, policy)
		}
	}
	if policies = slices.Compact(policies); len(policies) == 1 {
		out = policies[0]
	} else {
		out = incomplete
	}
	addrs, err := r.addresses()
	if err != nil {
		return out, err
	}
	out.SixSource = off || slices.Contains(addrs, address{loopback, sixSource})
	return out, nil
}

// incomplete is routing that no rule set wants: a rule without its route, or other routing
// for one family than for the other.
var incomplete = capture.Routing{Table: -1}

// policyOf is the rule of a family and the route that it leads to.
func policyOf(entries []entry, family uint8, off bool) capture.Routing {
	var rules, routes []entry
	for _, e := range entries {
		switch {
		case e.family != family:
		case e.kind == policyRules:
			rules = append(rules, e)
		default:
			routes = append(routes, e)
		}
	}
	switch {
	case len(rules)+len(routes) == 0:
		return capture.Routing{}
	case len(rules) != 1, len(routes) > 1:
		return incomplete
	case len(routes) == 1 && routes[0].table == rules[0].table, len(routes) == 0 && off && family == unix.AF_INET6:
		return capture.Routing{Mark: rules[0].mark, Table: int(rules[0].table)}
	}
	return incomplete
}

// removeRouting removes what applyRouting may have added. Other meshes add ::6 to lo
// too, so that it is removed only if our rules used it (had.SixSource).
func removeRouting(had capture.Routing) error {
	r, err := openRouter()
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.removePolicy(); err != nil || !had.SixSource {
		return err
	}
	return r.removeSixSource()
}

func (r router) removeSixSource() error {
	if err := r.change(unix.RTM_DELADDR, remove, addressOfLo(sixSource)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !noIPv6(err) {
		return fmt.Errorf("removing ::6 from lo: %w", err)
	}
	return nil
}

// noIPv6 reports whether err is how the kernel refuses IPv6 where it is switched off:
// the module, or the interface (net.ipv6.conf.*.disable_ipv6).
func noIPv6(err error) bool {
	return isAny(err, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EACCES, unix.EPERM, unix.ENODEV)
}

// isAny reports whether err is one of numbers.
func isAny(err error, numbers ...unix.Errno) bool {
	var number unix.Errno
	return errors.As(err, &number) && slices.Contains(numbers, number)
}

// addPolicy adds a local route and a rule that leads to it. Without IPv6 (off) the kernel
// refuses the route, and perhaps the rule, which shows what was wanted.
func (r router) addPolicy(family uint8, want capture.Routing, off bool) error {
	table := number(uint32(want.Table))
	route := header(family, 0, routeProtocol, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	route = attribute(route, unix.RTA_TABLE, table)
	route = attribute(route, unix.RTA_OIF, number(loopback))
	off = off && family == unix.AF_INET6
	if err := r.change(unix.RTM_NEWROUTE, create, route); err != nil && !(off && noIPv6(err)) {
		hint := ""
		switch {
		case errors.Is(err, unix.ENETDOWN):
			hint = "; bring lo up first"
		case errors.Is(err, unix.EEXIST):
			hint = "; the table is in use, choose another with -r"
		}
		return fmt.Errorf("adding the local route to table %d: %w%s", want.Table, err, hint)
	}
	// Without a priority the kernel puts the rule before all others.
	rule := header(family, 0, 0, 0, unix.FR_ACT_TO_TBL)
	rule = attribute(rule, unix.FRA_TABLE, table)
	rule = attribute(rule, unix.FRA_FWMARK, number(want.Mark))
	rule = attribute(rule, unix.FRA_PROTOCOL, []byte{routeProtocol})
	if err := r.change(unix.RTM_NEWRULE, create, rule); err != nil && !(off && noIPv6(err)) {
		return fmt.Errorf("adding the routing rule for mark %#x: %w", want.Mark, err)
	}
	return nil
}

func (r router) removePolicy() error {
	entries, err := r.ours()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := r.change(e.kind.del, remove, e.message); err != nil {
			return fmt.Errorf("removing a %s of table %d: %w", e.kind.name, e.table, err)
		}
	}
	return nil
}

// An entryKind is a kind of object that the kernel lists.
type entryKind struct {
	name     string
	get, del uint16
}

var (
	policyRules = &entryKind{"routing rule", unix.RTM_GETRULE, unix.RTM_DELRULE}
	localRoutes = &entryKind{"local route", unix.RTM_GETROUTE, unix.RTM_DELROUTE}
)

// An entry is a routing rule or a route.
type entry struct {
	kind               *entryKind
	family, protocol   uint8
	table, mark, index uint32
	message            []byte // as listed; a request to delete it has the same form
}

// ours lists the rules, and then the routes, that capture has added.
func (r router) ours() (out []entry, err error) {
	for _, kind := range []*entryKind{policyRules, localRoutes} {
		err := r.Dump(kind.get, raw(header(unix.AF_UNSPEC, 0, 0, 0, 0)), func(data []byte) error {
			e, err := parseEntry(kind, slices.Clone(data))
			// The kernel lists what multicast routing and others have, too.
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

// An address is one of an interface, with the interface's index.
type address struct {
	index  uint32
	prefix netip.Prefix
}

// addresses lists those of all interfaces.
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

// parseAddress reads struct ifaddrmsg (linux/if_addr.h) and its attributes. The prefix is the
// zero value for other families than IPv4 and IPv6.
func parseAddress(m []byte) (a address, err error) {
	if len(m) < unix.SizeofIfAddrmsg {
		return a, fmt.Errorf("%d bytes, want at least %d", len(m), unix.SizeofIfAddrmsg)
	}
	a.index = binary.NativeEndian.Uint32(m[4:])
	list := netlink.Attributes{Rest: m[unix.SizeofIfAddrmsg:]}
	for list.Next() {
		// IFA_ADDRESS is the other end of a point-to-point link where there is IFA_LOCAL.
		if list.Kind == unix.IFA_LOCAL || list.Kind == unix.IFA_ADDRESS && !a.prefix.IsValid() {
			if addr, ok := netip.AddrFromSlice(list.Value); ok {
				a.prefix = netip.PrefixFrom(addr, int(m[1]))
			}
		}
	}
	return a, list.Err
}

// interfaceTo is the interface by which packets to an address leave.
func (r router) interfaceTo(to netip.Addr) (name string, err error) {
	to = to.Unmap()
	family := uint8(unix.AF_INET6)
	if to.Is4() {
		family = unix.AF_INET
	}
	data := header(family, uint8(to.BitLen()), 0, 0, 0)
	var index uint32
	err = r.Get(unix.RTM_GETROUTE, raw(attribute(data, unix.RTA_DST, to.AsSlice())), func(data []byte) error {
		e, err := parseEntry(localRoutes, data)
		index = e.index
		return err
	})
	if err == nil && index == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return "", err
	}
	link := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(link[4:], index)
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

// create fails with EEXIST if the same is there, remove with ENOENT or ESRCH if it is not.
const (
	remove = unix.NLM_F_REQUEST | unix.NLM_F_ACK
	create = remove | unix.NLM_F_CREATE | unix.NLM_F_EXCL
)

func (r router) change(kind, flags uint16, data []byte) error {
	return r.Ask(kind, flags, raw(data), func([]byte) error { return nil })
}

// raw is a message that is there already.
func raw(data []byte) func(*netlink.Batch) {
	return func(b *netlink.Batch) { b.Buf = append(b.Buf, data...) }
}

// headerLen is the length of struct rtmsg (linux/rtnetlink.h) and of struct fib_rule_hdr
// (linux/fib_rules.h), which have the same layout: where a route has its type, a rule has
// its action.
const headerLen = unix.SizeofRtMsg

func header(family, bits, protocol, scope, action uint8) []byte {
	out := make([]byte, headerLen)
	out[0], out[1], out[5], out[6], out[7] = family, bits, protocol, scope, action
	return out
}

// addressOfLo is struct ifaddrmsg (linux/if_addr.h) and an address of lo that is usable at
// once: without duplicate address detection.
func addressOfLo(p netip.Prefix) []byte {
	data := []byte{unix.AF_INET6, uint8(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	data = append(data, number(loopback)...)
	return attribute(data, unix.IFA_LOCAL, p.Addr().AsSlice())
}

func parseEntry(kind *entryKind, m []byte) (entry, error) {
	if len(m) < headerLen {
		return entry{}, fmt.Errorf("%d bytes, want at least %d", len(m), headerLen)
	}
	e := entry{kind: kind, family: m[0], protocol: m[5], message: m}
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
		case t == unix.RTA_TABLE: // as FRA_TABLE
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
