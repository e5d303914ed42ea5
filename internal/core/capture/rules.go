package capture

import (
	"fmt"
	"net/netip"
	"slices"
)

// Addresses with a fixed meaning. The first two are the source addresses of the connections by
// which the proxy passes inbound traffic on to the app, which distinguishes them from the app's own
// connections.
var (
	passthrough4 = netip.MustParsePrefix("127.0.0.6/32")
	passthrough6 = netip.MustParsePrefix("::6/128")
	passthrough  = []netip.Prefix{passthrough4, passthrough6}
	loopback6    = netip.MustParsePrefix("::1/128")
)

// Marks of packets and connections. The mark for transparent proxying is not among them, since the
// user chooses it. The first mark is Istio's.
const (
	selfCallMark = 1338       // the proxy calls its own pod: treat the packet as inbound
	tproxiedMark = 1339       // on a connection: it was captured transparently
	refuseMark   = 0x4f750000 // parking is over: reject the packet at input
	// ProofOut and ProofIn mark the packets that test a finished capture. They take the same path
	// as any other packet and are rejected at their destination.
	ProofOut = 0x4f750001
	ProofIn  = 0x4f750002
)

// Build turns an intent into rules for a backend. The notes tell the user which settings have no
// effect and what the backend does not support.
func Build(in Intent, backend string) (rs Ruleset, notes []string) {
	in = in.withDefaults()
	b := builder{in: in, rs: Ruleset{Backend: backend, Families: in.Families}}
	if in.captures() {
		b.dns()
		b.mangle()
		b.inbound()
		b.outbound()
		b.proxy()
	}
	b.parking()
	if in.captures() {
		b.proof()
		b.rs.Routing.SixSource = in.Families.Has(IPv6)
	}
	if len(b.rs.Chains) == 0 {
		return Ruleset{Backend: backend, Families: in.Families}, b.notes
	}
	for i, c := range b.rs.Chains {
		b.rs.Chains[i].Rules = Merge(in.Families, c.For(IPv4), c.For(IPv6))
	}
	if backend == NFTables {
		b.guardFamily()
	}
	return b.rs.withRecord(), b.notes
}

type builder struct {
	in    Intent
	rs    Ruleset
	notes []string
}

func (b *builder) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// chain returns the chain with this name, and creates it if necessary. Chains keep the order of
// their creation.
func (b *builder) chain(name string, table Table, hook Hook) *ruleList {
	if b.rs.Chain(name) == nil {
		b.rs.Chains = append(b.rs.Chains, Chain{Name: name, Table: table, Hook: hook})
	}
	return &ruleList{b: b, name: name}
}

// A ruleList appends to a chain that it finds by name, since the slice of chains may be
// reallocated.
type ruleList struct {
	b    *builder
	name string
}

// add appends a rule. The addresses in the rule determine its family; a rule for a family that is
// not captured is omitted.
func (l *ruleList) add(reason string, do Action, match ...Match) {
	r := Rule{Match: Canonical(match), Action: do, Reason: reason}
	for _, m := range match {
		r.Family |= m.family()
	}
	if !l.b.rs.Families.Has(r.Family) {
		return
	}
	c := l.b.rs.Chain(l.name)
	c.Rules = append(c.Rules, r)
}

// ports appends rules for a list of ports: one that looks up a set with the given name, or one for
// each range. The reason has a format verb for the port, the range or the set.
func (l *ruleList) ports(set, reason string, do Action, list []uint16, match ...Match) {
	ranges := portsOf(list)
	switch {
	case len(list) > 1 && l.b.isSet(len(ranges)):
		s := l.b.set(Set{Name: set, Key: ByPort, Numbers: ranges})
		l.add(fmt.Sprintf(reason, "@"+set), do, append(slices.Clip(match), in(s))...)
	default:
		for _, r := range ranges {
			m := dport(uint16(r.First))
			if r.Last != r.First {
				m.Last = r.Last
			}
			l.add(fmt.Sprintf(reason, r), do, append(slices.Clip(match), m)...)
		}
	}
}

// addresses appends rules for each family in a list of ranges. A rule looks up a set with the given name, or has
// a prefix if the ranges equal a single prefix.
func (l *ruleList) addresses(set, reason string, do Action, list []netip.Prefix, key func(netip.Prefix) Match, match ...Match) {
	for _, f := range []Families{IPv4, IPv6} {
		ranges := rangesOf(list, f)
		if len(ranges) == 0 || !l.b.rs.Families.Has(f) {
			continue
		}
		if !l.b.isSet(len(ranges)) {
			for _, p := range list {
				if FamilyOf(p.Addr()) == f {
					l.add(reason, do, append(slices.Clip(match), key(p))...)
				}
			}
			continue
		}
		var cond Match
		if p, ok := prefixOf(ranges[0].First, ranges[0].Last); ok && len(ranges) == 1 {
			cond = key(p)
		} else {
			by := addressKeys[key(netip.Prefix{}).Key][f]
			cond = in(l.b.set(Set{Name: fmt.Sprintf("%s-%s", set, f), Key: by, Addresses: ranges}))
		}
		l.add(reason, do, append(slices.Clip(match), cond)...)
	}
}

// addressKeys maps conditions on a prefix to the keys of the sets that replace them.
var addressKeys = map[Key]map[Families]SetKey{
	Source:      {IPv4: BySource4, IPv6: BySource6},
	Destination: {IPv4: ByDestination4, IPv6: ByDestination6},
}

// hasSets reports whether the backend has sets for every kind of key.
func (b *builder) hasSets() bool { return b.rs.Backend == NFTables }

// maxSingleRules is the longest list of ports or ranges for which iptables has one rule per
// element. Longer lists use sets, which need the capability NET_RAW and a kernel with ipset.
const maxSingleRules = 15

// isSet reports whether a list of n ports or ranges becomes a set.
func (b *builder) isSet(n int) bool {
	return b.hasSets() || n > maxSingleRules && !b.in.SingleRules
}

// set returns s. It adds s to the rule set, unless the rule set has it already.
func (b *builder) set(s Set) Set {
	if b.rs.Set(s.Name) == nil {
		b.rs.Sets = append(b.rs.Sets, s)
	}
	return s
}

func (l *ruleList) excludedInterfaces(key func(string) Match, flags string, names ...string) {
	for _, name := range names {
		l.add("interface "+name+" is excluded ("+flags+")", leave, key(name))
	}
}

// FamilyOf returns the family of an address. An IPv4 address mapped into IPv6 must be unmapped
// before.
func FamilyOf(a netip.Addr) Families {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

func not(m Match) Match           { m.Not = true; return m }
func proto(n uint32) Match        { return Match{Key: Protocol, Num: n} }
func dport(p uint16) Match        { return Match{Key: DestPort, Num: uint32(p)} }
func sport(p uint16) Match        { return Match{Key: SourcePort, Num: uint32(p)} }
func from(p netip.Prefix) Match   { return Match{Key: Source, Prefix: p} }
func to(p netip.Prefix) Match     { return Match{Key: Destination, Prefix: p} }
func notTo(p netip.Prefix) Match  { return not(to(p)) }
func mark(n uint32) Match         { return Match{Key: Mark, Num: n} }
func connMark(n uint32) Match     { return Match{Key: ConnMark, Num: n} }
func iif(name string) Match       { return Match{Key: InInterface, Name: name} }
func oif(name string) Match       { return Match{Key: OutInterface, Name: name} }
func in(s Set) Match              { return Match{Key: InSet, Name: s.Name, Num: uint32(s.Key)} }
func jump(chain string) Action    { return Action{Verb: Goto, Name: chain} }
func redirect(p uint16) Action    { return Action{Verb: Redirect, Num: uint32(p)} }
func setMark(n uint32) Action     { return Action{Verb: SetMark, Mark: n} }
func setConnMark(n uint32) Action { return Action{Verb: SetConnMark, Mark: n} }
func zone(n uint32) Action        { return Action{Verb: Zone, Num: n} }
func onSet(v Verb, s Set) Action  { return Action{Verb: v, Name: s.Name, Num: uint32(s.Key)} }

var (
	tcp      = proto(TCP)
	udp      = proto(UDP)
	syn      = Match{Key: SYN}
	socket   = Match{Key: Socket}
	original = Match{Key: Original}
	leave    = Action{Verb: Return}
	drop     = Action{Verb: Drop}
	reject   = Action{Verb: Reject}
)

// owners returns the conditions that recognise the proxy's own packets, each with its description.
func (b *builder) owners() (matches []Match, words []string) {
	uids, uidWords := b.ids("proxy-uids", ByUID, UID, b.in.ProxyUIDs, "uid %s (-u)")
	gids, gidWords := b.ids("proxy-gids", ByGID, GID, b.in.ProxyGIDs, "gid %s (-g)")
	return append(uids, gids...), append(uidWords, gidWords...)
}

// ids returns the conditions for a list of users or groups, each with its description: a single
// set, or a condition for each element.
func (b *builder) ids(set string, by SetKey, key Key, list []uint32, format string) (matches []Match, words []string) {
	if len(list) > 1 && b.hasSets() {
		s := b.set(Set{Name: set, Key: by, Numbers: idsOf(list)})
		return []Match{in(s)}, []string{fmt.Sprintf(format, "@"+set)}
	}
	for _, id := range list {
		matches = append(matches, Match{Key: key, Num: id})
		words = append(words, fmt.Sprintf(format, fmt.Sprint(id)))
	}
	return matches, words
}

// Names of chains to which rules of other chains go:
const (
	inboundChain = "inbound"
	proxyChain   = "proxy"
	appChain     = "app"
	virtualChain = "virtual"
	takeChain    = "take"
)

// established exempts connections that are older than the rules: their next packet is the first
// that connection tracking sees, and would be redirected.
func (l *ruleList) established() {
	l.add("not the start of a connection: older connections go on unchanged", leave, not(syn))
}

// inbound adds the rules for packets from outside of the pod. With TPROXY only virtual interfaces
// need NAT, since their traffic is outbound.
func (b *builder) inbound() {
	in := b.in
	if in.Mode == TProxyMode && len(in.VirtualInterfaces) == 0 {
		return
	}
	pre := b.chain("prerouting", NAT, Prerouting)
	pre.established()
	for _, name := range in.VirtualInterfaces {
		pre.add("from a guest behind "+name+" (-k): its outbound traffic", jump(virtualChain), iif(name))
	}
	pre.excludedInterfaces(iif, "-c", in.ExcludeInterfaces...)
	if in.Mode == RedirectMode {
		pre.add("from outside: to be captured unless excluded", jump(inboundChain), tcp)
		l := b.chain(inboundChain, NAT, NoHook)
		b.inboundPorts(l, redirect(in.InboundPort), "inbound connection to the proxy")
	}
	if len(in.VirtualInterfaces) > 0 {
		b.outboundRanges(b.chain(virtualChain, NAT, NoHook))
	}
}

// inboundPorts appends the rules that apply an action to the captured local ports.
func (b *builder) inboundPorts(l *ruleList, take Action, reason string) {
	in := b.in
	b.neverCaptured(l)
	excluded, _ := withoutStatus(in.ExcludeInboundPorts.List)
	l.ports("excluded-in-ports", "port %s is excluded (-d)", leave, excluded, tcp)
	switch {
	case in.ExcludeInboundPorts.All:
		l.add("every port is excluded (-d *)", leave)
	case in.InboundPorts.All:
		l.add(reason+" (-b *)", take, tcp)
	}
	captured, status := withoutStatus(in.InboundPorts.List)
	for _, p := range status {
		b.note("-b lists port %d, which is never captured: the kubelet and Prometheus use it also while the proxy is down", p)
	}
	if !in.ExcludeInboundPorts.All {
		l.ports("in-ports", reason+" (-b %s)", take, captured, tcp)
	}
}

// takesInbound reports whether any inbound port is captured.
func (in Intent) takesInbound() bool {
	captured, _ := withoutStatus(in.InboundPorts.List)
	return !in.ExcludeInboundPorts.All && (in.InboundPorts.All || len(captured) > 0)
}

// withoutStatus divides a list into other ports and status ports.
func withoutStatus(list []uint16) (others, status []uint16) {
	for _, p := range list {
		if slices.Contains(statusPorts, p) {
			status = append(status, p)
		} else {
			others = append(others, p)
		}
	}
	return others, status
}

// neverCaptured appends rules for ports that no flag can capture.
func (b *builder) neverCaptured(l *ruleList) {
	l.add("the tunnel port (-e): the proxy listens there itself", leave, tcp, dport(b.in.TunnelPort))
	l.ports("status-ports", "status port %s is never captured", leave, statusPorts, tcp)
}

// outbound adds the rules for packets that the pod's processes send.
func (b *builder) outbound() {
	in := b.in
	out := b.chain("output", NAT, Output)
	if in.Mode == RedirectMode {
		out.add("proof: an inbound connection, treated as if it came from outside", jump(inboundChain), tcp, mark(ProofIn))
	}
	out.established()
	b.agentProofs(out)
	out.excludedInterfaces(oif, "-c", in.ExcludeInterfaces...)
	out.ports("excluded-out-ports", "port %s is excluded (-o)", leave, in.ExcludeOutboundPorts, tcp)
	if in.DNS != DNSOff {
		out.ports("excluded-out-ports", "port %s is excluded (-o)", leave, in.ExcludeOutboundPorts, udp)
	}
	out.addresses("", "the proxy passes an inbound connection on to the app", leave, passthrough, from, oif("lo"))
	owners, words := b.owners()
	for i, owner := range owners {
		out.add("sent by the proxy: "+words[i], jump(proxyChain), owner)
	}
	out.add("sent by the app", jump(appChain))
	app := b.chain(appChain, NAT, NoHook)
	if !slices.ContainsFunc(in.OutboundRanges.List, func(p netip.Prefix) bool { return p.Addr().IsLoopback() }) {
		if in.DNS == DNSOff {
			app.add("within the pod: containers call one another directly", leave, oif("lo"))
		} else {
			app.add("within the pod, except for DNS: containers call one another directly", leave, oif("lo"), tcp, not(dport(dnsPort)))
		}
	}
	b.ownerGroups(app)
	b.dnsRedirects(app)
	app.addresses("", "to loopback: stays in the pod", leave, in.loopbacks(), to)
	b.outboundRanges(app)
}

// proxy adds the rules for packets that the proxy itself sends.
func (b *builder) proxy() {
	in := b.in
	l := b.chain(proxyChain, NAT, NoHook)
	if !in.leavesProofOut() {
		// The agent is the proxy's user, so only this rule lets it prove that the app's connections are captured.
		l.proofOut(jump(appChain))
	}
	if in.Mode == RedirectMode {
		b.neverCaptured(l)
		if in.DNS != DNSOff {
			l.add("the agent queries a name server in the pod", leave, tcp, dport(dnsPort))
		}
		l.addresses("", "the pod calls itself by a service address: in through the inbound side", redirect(in.InboundPort),
			in.loopbacks(), notTo, oif("lo"), tcp)
	}
	l.add("the proxy's own traffic is not captured: it would loop", leave)
}

// ownerGroups exempts processes because of their group.
func (b *builder) ownerGroups(out *ruleList) {
	if b.in.OwnerGroups.All {
		groups, words := b.ids("excluded-groups", ByGID, GID, b.in.ExcludeOwnerGroups, "group %s is excluded (ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE)")
		for i, group := range groups {
			out.add(words[i], leave, group)
		}
		return
	}
	others, _ := b.ids("groups", ByGID, GID, b.in.OwnerGroups.List, "%s")
	for i := range others {
		others[i].Not = true
	}
	out.add("of none of the captured groups (ISTIO_OUTBOUND_OWNER_GROUPS)", leave, others...)
}

// outboundRanges appends rules for the destinations that are captured.
func (b *builder) outboundRanges(l *ruleList) {
	in := b.in
	take := redirect(in.OutboundPort)
	if l.name == virtualChain {
		l.ports("excluded-out-ports", "port %s is excluded (-o)", leave, in.ExcludeOutboundPorts, tcp)
	}
	l.addresses("excluded-ranges", "to an excluded range (-x)", leave, in.ExcludeOutboundRanges, to)
	l.ports("out-ports", "outbound connection to the proxy (-q %s)", take, in.OutboundPorts.List, tcp)
	if in.OutboundRanges.All || in.OutboundPorts.All {
		l.add("outbound connection to the proxy (-i *)", take, tcp)
		return
	}
	l.addresses("ranges", "outbound connection to the proxy (-i)", take, in.OutboundRanges.List, to, tcp)
}

// mangle adds the rules before address translation: they drop packets that belong to no known
// connection, and capture connections transparently.
func (b *builder) mangle() {
	if !b.in.DropInvalid && b.in.Mode != TProxyMode {
		return
	}
	pre := b.chain("mangle-prerouting", Mangle, Prerouting)
	if b.in.DropInvalid {
		pre.add("out of window (--drop-invalid): answering it would reset an open connection", drop, Match{Key: Invalid})
	}
	if b.in.Mode == TProxyMode {
		b.tproxy(pre)
	}
}

// tproxy captures inbound connections transparently, with Istio's scheme of marks. The proxy's
// calls to the app carry TProxyMark and the caller's address; the mark on their connection leads
// the app's packets back to the proxy.
func (b *builder) tproxy(pre *ruleList) {
	in := b.in
	own := in.TProxyMark
	pre.add("the proxy calls the app as the caller: remember it, for the answers", setConnMark(own), tcp, mark(own))
	pre.add("the proxy calls the app as the caller", leave, tcp, mark(own))
	pre.addresses("", "the proxy passes an inbound connection on to the app", leave, passthrough, from, iif("lo"))
	b.proofIn(pre, jump(takeChain), iif("lo"), mark(selfCallMark))
	pre.add("within the pod: containers call one another directly", leave, iif("lo"), not(mark(selfCallMark)), not(mark(ProofIn)))
	pre.excludedInterfaces(iif, "-c, -k", slices.Concat(in.ExcludeInterfaces, in.VirtualInterfaces)...)
	pre.addresses("", "to loopback: stays in the pod", leave, in.loopbacks(), to)
	// A connection that was already captured is recognised by its mark, not by its socket: the last
	// packet of a handshake with a SYN cookie has no socket yet.
	tp := Action{Verb: TProxy, Num: uint32(in.InboundPort), Mark: own}
	pre.add("a connection that the proxy has taken", tp, connMark(tproxiedMark), original, not(syn))
	pre.established()
	b.inboundPorts(pre, jump(takeChain), "inbound connection to the proxy")

	// Some rule goes to this chain, be it that of the agent's proof. Otherwise it must not be created: when it is read
	// back, its table would be unknown.
	l := b.chain(takeChain, Mangle, NoHook)
	takes := in.takesInbound()
	if takes {
		l.add(ReasonProofTP, leave, mark(ProofIn))
	}
	l.add("recognised by this mark from now on", setConnMark(tproxiedMark))
	l.add("to the proxy, addresses unchanged", tp, tcp)
	if takes {
		b.tproxyAbsent(l)
	}

	b.rs.Routing.Mark, b.rs.Routing.Table = own, in.TProxyTable
	out := b.chain("mangle-output", Mangle, Output)
	out.add("the proxy calls the app as the caller", leave, tcp, oif("lo"), mark(own))
	b.proofIn(out, setMark(selfCallMark), oif("lo"))
	owners, words := b.owners()
	for i, owner := range owners {
		out.addresses("", "the pod calls itself by a service address, "+words[i]+": in through the inbound side", setMark(selfCallMark),
			in.loopbacks(), notTo, tcp, oif("lo"), owner)
	}
	out.add("the app answers the proxy, which called as the caller", setMark(own), tcp, connMark(own))
}

// guardFamily restricts the chains to one family if only that one is captured: the nftables backend
// has a single table for both.
func (b *builder) guardFamily() {
	var other Families
	switch b.rs.Families {
	case IPv4:
		other = IPv6
	case IPv6:
		other = IPv4
	default:
		return
	}
	for i := range b.rs.Chains {
		if c := &b.rs.Chains[i]; c.Hook != NoHook {
			guard := Rule{Family: other, Action: leave, Reason: guardReason(b.rs.Families)}
			c.Rules = slices.Insert(c.Rules, 0, guard)
		}
	}
}

// guardReason identifies a guard of guardFamily when rules are read back.
func guardReason(only Families) string { return "only " + only.String() + " is captured" }
