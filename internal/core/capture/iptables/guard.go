package iptables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"outrider.dev/internal/core/capture"
)

// A guard is a group of rules that is in place while the rules of a family change. iptables commits each table
// and each family separately, so a run can be killed when only one family is captured. The guard drops the first
// packet of each new connection; the caller's kernel tries again a second later. So connections wait after a run
// was killed, and none bypasses the proxy. The next run of capture or clean removes the guard.
type guard uint8

const (
	noGuard  guard = iota
	tcpGuard       // drops TCP connections
	dnsGuard       // also drops DNS queries, if the rules capture them
)

const guardChain = prefix + "GUARD"

// guarded are the kernel's chains that jump to the guard. Packets of a virtual machine in the pod pass FORWARD.
var guarded = []string{"INPUT", "OUTPUT", "FORWARD"}

// rules returns the rules of the guard. They drop even connections that are not captured; this is acceptable, as
// the guard exists only for milliseconds.
func (g guard) rules() []entry {
	const reason = "-m comment --comment \"capture is at work, or was interrupted\" -j DROP"
	return []entry{
		{spec: "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN " + reason},
		{spec: "-p udp -m udp --dport 53 " + reason},
	}[:g]
}

// raise returns input for iptables-restore that writes the guard, and removes the guard of the former rules,
// complete or partial.
func (g guard) raise(from owned) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*filter\n:%s - [0:0]\n", guardChain)
	for _, e := range g.rules() {
		fmt.Fprintf(&b, "-A %s %s\n", guardChain, e.spec)
	}
	for _, chain := range guarded {
		fmt.Fprintf(&b, "-I %s %s\n", chain, jumpTo(guardChain))
	}
	for _, j := range from.at(capture.Filter).jumps {
		if j.toGuard() {
			fmt.Fprintf(&b, "-D %s %s\n", j.chain, j.spec)
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// lowerGuard returns input for iptables-restore that removes a complete guard. If the changed rules look up sets,
// it first writes a rule with an iptables module. nf_tables destroys old rules with a delay, and the sets of
// these rules cannot be removed earlier. It waits for the destruction before it creates a rule with an iptables
// module (nft_compat_wait_for_destructors, since Linux 5.11).
func lowerGuard(sets bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*filter\n:%s - [0:0]\n", guardChain)
	if sets {
		fmt.Fprintf(&b, "-A %s -m conntrack --ctdir ORIGINAL -j RETURN\nCOMMIT\n*filter\n:%s - [0:0]\n", guardChain, guardChain)
	}
	for _, chain := range guarded {
		fmt.Fprintf(&b, "-D %s %s\n", chain, jumpTo(guardChain))
	}
	fmt.Fprintf(&b, "-X %s\nCOMMIT\n", guardChain)
	return b.String()
}

func (j jump) toGuard() bool { return strings.HasSuffix(j.spec, " "+guardChain) }

func sameSpec(a, b entry) bool { return a.spec == b.spec }

// split separates the guard from o. whole is false if the guard is incomplete.
func (o owned) split() (rest owned, g guard, whole bool) {
	t := o.at(capture.Filter)
	if !slices.Contains(t.chains, guardChain) {
		return o, noGuard, true
	}
	rest = maps.Clone(o)
	delete(rest, capture.Filter)
	kept := tableRules{rules: t.rules}
	var jumps []jump
	for _, j := range t.jumps {
		if j.toGuard() {
			jumps = append(jumps, j)
		} else {
			kept.jumps = append(kept.jumps, j)
		}
	}
	for _, c := range t.chains {
		if c != guardChain {
			kept.chains = append(kept.chains, c)
		}
	}
	if len(kept.chains) > 0 {
		rest[capture.Filter] = &kept
	}
	rules := t.rules[guardChain]
	g = guard(min(len(rules), int(dnsGuard)))
	whole = g != noGuard && slices.EqualFunc(rules, g.rules(), sameSpec) && len(jumps) == len(guarded)
	for _, chain := range guarded {
		whole = whole && slices.Contains(jumps, jump{chain, jumpTo(guardChain)})
	}
	return rest, g, whole
}

// with returns a copy of o whose guard is g.
func (o owned) with(g guard) owned {
	out, _, _ := o.split()
	out = maps.Clone(out)
	t := out.at(capture.Filter)
	next := &tableRules{chains: append(slices.Clip(t.chains), guardChain), jumps: slices.Clip(t.jumps), rules: map[string][]entry{guardChain: g.rules()}}
	for _, c := range t.chains {
		next.rules[c] = t.rules[c]
	}
	for _, chain := range guarded {
		next.jumps = append(next.jumps, jump{chain, jumpTo(guardChain)})
	}
	out[capture.Filter] = next
	return out
}

// hasSet reports whether a rule looks up a constant set whose name starts with prefix.
func (o owned) hasSet(prefix string) bool {
	for _, t := range o {
		for _, c := range t.chains {
			if slices.ContainsFunc(t.rules[c], func(e entry) bool { return strings.Contains(e.spec, "--match-set "+prefix) }) {
				return true
			}
		}
	}
	return false
}

// needs returns the guard under which o must be written or removed.
func (o owned) needs() guard {
	t := o.at(capture.NAT)
	for _, c := range t.chains {
		if slices.ContainsFunc(t.rules[c], func(e entry) bool {
			return strings.Contains(e.spec, "-p udp") && strings.Contains(e.spec, "-j REDIRECT")
		}) {
			return dnsGuard
		}
	}
	return tcpGuard
}

// same reports whether o and other have the same rules.
func (o owned) same(other owned) bool {
	sameTable := func(t, u *tableRules) bool {
		if len(t.chains) != len(u.chains) || len(t.jumps) != len(u.jumps) || len(without(t.jumps, u.jumps)) > 0 {
			return false
		}
		return !slices.ContainsFunc(t.chains, func(c string) bool {
			return !slices.Contains(u.chains, c) || !slices.EqualFunc(t.rules[c], u.rules[c], sameSpec)
		})
	}
	return maps.EqualFunc(o, other, sameTable)
}

// transition returns the input of iptables-restore --noflush that changes our rules from one state
// to another, under a guard. It is empty if there is nothing to do.
func transition(from, to owned) string {
	before, had, whole := from.split()
	after, keep, _ := to.split()
	during, body := max(had, keep), ""
	if !before.same(after) {
		during, body = max(during, before.needs(), after.needs()), change(before, after)
	} else if !whole {
		during = max(during, tcpGuard)
	}
	if during != had || !whole {
		body = joinCommits(during.raise(from), body)
	}
	switch {
	case during == keep:
	case keep != noGuard:
		body = joinCommits(body, keep.raise(owned{}.with(during)))
	default:
		body = joinCommits(body, lowerGuard(before.hasSet("")))
	}
	return body
}

// joinCommits joins two inputs. If the first ends and the second begins with the filter table, they
// share one commit, because each commit takes time.
func joinCommits(a, b string) string {
	const begin, end = "*filter\n", "COMMIT\n"
	last := max(0, strings.LastIndex("\n"+a, "\n*"))
	if strings.HasPrefix(a[last:], begin) && strings.HasPrefix(b, begin) {
		return strings.TrimSuffix(a, end) + strings.TrimPrefix(b, begin)
	}
	return a + b
}
