package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"outrider.dev/internal/base/contract"
)

// forgetAbsence is the time for which the kernel remembers the absence of a listener after the last connection to
// its port. It bounds how long this memory can be out of date: if no connection arrives after the listener is
// back, only the timeout clears it.
const forgetAbsence = 5 * time.Minute

// releasePort is the source port of the packets of [Release]. No process uses it, so no other
// packet to a port of the pod is taken for a release.
const releasePort = contract.ProbePort

// releaseAddrs are the addresses to which [Release] sends its packets; the destination port is the port to
// release.
var releaseAddrs = []netip.Prefix{passthrough4, loopback6}

// NFTables and IPTables are the names of the backends.
const (
	NFTables = "nftables"
	IPTables = "iptables"
)

// Reasons of rules whose counters are read:
const (
	ReasonParked   = "no listener: parked, the caller's kernel retries"
	ReasonFirst    = "no listener: parked, and the time limit starts"
	ReasonOver     = "no listener for longer than the limit: refused"
	ReasonProofOut = "proof: an outbound connection arrived at the proxy's port"
	ReasonProofIn  = "proof: an inbound connection arrived at the proxy's port"
	ReasonProofTP  = "proof: an inbound connection arrived at the proxy"
)

// parking makes connections to ports without a listener wait. For each port and family, the kernel has a key in
// up to two sets with timeouts:
//
//	parking  the listener has been absent for less than ParkLimit
//	gone     the listener is absent, and a connection found that out less than forgetAbsence ago
//
// A connection that finds a listener deletes both keys. "gone" without "parking" means that the absence has
// lasted longer than ParkLimit: connections are refused at once.
func (b *builder) parking() {
	in := b.in
	if !in.parks() {
		return
	}
	ports := in.parkedPorts()
	input := b.chain("input", Filter, Input)
	if in.captures() {
		b.proofArrivals(input)
	}
	if in.captures() && in.Mode == TProxyMode && b.limited() {
		b.tproxyInput(input)
	}
	groups := b.parkGroups(ports)
	for _, g := range groups {
		b.parkInput(input, g)
	}
	for _, g := range groups {
		b.park(g)
	}
	if b.limited() {
		b.release(groups)
	}
}

// A parkGroup is a group of ports that share a chain, and the sets that remember the absence of
// each listener.
type parkGroup struct {
	chain string
	ports []uint16
	all   bool // includes every port that is in no other group, except the status ports
	sets  absence
}

// parkGroups divides the ports into groups. A group of several ports needs sets with ports as keys. With
// iptables, only ipset has such sets. The iptables match recent remembers addresses, so with it each port needs
// its own chain.
func (b *builder) parkGroups(ports []uint16) (groups []parkGroup) {
	rest := parkGroup{chain: "park", all: b.in.ParkPorts.All}
	byPort := b.hasSets() || !rest.all && b.isSet(len(ports))
	alone := func(p uint16) {
		groups = append(groups, parkGroup{chain: fmt.Sprintf("park-%d", p), ports: []uint16{p}, sets: b.sets(fmt.Sprintf("-%d", p), ByFamily, 0)})
	}
	for _, p := range ports {
		if !byPort || b.remembersTProxy() && p == b.in.InboundPort {
			alone(p)
		} else {
			rest.ports = append(rest.ports, p)
		}
	}
	if len(rest.ports) == 1 && !rest.all {
		alone(rest.ports[0])
		return groups
	}
	if rest.all || len(rest.ports) > 0 {
		rest.sets = b.setsOf(rest)
		groups = append(groups, rest)
	}
	return groups
}

// setsOf returns the sets of a group of several ports.
func (b *builder) setsOf(g parkGroup) absence {
	switch {
	case b.hasSets():
		return b.sets("", ByFamilyPort, g.size())
	case len(g.ports) > 0: // ipset's sets have room for every port
		return b.sets("", ByFamilyPort, 0)
	case b.limited():
		b.note("--park-ports '*' has no time limit with the iptables backend: callers wait for as long as they choose to")
	}
	return absence{}
}

// size returns the maximum number of keys in the sets of a group: one for each family and port. For
// a group of all ports it is half of that, since the kernel allocates the memory for all keys at
// once.
func (g parkGroup) size() uint32 {
	const ports = 1<<16 - 1
	if g.all {
		return ports
	}
	return min(ports, 2*uint32(len(g.ports)))
}

// remembersTProxy reports whether the absence of the inbound port's listener is recorded before
// address translation. There the packets still have their original ports, so the key cannot be the
// port.
func (b *builder) remembersTProxy() bool { return b.in.captures() && b.in.Mode == TProxyMode }

// parkInput sends new connections to the chain of the group.
func (b *builder) parkInput(input *ruleList, g parkGroup) {
	if g.all {
		input.ports("status-ports", "status port %s is never parked", leave, statusPorts, tcp)
		input.add("any other port: is there a listener?", jump(g.chain), syn)
	} else {
		input.ports("parked-ports", "port %s: is there a listener?", jump(g.chain), g.ports, syn)
	}
	if slices.Contains(g.ports, contract.DNSPort) && b.in.captures() {
		input.add(fmt.Sprintf("port %d: is there a listener?", contract.DNSPort), jump(g.chain), udp, dport(contract.DNSPort))
	}
}

// limited reports whether parking has a time limit.
func (b *builder) limited() bool { return b.in.ParkLimit > 0 }

// absence contains the two sets that remember an absence. The zero value remembers nothing.
type absence struct{ parking, gone Set }

func (b *builder) sets(suffix string, key SetKey, size uint32) absence {
	if !b.limited() {
		return absence{}
	}
	return absence{
		parking: b.set(Set{Name: "parking" + suffix, Key: key, Timeout: b.in.ParkLimit, Size: size}),
		gone:    b.set(Set{Name: "gone" + suffix, Key: key, Timeout: max(forgetAbsence, 2*b.in.ParkLimit), Size: size}),
	}
}

// park adds the chain that handles connections to the ports of a group.
func (b *builder) park(g parkGroup) {
	l := b.chain(g.chain, Filter, NoHook)
	sets := g.sets
	if sets.gone.Constant() {
		l.add("there is a listener", leave, socket)
		l.add(ReasonParked, drop)
		return
	}
	l.add("there is a listener", leave, socket, not(in(sets.gone)))
	l.add("the listener is back", onSet(Delete, sets.parking), socket)
	l.add("the listener is back", onSet(Delete, sets.gone), socket)
	l.add("the listener is back", leave, socket)
	b.absent(l, sets, leave)
}

// absent appends the rules for a connection without a listener; the last argument is the action after the time
// limit.
func (b *builder) absent(l *ruleList, sets absence, over Action) {
	l.add(ReasonParked, drop, in(sets.parking))
	l.add("the absence goes on", onSet(Update, sets.gone), in(sets.gone))
	l.add(ReasonOver, over, in(sets.gone))
	l.add("an absence begins", onSet(Add, sets.gone))
	l.add("an absence begins", onSet(Add, sets.parking))
	l.add(ReasonFirst, drop)
}

// tproxyAbsent appends the rules for a connection for which TPROXY found no listener. The
// connection must not bypass the proxy and reach the app.
func (b *builder) tproxyAbsent(l *ruleList) {
	port := b.in.InboundPort
	switch {
	case b.in.Park == ParkOff:
		if b.rs.Backend == IPTables {
			b.note("TPROXY with the iptables backend drops inbound connections that have no listener, also with --park=off")
		}
		l.add("no listener: to be refused", setMark(refuseMark))
		l.add("refused at input: it must not reach the app past the proxy", leave)
	case b.limited() && b.rs.Backend == NFTables:
		b.absent(l, b.sets(fmt.Sprintf("-%d", port), ByFamily, 0), jump("gone-for-good"))
		refuse := b.chain("gone-for-good", Mangle, NoHook)
		refuse.add("the proxy is gone: to be refused", setMark(refuseMark))
		refuse.add("refused at input: it must not reach the app past the proxy", leave)
	default:
		// The TPROXY of iptables itself drops the packet if there is no listener, so no later rule
		// can count it.
		if b.limited() {
			b.note("TPROXY with the iptables backend parks inbound connections without a time limit: callers wait for as long as they choose to")
		}
		l.add(ReasonParked, drop)
	}
}

// tproxyInput appends rules that delete the memory of an absence once the proxy has accepted a
// connection.
func (b *builder) tproxyInput(input *ruleList) {
	if b.rs.Backend != NFTables {
		return
	}
	sets := b.sets(fmt.Sprintf("-%d", b.in.InboundPort), ByFamily, 0)
	taken := []Match{syn, mark(b.in.TProxyMark)}
	input.add("the proxy has taken a connection", onSet(Delete, sets.parking), append(taken, in(sets.parking))...)
	input.add("the proxy has taken a connection", onSet(Delete, sets.gone), append(taken, in(sets.gone))...)
}

// release appends the rules that [Release] needs: a UDP packet from releasePort to a parked port
// ends the parking of that port, and is dropped. Its sender must be root or a user of the proxy.
// With ParkOnly every user may send it: no process of ours runs as the other mesh's user, and a
// release lets nothing bypass that mesh's proxy.
func (b *builder) release(groups []parkGroup) {
	out := b.chain("filter-output", Filter, Output)
	owners, words := b.owners()
	owners, words = append(owners, Match{Key: UID, Num: 0}), append(words, "root")
	may := func(who string, owner ...Match) {
		for _, addr := range releaseAddrs {
			out.add("may release ports: "+who, jump("release"), append([]Match{oif("lo"), to(addr), udp, sport(releasePort)}, owner...)...)
		}
	}
	if b.in.ParkOnly {
		may("every user")
	} else {
		for i, owner := range owners {
			may(words[i], owner)
		}
	}
	l := b.chain("release", Filter, NoHook)
	for _, g := range groups {
		if g.all && !b.hasSets() {
			continue // the group remembers no absence
		}
		if g.all {
			l.ports("status-ports", "status port %s is never parked", leave, statusPorts, udp)
		}
		releasable(l, g, "%s is released: refuse from now on", onSet(Update, g.sets.gone))
		releasable(l, g, "%s is released: parking ends", onSet(Delete, g.sets.parking))
		releasable(l, g, "%s is released: the drop tells the sender", drop)
	}
}

// releasable appends a rule for the ports of a group. The reason has a format verb for the ports.
func releasable(l *ruleList, g parkGroup, reason string, do Action) {
	if g.all {
		l.add(fmt.Sprintf(reason, "any other port"), do, udp)
		return
	}
	l.ports("parked-ports", fmt.Sprintf(reason, "port %s"), do, g.ports, udp)
}
