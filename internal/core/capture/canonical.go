package capture

import "slices"

// Rules and their conditions are in a canonical order, because the kernel's packet filters do not keep the order
// in which rules and conditions were written: iptables sorts conditions in its own way, and has a separate list
// of rules for each family. [Build] and the backends that read rules back use the functions of this file, so that
// equal rules have equal text.

// conditionOrder is the canonical order of the conditions of a rule.
var conditionOrder = []Key{
	Protocol, SYN, InInterface, OutInterface, Mark, ConnMark, Original, SourcePort, DestPort,
	Source, Destination, Invalid, Socket, UID, GID, InSet,
}

// Canonical returns the conditions of a rule in canonical order, without redundant ones. Redundant are TCP if SYN
// is also a condition, and a range of all addresses. Conditions on the same key keep their order.
func Canonical(match []Match) []Match {
	syn := slices.ContainsFunc(match, func(m Match) bool { return m.Key == SYN })
	var out []Match
	for _, key := range conditionOrder {
		for _, m := range match {
			if m.Key == key && !(syn && m == tcp) && !m.everyAddress() {
				out = append(out, m)
			}
		}
	}
	return out
}

// everyAddress reports whether m is a range of all addresses of a family.
func (m Match) everyAddress() bool { return m.Prefix.IsValid() && m.Prefix.Bits() == 0 && !m.Not }

// For returns the rules that apply to a family, with their Family cleared.
func (c Chain) For(f Families) []Rule {
	var out []Rule
	for _, r := range c.Rules {
		if r.Family == 0 || r.Family.Has(f) {
			r.Family = 0
			out = append(out, r)
		}
	}
	return out
}

// Merge is the inverse of [Chain.For]: it merges the rules of the two families into one list. A rule that is in
// both lists is in the result once. The result depends only on the two lists.
func Merge(families Families, four, six []Rule) []Rule {
	switch families {
	case IPv6:
		return singleFamily(families, six)
	case DualStack:
	default:
		return singleFamily(families, four)
	}
	var out []Rule
	add := func(r Rule, f Families) {
		r.Family = f
		out = append(out, r)
	}
	for len(four) > 0 && len(six) > 0 {
		switch {
		case four[0].equal(six[0]):
			add(four[0], 0)
			four, six = four[1:], six[1:]
		case slices.ContainsFunc(six, four[0].equal):
			add(six[0], IPv6)
			six = six[1:]
		default:
			add(four[0], IPv4)
			four = four[1:]
		}
	}
	for _, r := range four {
		add(r, IPv4)
	}
	for _, r := range six {
		add(r, IPv6)
	}
	return out
}

// singleFamily sets the family of rules that contain an address. Other rules need no family, because the rule set
// has only this family.
func singleFamily(family Families, rules []Rule) []Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		if slices.ContainsFunc(rules[i].Match, func(m Match) bool { return m.family() != 0 }) {
			rules[i].Family = family
		}
	}
	return rules
}

func (r Rule) equal(s Rule) bool {
	return r.Family == s.Family && r.Action == s.Action && r.Reason == s.Reason && slices.Equal(r.Match, s.Match)
}
