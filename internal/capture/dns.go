package capture

import (
	"net/netip"
	"slices"
)

// Zones of connection tracking. A look-up that the agent passes on has the app's
// addresses and ports in part, and would be taken for the app's own (Istio's numbers).
const (
	zoneUpstream = 1 // agent and name server
	zoneApp      = 2 // app and agent
)

// nameservers are the destinations whose port 53 is captured: each server, or
// one condition-free entry for all.
func (b *builder) nameservers() [][]netip.Prefix {
	if b.in.DNS == DNSAll {
		return [][]netip.Prefix{nil}
	}
	var out [][]netip.Prefix
	for _, a := range b.in.Nameservers {
		out = append(out, []netip.Prefix{netip.PrefixFrom(a, a.BitLen())})
	}
	return out
}

// dns puts the two conversations of the agent's resolver into zones of their own.
func (b *builder) dns() {
	b.in.Nameservers = slices.DeleteFunc(slices.Clone(b.in.Nameservers), func(a netip.Addr) bool {
		return !b.in.Families.Has(familyOf(a))
	})
	if b.in.DNS == DNSServers && len(b.in.Nameservers) == 0 {
		b.note("--redirect-dns has no effect: there is no name server to capture; --capture-all-dns needs none")
		b.in.DNS = DNSOff
	}
	if b.in.DNS == DNSOff {
		return
	}
	out := b.chain("raw-output", Raw, Output)
	owners, words := b.owners()
	for i, owner := range owners {
		out.add("the agent asks a name server, "+words[i], zone(zoneUpstream), udp, dport(53), owner)
		out.add("the agent answers the app, "+words[i], zone(zoneApp), udp, sport(DNSPort), owner)
	}
	pre := b.chain("raw-prerouting", Raw, Prerouting)
	for _, server := range b.nameservers() {
		out.add("the app asks for a name", zone(zoneApp), with(to, server, udp, dport(53))...)
		pre.add("a name server answers the agent", zone(zoneUpstream), with(from, server, udp, sport(53))...)
	}
}

// dnsRedirects sends the app's questions to the agent's resolver.
func (b *builder) dnsRedirects(out *ruleList) {
	if b.in.DNS == DNSOff {
		return
	}
	for _, server := range b.nameservers() {
		for _, p := range []Match{tcp, udp} {
			out.add("a name is asked for: the agent's resolver answers", redirect(DNSPort), with(to, server, p, dport(53))...)
		}
	}
}

// with is match and a condition for each address.
func with(cond func(netip.Prefix) Match, addrs []netip.Prefix, match ...Match) []Match {
	for _, a := range addrs {
		match = append(match, cond(a))
	}
	return match
}
