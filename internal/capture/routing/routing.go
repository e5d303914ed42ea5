// Package routing keeps what transparent proxying needs outside the packet filter:
// a routing policy by packet mark, a table that makes every address local, and the
// IPv6 address from which the proxy passes inbound connections on.
//
// What we add carries our protocol number, so it is found and removed whatever
// flags made it, and nobody else's is touched.
package routing

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
)

// protocol marks rules and routes as ours (ip -details rule; /etc/iproute2/rt_protos
// names none with this number).
const protocol = 151

// families are the address families of netlink and the "all addresses" of each.
var families = map[int]*net.IPNet{
	unix.AF_INET:  {IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
	unix.AF_INET6: {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
}

// sixSource is capture's address for inbound connections over IPv6.
var sixSource = &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("::6"), Mask: net.CIDRMask(128, 128)}, Flags: unix.IFA_F_NODAD}

// Apply makes the routing of the current namespace the one that is wanted: old
// entries of ours go. The notes say what the machine cannot have.
func Apply(want capture.Routing, wantFamilies capture.Families) (notes []string, err error) {
	if have, err := Read(); err == nil && have == want {
		return nil, nil
	}
	if err := removePolicy(); err != nil {
		return nil, err
	}
	if want.Mark != 0 {
		for family, all := range families {
			if !wantFamilies.Has(modelFamily(family)) {
				continue
			}
			if err := addPolicy(family, all, want); err != nil {
				if family == unix.AF_INET6 && noIPv6(err) {
					notes = append(notes, "IPv6 is switched off here: no routing for it")
					continue
				}
				return notes, errors.Join(err, removePolicy())
			}
		}
	}
	if want.SixSource {
		if err := addSixSource(); err != nil {
			if !noIPv6(err) {
				return notes, err
			}
			notes = append(notes, "IPv6 is switched off here: the proxy gets no address ::6")
		}
	}
	return notes, nil
}

// Read returns what of ours is there.
func Read() (capture.Routing, error) {
	var out capture.Routing
	for family := range families {
		rules, err := ourRules(family)
		if err != nil {
			return out, err
		}
		for _, r := range rules {
			routes, err := ourRoutes(family, r.Table)
			if err != nil {
				return out, err
			}
			if len(routes) == 1 && len(rules) == 1 {
				out.Mark, out.Table = r.Mark, r.Table
			}
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return out, fmt.Errorf("finding interface lo: %w", err)
	}
	addrs, err := netlink.AddrList(lo, unix.AF_INET6)
	if err != nil && !noIPv6(err) {
		return out, fmt.Errorf("listing addresses of lo: %w", err)
	}
	for _, a := range addrs {
		if a.IP.Equal(sixSource.IP) {
			out.SixSource = true
		}
	}
	return out, nil
}

// Remove takes away what Apply may have added. The address ::6 goes only if had
// says that our rules used it: another mesh has the same.
func Remove(had capture.Routing) error {
	if err := removePolicy(); err != nil {
		return err
	}
	if !had.SixSource {
		return nil
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding interface lo: %w", err)
	}
	if err := netlink.AddrDel(lo, sixSource); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !noIPv6(err) {
		return fmt.Errorf("removing ::6 from lo: %w", err)
	}
	return nil
}

func modelFamily(family int) capture.Families {
	if family == unix.AF_INET {
		return capture.IPv4
	}
	return capture.IPv6
}

// noIPv6 reports whether err is how the kernel refuses IPv6 where it is switched off:
// the module, or the interface (net.ipv6.conf.*.disable_ipv6).
func noIPv6(err error) bool {
	for _, e := range []unix.Errno{unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EACCES, unix.EPERM, unix.ENODEV} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func addPolicy(family int, all *net.IPNet, want capture.Routing) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding interface lo: %w", err)
	}
	route := &netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: all, Table: want.Table, Family: family,
		Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Protocol: protocol,
	}
	if err := netlink.RouteAdd(route); err != nil {
		if errors.Is(err, unix.ENETDOWN) {
			return fmt.Errorf("adding the local route to table %d: %w; bring lo up first", want.Table, err)
		}
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding the local route to table %d: %w; somebody uses the table, choose another with -r", want.Table, err)
		}
		return fmt.Errorf("adding the local route to table %d: %w", want.Table, err)
	}
	rule := netlink.NewRule()
	rule.Family, rule.Mark, rule.Table, rule.Protocol = family, want.Mark, want.Table, protocol
	if err := netlink.RuleAdd(rule); err != nil {
		return fmt.Errorf("adding the routing rule for mark %#x: %w", want.Mark, err)
	}
	return nil
}

func addSixSource() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding interface lo: %w", err)
	}
	if err := netlink.AddrAdd(lo, sixSource); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding ::6 to lo: %w", err)
	}
	return nil
}

func ourRules(family int) ([]netlink.Rule, error) {
	rules, err := netlink.RuleList(family)
	if err != nil {
		if family == unix.AF_INET6 && noIPv6(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("listing routing rules: %w", err)
	}
	var ours []netlink.Rule
	for _, r := range rules {
		if r.Protocol == protocol {
			ours = append(ours, r)
		}
	}
	return ours, nil
}

// ourRoutes lists our routes in a table; 0 is any.
func ourRoutes(family, table int) ([]netlink.Route, error) {
	filter := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: protocol}
	routes, err := netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		if family == unix.AF_INET6 && noIPv6(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	var ours []netlink.Route
	for _, r := range routes {
		if table == 0 || r.Table == table {
			ours = append(ours, r)
		}
	}
	return ours, nil
}

func removePolicy() error {
	for family := range families {
		rules, err := ourRules(family)
		if err != nil {
			return err
		}
		for _, r := range rules {
			r.Family = family
			if err := netlink.RuleDel(&r); err != nil {
				return fmt.Errorf("removing the routing rule for mark %#x: %w", r.Mark, err)
			}
		}
		routes, err := ourRoutes(family, 0)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if err := netlink.RouteDel(&r); err != nil {
				return fmt.Errorf("removing the local route of table %d: %w", r.Table, err)
			}
		}
	}
	return nil
}
