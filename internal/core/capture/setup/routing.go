package setup

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

// routeProtocol marks the routing rules and routes that capture adds, so that they are found and
// removed whatever flags were used, and no others are changed.
const routeProtocol = capture.RouteProtocol

// addressFamilies maps netlink's families to the model's.
var addressFamilies = []struct {
	family uint8
	model  capture.Families
}{{unix.AF_INET, capture.IPv4}, {unix.AF_INET6, capture.IPv6}}

// sixSource is the address from which the proxy passes inbound connections on over IPv6.
var sixSource = netip.MustParsePrefix("::6/128")

// A router is a connection to rtnetlink(7), in the network namespace of the thread that opened it.
// It changes the routing that transparent proxying needs: a routing policy by packet mark, a table
// that makes every address local, and the address ::6. All of these concern the interface lo. An
// error of the kernel is a [unix.Errno].
type router struct{ *netlink.Conn }

// loopback is the index of lo in every network namespace (LOOPBACK_IFINDEX, net/flow.h of
// the kernel).
const loopback = 1

// openRouter needs no privilege; changes need NET_ADMIN.
func openRouter() (router, error) {
	c, err := netlink.Open(unix.NETLINK_ROUTE)
	if err != nil {
		return router{}, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return router{c}, nil
}

// A routingChange changes the routing of the current namespace to that of another rule set. It adds
// new routing before the rules are written, and removes stale routing after them: routing without
// rules has no effect, since no packet has the mark, but rules without their routing do not work. A
// killed run leaves stale routing, which the next run removes.
type routingChange struct {
	added, stale []entry
	notes        []string // features that the machine does not support
}

// add adds the routing that is wanted and missing. usesSix says that existing rules use ::6.
func (c *routingChange) add(usesSix bool, want capture.Routing, families capture.Families) error {
	r, err := openRouter()
	if err != nil {
		return err
	}
	defer r.Close()
	have, err := r.replaced(usesSix, want.SixSource)
	if err != nil {
		return err
	}
	wanted := entriesOf(want, families)
	off := want != (capture.Routing{}) && families.Has(capture.IPv6) && ipv6Off()
	c.notes = nil
	if off {
		c.notes = []string{noteIPv6Off}
	}
	c.stale = slices.DeleteFunc(slices.Clone(have), func(e entry) bool { return slices.ContainsFunc(wanted, e.same) })
	for _, e := range wanted {
		if slices.ContainsFunc(have, e.same) {
			continue
		}
		added, err := r.add(e, off)
		if err != nil {
			return err
		}
		if added {
			c.added = append(c.added, e)
		}
	}
	return nil
}

// entriesOf returns the entries that make up a routing.
func entriesOf(want capture.Routing, families capture.Families) (out []entry) {
	for _, f := range addressFamilies {
		if want.Mark != 0 && families.Has(f.model) {
			out = append(out, localRoute(f.family, want), policyRule(f.family, want))
		}
	}
	if want.SixSource {
		out = append(out, sixAddress)
	}
	return out
}

// replaced returns the entries that a change replaces: the entries of capture, and ::6 if it is no
// longer wanted, provided that capture added it or that existing rules of ours use it.
func (r router) replaced(usesSix, wantsSix bool) ([]entry, error) {
	have, err := r.ours()
	if err != nil || wantsSix {
		return have, err
	}
	six, err := r.six()
	if six != nil && (usesSix || six.protocol == routeProtocol) {
		have = append(have, sixAddress)
	}
	return have, err
}

// finish removes the stale routing.
func (c *routingChange) finish() error { return removeEntries(c.stale) }

// undo removes the added routing.
func (c *routingChange) undo() error { return removeEntries(c.added) }

// removeRouting removes the routing that capture has added. Other meshes add ::6 to lo too. The address belongs
// to capture if the kernel has recorded that (since Linux 5.18), or if rules of ours use it.
func removeRouting(usesSix bool) error {
	var c routingChange
	if err := c.add(usesSix, capture.Routing{}, 0); err != nil {
		return err
	}
	return c.finish()
}

func removeEntries(list []entry) error {
	if len(list) == 0 {
		return nil
	}
	r, err := openRouter()
	if err != nil {
		return err
	}
	defer r.Close()
	var errs []error
	for _, e := range list {
		// Another program may have removed the entry, and IPv6 may have been switched off.
		err := r.change(e.kind.del, remove, e.message)
		if err != nil && !isAny(err, unix.ENOENT, unix.ESRCH, unix.EADDRNOTAVAIL) && !(e.kind == addresses && noIPv6(err)) {
			errs = append(errs, fmt.Errorf("removing %s: %w", e, err))
		}
	}
	return errors.Join(errs...)
}

// add adds an entry, and reports whether the entry was missing. If IPv6 is switched off (off), the kernel refuses
// the address and the route. It may accept the rule, which then records the intended routing.
func (r router) add(e entry, off bool) (added bool, err error) {
	err = r.change(e.kind.add, create, e.message)
	hint := ""
	switch {
	case err == nil:
		return true, nil
	case e.kind == addresses && errors.Is(err, unix.EEXIST), off && e.family == unix.AF_INET6 && noIPv6(err):
		return false, nil
	case errors.Is(err, unix.ENETDOWN):
		hint = "; bring lo up first"
	case e.kind == localRoutes && errors.Is(err, unix.EEXIST):
		hint = "; the table is in use, choose another with -r"
	}
	return false, fmt.Errorf("adding %s: %w%s", e, err, hint)
}

// noteIPv6Off is the note for the user if [ipv6Off] is true in the namespace.
const noteIPv6Off = "IPv6 is switched off on lo (net.ipv6.conf.lo.disable_ipv6): its rules are in place; " +
	"run capture again when it is switched on, for the address ::6 and for the route of TPROXY"

// ipv6Off reports whether lo can have no IPv6 address and no IPv6 route. The rules for the family
// are written nevertheless: if IPv6 is switched on later, its connections must not bypass the
// proxy.
func ipv6Off() bool {
	value, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
	return errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(value)) != "0"
}

// readRouting returns the routing that capture has added for rs. It ignores other routing that a
// killed run left. Routing that cannot exist because IPv6 is switched off counts as added.
func readRouting(rs capture.Ruleset) (capture.Routing, error) {
	r, err := openRouter()
	if err != nil {
		return capture.Routing{}, err
	}
	defer r.Close()
	rs.Routing = capture.Routing{}
	off := rs.Families.Has(capture.IPv6) && ipv6Off()
	if usesSixSource(rs) {
		six, err := r.six()
		if err != nil {
			return capture.Routing{}, err
		}
		rs.Routing.SixSource = off || six != nil
	}
	mark := tproxyMark(rs)
	if mark == 0 {
		return rs.Routing, nil
	}
	entries, err := r.ours()
	if err != nil {
		return capture.Routing{}, err
	}
	tables := tablesOf(entries, mark, rs.Families, off)
	for _, table := range tables {
		rs.Routing.Mark, rs.Routing.Table = mark, table
		if len(tables) > 1 { // a run with another routing table (-r) was killed
			if _, ok := rs.Recorded(); ok {
				break
			}
		}
	}
	return rs.Routing, nil
}

// checkRouting reports a difference between the routing and what the rules need, and names entries
// of capture that its rules do not use.
func checkRouting(s capture.State) error {
	if _, ok := s.Recorded(); !ok {
		return errors.New("the rules, or the routing that belongs to them, are not those that this version wrote; run capture again")
	}
	r, err := openRouter()
	if err != nil {
		return err
	}
	defer r.Close()
	have, err := r.replaced(false, s.Routing.SixSource)
	if err != nil {
		return err
	}
	var left []string
	for _, e := range have {
		if !slices.ContainsFunc(entriesOf(s.Routing, s.Families), e.same) {
			left = append(left, e.String())
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("a capture was interrupted; its routing is left, and does nothing: %s; run capture again", strings.Join(left, ", "))
	}
	return nil
}

// deliversMarked returns an error if packets with the routing's mark are not delivered in this namespace, since a routing
// rule or a route of another program comes first.
func deliversMarked(s capture.State) error {
	if s.Routing.Mark == 0 {
		return nil
	}
	r, err := openRouter()
	if err != nil {
		return err
	}
	defer r.Close()
	for _, f := range addressFamilies {
		if !s.Families.Has(f.model) || f.model == capture.IPv6 && ipv6Off() {
			continue
		}
		for _, conn := range inboundConns(f.model) {
			to := conn.Dst.Addr()
			route, err := r.route(to, s.Routing.Mark)
			if err != nil || route.action != unix.RTN_LOCAL {
				return fmt.Errorf("proof: inbound: packets to %s with mark %#x are not delivered to the proxy: a routing rule or a route of another program comes first (ip rule, ip route show table %d)", to, s.Routing.Mark, s.Routing.Table)
			}
		}
	}
	return nil
}

// tproxyMark returns the mark that TPROXY sets on packets to the proxy, or 0.
func tproxyMark(rs capture.Ruleset) (mark uint32) {
	anyRule(rs, func(r capture.Rule) bool {
		if r.Action.Verb == capture.TProxy {
			mark = r.Action.Mark
		}
		return mark != 0
	})
	return mark
}

// tablesOf returns the tables to which packets with a mark are routed in every one of the families.
func tablesOf(entries []entry, mark uint32, families capture.Families, off bool) (tables []int) {
	for _, rule := range entries {
		want := capture.Routing{Mark: mark, Table: int(rule.table)}
		complete := rule.kind == policyRules && !slices.Contains(tables, want.Table)
		for _, f := range addressFamilies {
			if families.Has(f.model) {
				complete = complete && slices.ContainsFunc(entries, policyRule(f.family, want).same) &&
					(off && f.model == capture.IPv6 || slices.ContainsFunc(entries, localRoute(f.family, want).same))
			}
		}
		if complete {
			tables = append(tables, want.Table)
		}
	}
	return tables
}

// noIPv6 reports whether err is the kernel's answer when IPv6 is switched off, either in the kernel's module or
// on the interface (net.ipv6.conf.*.disable_ipv6).
func noIPv6(err error) bool {
	return isAny(err, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EACCES, unix.EPERM, unix.ENODEV)
}

// isAny reports whether err is one of numbers.
func isAny(err error, numbers ...unix.Errno) bool {
	var number unix.Errno
	return errors.As(err, &number) && slices.Contains(numbers, number)
}
