package setup

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
)

// routeProtocol marks the routing rules and routes that capture adds, so that they
// are found and removed whatever flags made them, and no others are touched
// (ip -details rule; /etc/iproute2/rt_protos names none with this number).
const routeProtocol = 151

// addressFamilies are the families of netlink, with the model's.
var addressFamilies = []struct {
	family addressFamily
	model  capture.Families
}{{unix.AF_INET, capture.IPv4}, {unix.AF_INET6, capture.IPv6}}

// sixSource is the address from which the proxy passes inbound connections on over IPv6.
var sixSource = netip.MustParsePrefix("::6/128")

// A router changes what transparent proxying needs outside the packet filter: a
// routing policy by packet mark, a table that makes every address local, and the
// address ::6. All of it is about the interface lo.
type router struct {
	*routeConn
	lo *net.Interface
}

func openRouter() (router, error) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return router{}, fmt.Errorf("finding interface lo: %w", err)
	}
	conn, err := dialRoute()
	if err != nil {
		return router{}, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return router{conn, lo}, nil
}

// applyRouting replaces the routing of the current namespace. The notes say what
// the machine does not support.
func applyRouting(want capture.Routing, families capture.Families) (notes []string, err error) {
	r, err := openRouter()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if have, err := r.read(); err == nil && have == want {
		return nil, nil
	}
	if err := r.removePolicy(); err != nil {
		return nil, err
	}
	if want.Mark != 0 {
		for _, f := range addressFamilies {
			if !families.Has(f.model) {
				continue
			}
			if err := r.addPolicy(f.family, want); err != nil {
				if f.family == unix.AF_INET6 && noIPv6(err) {
					notes = append(notes, "IPv6 is switched off here: no routing for it")
					continue
				}
				return notes, errors.Join(err, r.removePolicy())
			}
		}
	}
	if want.SixSource {
		if err := r.addAddress(r.lo.Index, sixSource); err != nil && !errors.Is(err, unix.EEXIST) {
			if !noIPv6(err) {
				return notes, fmt.Errorf("adding ::6 to lo: %w", err)
			}
			notes = append(notes, "IPv6 is switched off here: the proxy gets no address ::6")
		}
	}
	return notes, nil
}

// readRouting returns the routing that capture has added.
func readRouting() (capture.Routing, error) {
	r, err := openRouter()
	if err != nil {
		return capture.Routing{}, err
	}
	defer r.Close()
	return r.read()
}

func (r router) read() (out capture.Routing, err error) {
	for _, f := range addressFamilies {
		rules, routes, err := r.ours(f.family)
		if err != nil {
			return out, err
		}
		if len(rules) != 1 {
			continue
		}
		to := 0
		for _, route := range routes {
			if route.table == rules[0].table {
				to++
			}
		}
		if to == 1 {
			out.Mark, out.Table = rules[0].mark, int(rules[0].table)
		}
	}
	addrs, err := r.lo.Addrs()
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

// removeRouting removes what applyRouting may have added. Other meshes add ::6 to lo
// too, so that it is removed only if had says that our rules used it.
func removeRouting(had capture.Routing) error {
	r, err := openRouter()
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.removePolicy(); err != nil {
		return err
	}
	if !had.SixSource {
		return nil
	}
	if err := r.deleteAddress(r.lo.Index, sixSource); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !noIPv6(err) {
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

func (r router) addPolicy(family addressFamily, want capture.Routing) error {
	table := uint32(want.Table)
	route := localRoute{family: family, index: r.lo.Index, table: table, protocol: routeProtocol}
	if err := r.addRoute(route); err != nil {
		hint := ""
		switch {
		case errors.Is(err, unix.ENETDOWN):
			hint = "; bring lo up first"
		case errors.Is(err, unix.EEXIST):
			hint = "; the table is in use, choose another with -r"
		}
		return fmt.Errorf("adding the local route to table %d: %w%s", table, err, hint)
	}
	if err := r.addRule(routeRule{family: family, mark: want.Mark, table: table, protocol: routeProtocol}); err != nil {
		return fmt.Errorf("adding the routing rule for mark %#x: %w", want.Mark, err)
	}
	return nil
}

// ours lists what capture has added for a family. Where IPv6 is switched off, it is nothing.
func (r router) ours(family addressFamily) ([]routeRule, []localRoute, error) {
	rules, err := r.rules(family, routeProtocol)
	if err != nil {
		err = fmt.Errorf("listing routing rules: %w", err)
	}
	var routes []localRoute
	if err == nil {
		if routes, err = r.routes(family, routeProtocol); err != nil {
			err = fmt.Errorf("listing routes: %w", err)
		}
	}
	if family == unix.AF_INET6 && noIPv6(err) {
		err = nil
	}
	return rules, routes, err
}

func (r router) removePolicy() error {
	for _, f := range addressFamilies {
		rules, routes, err := r.ours(f.family)
		if err != nil {
			return err
		}
		for _, rule := range rules {
			if err := r.deleteRule(rule); err != nil {
				return fmt.Errorf("removing the routing rule for mark %#x: %w", rule.mark, err)
			}
		}
		for _, route := range routes {
			if err := r.deleteRoute(route); err != nil {
				return fmt.Errorf("removing the local route of table %d: %w", route.table, err)
			}
		}
	}
	return nil
}
