package capture

import (
	"net/netip"
	"slices"

	"outrider.dev/internal/base/contract"
)

// Zones of connection tracking (Istio's numbers). A query that the agent forwards can have the same
// addresses and ports as the app's own query. Without zones, connection tracking would take the two
// for one connection.
const (
	zoneUpstream = 1 // between the agent and a name server
	zoneApp      = 2 // between the app and the agent
)

// dnsPort is the port on which name servers listen.
const dnsPort = 53

// nameserver appends a rule for packets to or from a captured name server.
func (b *builder) nameserver(l *ruleList, set, reason string, do Action, key func(netip.Prefix) Match, match ...Match) {
	if b.in.DNS == DNSAll {
		l.add(reason, do, match...)
		return
	}
	var list []netip.Prefix
	for _, a := range b.in.Nameservers {
		list = append(list, netip.PrefixFrom(a, a.BitLen()))
	}
	l.addresses(set, reason, do, list, key, match...)
}

// dns assigns the packets of the agent's resolver to the two zones.
func (b *builder) dns() {
	b.in.Nameservers = slices.DeleteFunc(slices.Clone(b.in.Nameservers), func(a netip.Addr) bool {
		return !b.in.Families.Has(FamilyOf(a))
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
		out.add("the agent queries a name server, "+words[i], zone(zoneUpstream), udp, dport(dnsPort), owner)
		out.add("the agent answers the app, "+words[i], zone(zoneApp), udp, sport(contract.DNSPort), owner)
	}
	pre := b.chain("raw-prerouting", Raw, Prerouting)
	b.nameserver(out, "nameservers", "the app queries a name server", zone(zoneApp), to, udp, dport(dnsPort))
	b.nameserver(pre, "answers", "a name server answers the agent", zone(zoneUpstream), from, udp, sport(dnsPort))
}

// dnsRedirects redirects the app's queries to the agent's resolver.
func (b *builder) dnsRedirects(out *ruleList) {
	if b.in.DNS == DNSOff {
		return
	}
	for _, p := range []Match{tcp, udp} {
		b.nameserver(out, "nameservers", "a DNS query: the agent's resolver answers", redirect(contract.DNSPort), to, p, dport(dnsPort))
	}
}
