package setup

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
)

// choose returns a connection whose packet reaches the rule that counts the proof, and an identity to open the
// connection. It finds both by tracing candidates through the rules. The error says why there are none.
func choose(rs capture.Ruleset, d direction, family capture.Families) (trace.Conn, identity, error) {
	why := errors.New("nothing that is captured can be tried here")
	ids := []identity{own(), {65534, 65534}, {own().uid, 65534}, {own().uid, 0}, {65534, own().gid}, {0, 0}}
	ids = append(ids, ownersNamed(rs)...)
	find := func(target trace.Conn) (identity, bool) {
		for _, id := range ids {
			c := target
			c.UID, c.GID, c.Mark = uint32(id.uid), uint32(id.gid), d.mark
			if proves(trace.Follow(rs, c, trace.Pod{}), d) {
				return id, true
			}
		}
		return identity{}, false
	}
	routes := 0
	for _, conn := range d.conns(family) {
		for _, target := range targets(rs, conn) {
			id, ok := find(target)
			if !ok {
				continue
			}
			if target.Out == "lo" {
				return target, id, nil
			}
			// The route is needed because the rules may exempt its interface. The look-ups are limited because
			// they take most of the time.
			if routes++; routes > maxRoutes {
				return trace.Conn{}, identity{}, why
			}
			out, err := interfaceTo(target.Dst.Addr())
			if err != nil {
				why = fmt.Errorf("no route to %s: %w", target.Dst.Addr(), err)
				continue
			}
			target.Out = out
			if id, ok := find(target); ok {
				return target, id, nil
			}
		}
	}
	return trace.Conn{}, identity{}, why
}

// maxRoutes bounds the number of destinations whose route is looked up. Most pods have one route
// for all of them.
const maxRoutes = 64

// proves reports whether the rules lead a connection to the place where the proof is counted. It is false if that
// was the destination of the connection anyway.
func proves(t trace.Trace, d direction) bool {
	redirected := false
	for _, step := range t.Steps {
		redirected = redirected || step.Rule.Action.Verb == capture.Redirect
		switch step.Rule.Reason {
		case capture.ReasonProofTP:
			return true
		case d.reasons[0]:
			return redirected
		}
	}
	return false
}

// interfaceTo returns the interface by which packets to addr leave.
func interfaceTo(addr netip.Addr) (string, error) {
	r, err := openRouter()
	if err != nil {
		return "", err
	}
	defer r.Close()
	return r.interfaceTo(addr)
}

// ownersNamed returns identities of the groups that the rules name: if only these groups are
// captured, other identities prove nothing.
func ownersNamed(rs capture.Ruleset) []identity {
	var out []identity
	add := func(group uint32) { out = append(out, identity{own().uid, int(group)}, identity{65534, int(group)}) }
	for m := range conditions(rs) {
		switch {
		case m.Not && m.Key == capture.GID:
			add(m.Num)
		case m.Not && m.Key == capture.InSet && capture.SetKey(m.Num) == capture.ByGID && rs.Set(m.Name) != nil:
			for _, groups := range rs.Set(m.Name).Numbers {
				add(groups.First)
			}
		}
	}
	return out
}

// conditions yields every condition in the rules, with its rule.
func conditions(rs capture.Ruleset) iter.Seq2[capture.Match, capture.Rule] {
	return func(yield func(capture.Match, capture.Rule) bool) {
		for _, c := range rs.Chains {
			for _, r := range c.Rules {
				for _, m := range r.Match {
					if !yield(m, r) {
						return
					}
				}
			}
		}
	}
}

// maxSample bounds how many elements of one list are tried. All elements of a list are treated
// alike, unless they are also in another list.
const maxSample = 16

// targets returns conn, and copies of it with destinations from the lists in the rules: the first captured
// element, and the element after an excluded range.
func targets(rs capture.Ruleset, conn trace.Conn) []trace.Conn {
	out := []trace.Conn{conn}
	add := func(dst netip.AddrPort) {
		c := conn
		c.Dst = dst
		out = append(out, c)
	}
	addr, port := conn.Dst.Addr(), conn.Dst.Port()
	seen := map[capture.Match]bool{}
	for m, r := range conditions(rs) {
		if m.Not || seen[m] {
			continue
		}
		seen[m] = true
		numbers, addresses := destinations(rs, m)
		leave := r.Action.Verb == capture.Return
		for _, i := range sample(numbers) {
			n := i.First
			if leave {
				n = i.Last + 1
			}
			if n > 0 && n < 1<<16 {
				add(netip.AddrPortFrom(addr, uint16(n)))
			}
		}
		for _, i := range sample(addresses) {
			ends := []netip.Addr{i.First, i.First.Next()}
			if leave {
				ends = []netip.Addr{i.Last.Next()}
			}
			for _, a := range ends {
				if conn.Out != "lo" && a.IsValid() && a.Is4() == addr.Is4() && !a.IsLoopback() {
					add(netip.AddrPortFrom(a, port))
				}
			}
		}
	}
	return out
}

// destinations returns the ports or the addresses that meet a condition.
func destinations(rs capture.Ruleset, m capture.Match) ([]capture.Interval[uint32], []capture.Interval[netip.Addr]) {
	switch m.Key {
	case capture.DestPort:
		return []capture.Interval[uint32]{m.Range()}, nil
	case capture.Destination:
		return nil, []capture.Interval[netip.Addr]{capture.Range(m.Prefix)}
	case capture.InSet:
		s := rs.Set(m.Name)
		switch k := capture.SetKey(m.Num); {
		case s == nil || !s.Constant():
		case k == capture.ByPort || k == capture.ByDestination4 || k == capture.ByDestination6:
			return s.Numbers, s.Addresses
		}
	}
	return nil, nil
}

// sample returns the list, or some of its elements if it is long.
func sample[T any](list []T) []T {
	if len(list) <= maxSample {
		return list
	}
	var out []T
	for i := range maxSample {
		out = append(out, list[i*len(list)/maxSample])
	}
	return out
}

// outboundConns returns connections to addresses that no host has (RFC 5737, RFC 3849), for rules
// that capture every address.
func outboundConns(family capture.Families) []trace.Conn {
	dst := contract.ProofOutbound
	if family == capture.IPv6 {
		dst = contract.ProofOutbound6
	}
	return []trace.Conn{tcp(dst.Addr().Next().String(), "")}
}

// inboundConns returns connections to addresses of the pod. Transparent proxying exempts 127.0.0.1.
func inboundConns(family capture.Families) []trace.Conn {
	dsts := []string{"127.0.0.1", "127.0.0.2"}
	if family == capture.IPv6 {
		dsts = []string{"::1"}
	}
	var out []trace.Conn
	for _, dst := range dsts {
		out = append(out, tcp(dst, "lo"))
	}
	for _, a := range localAddresses() {
		if a.Is4() == (family == capture.IPv4) && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			out = append(out, tcp(a.String(), "lo"))
		}
	}
	return out
}

func tcp(dst, out string) trace.Conn {
	addr := netip.MustParseAddr(dst)
	src := addr
	if out != "lo" {
		src = netip.IPv6Unspecified()
		if addr.Is4() {
			src = netip.IPv4Unspecified()
		}
	}
	return trace.Conn{Proto: capture.TCP, Src: netip.AddrPortFrom(src, 40000), Dst: netip.AddrPortFrom(addr, contract.ProbePort), Out: out}
}
