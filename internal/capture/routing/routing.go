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
	"net/netip"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
	"outrider.dev/internal/capture/routing/rtnetlink"
)

// protocol marks rules and routes as ours (ip -details rule; /etc/iproute2/rt_protos
// names none with this number).
const protocol = 151

// families are the address families of netlink, and ours.
var families = map[rtnetlink.Family]capture.Families{unix.AF_INET: capture.IPv4, unix.AF_INET6: capture.IPv6}

// sixSource is capture's address for inbound connections over IPv6.
var sixSource = netip.MustParsePrefix("::6/128")

// A machine is a socket to the kernel, and the interface that all of it is about.
type machine struct {
	*rtnetlink.Conn
	lo *net.Interface
}

func open() (machine, error) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return machine{}, fmt.Errorf("finding interface lo: %w", err)
	}
	conn, err := rtnetlink.Dial()
	if err != nil {
		return machine{}, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return machine{conn, lo}, nil
}

// Apply makes the routing of the current namespace the one that is wanted: old
// entries of ours go. The notes say what the machine cannot have.
func Apply(want capture.Routing, wantFamilies capture.Families) (notes []string, err error) {
	m, err := open()
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if have, err := m.read(); err == nil && have == want {
		return nil, nil
	}
	if err := m.removePolicy(); err != nil {
		return nil, err
	}
	if want.Mark != 0 {
		for family, ours := range families {
			if !wantFamilies.Has(ours) {
				continue
			}
			if err := m.addPolicy(family, want); err != nil {
				if family == unix.AF_INET6 && noIPv6(err) {
					notes = append(notes, "IPv6 is switched off here: no routing for it")
					continue
				}
				return notes, errors.Join(err, m.removePolicy())
			}
		}
	}
	if want.SixSource {
		if err := m.AddAddress(m.lo.Index, sixSource); err != nil && !errors.Is(err, unix.EEXIST) {
			if !noIPv6(err) {
				return notes, fmt.Errorf("adding ::6 to lo: %w", err)
			}
			notes = append(notes, "IPv6 is switched off here: the proxy gets no address ::6")
		}
	}
	return notes, nil
}

// Read returns what of ours is there.
func Read() (capture.Routing, error) {
	m, err := open()
	if err != nil {
		return capture.Routing{}, err
	}
	defer m.Close()
	return m.read()
}

func (m machine) read() (out capture.Routing, err error) {
	for family := range families {
		rules, routes, err := m.ours(family)
		if err != nil {
			return out, err
		}
		if len(rules) != 1 {
			continue
		}
		to := 0
		for _, r := range routes {
			if r.Table == rules[0].Table {
				to++
			}
		}
		if to == 1 {
			out.Mark, out.Table = rules[0].Mark, int(rules[0].Table)
		}
	}
	addrs, err := m.lo.Addrs()
	if err != nil {
		return out, fmt.Errorf("listing addresses of lo: %w", err)
	}
	for _, a := range addrs {
		if a.String() == sixSource.String() {
			out.SixSource = true
		}
	}
	return out, nil
}

// Remove takes away what Apply may have added. The address ::6 goes only if had
// says that our rules used it: another mesh has the same.
func Remove(had capture.Routing) error {
	m, err := open()
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.removePolicy(); err != nil {
		return err
	}
	if !had.SixSource {
		return nil
	}
	if err := m.DeleteAddress(m.lo.Index, sixSource); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !noIPv6(err) {
		return fmt.Errorf("removing ::6 from lo: %w", err)
	}
	return nil
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

func (m machine) addPolicy(family rtnetlink.Family, want capture.Routing) error {
	table := uint32(want.Table)
	route := rtnetlink.LocalRoute{Family: family, Index: m.lo.Index, Table: table, Protocol: protocol}
	if err := m.AddLocalRoute(route); err != nil {
		if errors.Is(err, unix.ENETDOWN) {
			return fmt.Errorf("adding the local route to table %d: %w; bring lo up first", table, err)
		}
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding the local route to table %d: %w; somebody uses the table, choose another with -r", table, err)
		}
		return fmt.Errorf("adding the local route to table %d: %w", table, err)
	}
	if err := m.AddRule(rtnetlink.Rule{Family: family, Mark: want.Mark, Table: table, Protocol: protocol}); err != nil {
		return fmt.Errorf("adding the routing rule for mark %#x: %w", want.Mark, err)
	}
	return nil
}

// ours lists what of ours a family has; of IPv6 that is switched off, nothing.
func (m machine) ours(family rtnetlink.Family) ([]rtnetlink.Rule, []rtnetlink.LocalRoute, error) {
	rules, err := m.Rules(family, protocol)
	if err != nil {
		if family == unix.AF_INET6 && noIPv6(err) {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("listing routing rules: %w", err)
	}
	routes, err := m.LocalRoutes(family, protocol)
	if err != nil {
		if family == unix.AF_INET6 && noIPv6(err) {
			return rules, nil, nil
		}
		return nil, nil, fmt.Errorf("listing routes: %w", err)
	}
	return rules, routes, nil
}

func (m machine) removePolicy() error {
	for family := range families {
		rules, routes, err := m.ours(family)
		if err != nil {
			return err
		}
		for _, r := range rules {
			if err := m.DeleteRule(r); err != nil {
				return fmt.Errorf("removing the routing rule for mark %#x: %w", r.Mark, err)
			}
		}
		for _, r := range routes {
			if err := m.DeleteLocalRoute(r); err != nil {
				return fmt.Errorf("removing the local route of table %d: %w", r.Table, err)
			}
		}
	}
	return nil
}
