package capture

import (
	"fmt"
	"time"

	"outrider.dev/internal/contract"
)

// forgetAbsence is how long an absence of a listener is remembered after the last
// connection to its port. It bounds how long the memory can be out of date: if no
// connection arrives after the listener is back, only time clears it.
const forgetAbsence = 5 * time.Minute

// NFTables and IPTables are the names of the backends.
const (
	NFTables = "nftables"
	IPTables = "iptables"
)

// Reasons of the rules with counters that are read.
const (
	ReasonParked   = "no listener: parked, the caller's kernel retries"
	ReasonFirst    = "no listener: parked, and the time limit starts"
	ReasonOver     = "no listener for longer than the limit: refused"
	ReasonProofOut = "proof: an outbound connection arrived at the proxy's port"
	ReasonProofIn  = "proof: an inbound connection arrived at the proxy's port"
	ReasonProofTP  = "proof: an inbound connection arrived at the proxy"
)

// parking lets connections wait for ports that have no listener. For each port and
// family the kernel has an entry in up to two sets, with a timeout:
//
//	parking  the listener has been absent for less than ParkLimit
//	gone     the listener is absent, and a connection found that out less than forgetAbsence ago
//
// A connection that finds a listener deletes both. "gone" without "parking" means that
// the absence has lasted for longer than ParkLimit: connections are refused at once.
func (b *builder) parking() {
	in := b.in
	ports := in.parkedPorts()
	if in.Park == ParkOff || len(ports) == 0 && !in.ParkPorts.All {
		return
	}
	input := b.chain("input", Filter, Input)
	if in.captures() {
		b.proofArrivals(input)
	}
	if in.captures() && in.Mode == TProxyMode && b.limited() {
		b.tproxyInput(input)
	}
	b.parkInput(input, ports)
	for _, p := range ports {
		b.park(parkChain(p), b.sets(fmt.Sprint(p), ByFamily))
	}
	if in.ParkPorts.All {
		// The iptables match recent, which remembers, has addresses as keys, not ports.
		var sets absence
		if b.rs.Backend == NFTables {
			sets = b.sets("any", ByPort)
		} else if in.ParkLimit > 0 {
			b.note("--park-ports '*' has no time limit with the iptables backend: callers wait for as long as they choose to")
		}
		b.park("park-any", sets)
	}
	if b.limited() {
		b.release(ports)
	}
}

// parkInput sends new connections to the chains that park.
func (b *builder) parkInput(input *ruleList, ports []uint16) {
	in := b.in
	for _, p := range ports {
		reason := fmt.Sprintf("port %d: is there a listener?", p)
		input.add(reason, jump(parkChain(p)), syn, dport(p))
		if p == contract.DNSPort && in.captures() {
			input.add(reason, jump(parkChain(p)), udp, dport(p))
		}
	}
	if in.ParkPorts.All {
		input.ports("status port %d is never parked", leave, statusPorts, tcp)
		input.add("any other port: is there a listener?", jump("park-any"), syn)
	}
}

func parkChain(port uint16) string { return fmt.Sprintf("park-%d", port) }

// limited reports whether parking has a time limit.
func (b *builder) limited() bool { return b.in.ParkLimit > 0 }

// absence is the two sets that remember an absence. The zero value remembers nothing.
type absence struct{ parking, gone Set }

func (b *builder) sets(suffix string, key SetKey) absence {
	if !b.limited() {
		return absence{}
	}
	a := absence{
		parking: Set{Name: "parking-" + suffix, Key: key, Timeout: b.in.ParkLimit},
		gone:    Set{Name: "gone-" + suffix, Key: key, Timeout: max(forgetAbsence, 2*b.in.ParkLimit)},
	}
	if b.rs.Set(a.gone.Name) == nil {
		b.rs.Sets = append(b.rs.Sets, a.parking, a.gone)
	}
	return a
}

// park adds the chain that decides about a connection to a parked port.
func (b *builder) park(name string, sets absence) {
	l := b.chain(name, Filter, NoHook)
	if sets == (absence{}) {
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

// absent appends what happens without a listener; over is the action once the limit is over.
func (b *builder) absent(l *ruleList, sets absence, over Action) {
	l.add(ReasonParked, drop, in(sets.parking))
	l.add("the absence goes on", onSet(Update, sets.gone), in(sets.gone))
	l.add(ReasonOver, over, in(sets.gone))
	l.add("an absence begins", onSet(Add, sets.gone))
	l.add("an absence begins", onSet(Add, sets.parking))
	l.add(ReasonFirst, drop)
}

// tproxyAbsent appends what happens to a connection that TPROXY found no listener for.
// It must not go on to the app, past the proxy.
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
		b.absent(l, b.sets(fmt.Sprint(port), ByFamily), jump("gone-for-good"))
		refuse := b.chain("gone-for-good", Mangle, NoHook)
		refuse.add("the proxy is gone: to be refused", setMark(refuseMark))
		refuse.add("refused at input: it must not reach the app past the proxy", leave)
	default:
		// TPROXY of iptables drops by itself without a listener, so no later rule can count.
		if b.limited() {
			b.note("TPROXY with the iptables backend parks inbound connections without a time limit: callers wait for as long as they choose to")
		}
		l.add(ReasonParked, drop)
	}
}

// tproxyInput deletes the memory of an absence when the proxy has taken a connection.
func (b *builder) tproxyInput(input *ruleList) {
	if b.rs.Backend != NFTables {
		return
	}
	sets := b.sets(fmt.Sprint(b.in.InboundPort), ByFamily)
	taken := []Match{syn, mark(b.in.TProxyMark)}
	input.add("the proxy has taken a connection", onSet(Delete, sets.parking), append(taken, in(sets.parking))...)
	input.add("the proxy has taken a connection", onSet(Delete, sets.gone), append(taken, in(sets.gone))...)
}

// release appends the rules that [Release] needs: a UDP packet to a parked port, from
// one of the proxy's users or from root, ends the parking of that port. The packet
// itself needs no receiver.
func (b *builder) release(ports []uint16) {
	out := b.chain("filter-output", Filter, Output)
	owners, words := b.owners()
	owners, words = append(owners, Match{Key: UID, Num: 0}), append(words, "root")
	for i, owner := range owners {
		for _, addr := range releaseAddrs {
			out.add("may release ports: "+words[i], jump("release"), oif("lo"), to(addr), udp, owner)
		}
	}
	l := b.chain("release", Filter, NoHook)
	for _, p := range ports {
		sets := b.sets(fmt.Sprint(p), ByFamily)
		l.add(fmt.Sprintf("port %d is released: refuse from now on", p), onSet(Update, sets.gone), udp, dport(p))
		l.add(fmt.Sprintf("port %d is released: parking ends", p), onSet(Delete, sets.parking), udp, dport(p))
	}
}
