package capture

import (
	"fmt"
	"time"
)

// forgetAbsence is how long an absence of a listener is remembered after the last
// connection that met it. It bounds how long a memory can be wrong: a caller
// that gave up before the listener came back leaves one behind.
const forgetAbsence = 5 * time.Minute

// NFTables and IPTables are the names of the backends.
const (
	NFTables = "nftables"
	IPTables = "iptables"
)

// Reasons by which the counters of rules are found again.
const (
	ReasonParked   = "nobody listens: parked, the caller's kernel asks again"
	ReasonFirst    = "nobody listens: parked, and the time limit starts"
	ReasonOver     = "nobody has listened for too long: refused"
	ReasonProofOut = "proof: an outbound connection arrived at the proxy's port"
	ReasonProofIn  = "proof: an inbound connection arrived at the proxy's port"
	ReasonProofTP  = "proof of the inbound side: came as far as the proxy"
)

// parking makes connections wait to ports where nobody listens. Per port and
// family the kernel keeps two marks with an age:
//
//	parking  an absence has begun less than ParkLimit ago
//	gone     an absence has begun, and was met less than forgetAbsence ago
//
// A listener that is seen clears both. "gone" without "parking" means that the
// absence has lasted for longer than ParkLimit: connections are refused at once.
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
	for _, p := range ports {
		reason := fmt.Sprintf("port %d: is somebody listening?", p)
		input.add(reason, jump(parkChain(p)), syn, dport(p))
		if p == DNSPort && in.captures() {
			input.add(reason, jump(parkChain(p)), udp, dport(p))
		}
	}
	if in.ParkPorts.All {
		for _, p := range statusPorts {
			input.add(fmt.Sprintf("status port %d is never parked", p), leave, tcp, dport(p))
		}
		input.add("any other port: is somebody listening?", jump("park-any"), syn)
	}
	for _, p := range ports {
		b.park(parkChain(p), b.sets(fmt.Sprint(p), ByFamily))
	}
	if in.ParkPorts.All {
		// The iptables match that remembers is keyed by address alone.
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

func parkChain(port uint16) string { return fmt.Sprintf("park-%d", port) }

// limited reports whether parking has an end.
func (b *builder) limited() bool { return b.in.ParkLimit > 0 }

// absence names the two sets that remember that nobody listens. Zero: nothing is remembered.
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

// park fills the chain that decides about one connection to a parked port.
func (b *builder) park(name string, sets absence) {
	l := b.chain(name, Filter, NoHook)
	if sets == (absence{}) {
		l.add("somebody listens", leave, socket)
		l.add(ReasonParked, drop)
		return
	}
	l.add("somebody listens", leave, socket, not(in(sets.gone)))
	l.add("somebody listens again", onSet(Delete, sets.parking), socket)
	l.add("somebody listens again", onSet(Delete, sets.gone), socket)
	l.add("somebody listens again", leave, socket)
	b.absent(l, sets, leave)
}

// absent appends what happens when nobody listens; over is what then ends the waiting.
func (b *builder) absent(l *ruleList, sets absence, over Action) {
	l.add(ReasonParked, drop, in(sets.parking))
	l.add("the absence goes on", onSet(Update, sets.gone), in(sets.gone))
	l.add(ReasonOver, over, in(sets.gone))
	l.add("an absence begins", onSet(Add, sets.gone))
	l.add("an absence begins", onSet(Add, sets.parking))
	l.add(ReasonFirst, drop)
}

// tproxyAbsent is reached when the proxy took a connection not at all. It must not
// go on to the app, past the proxy.
func (b *builder) tproxyAbsent(l *ruleList) {
	port := b.in.InboundPort
	switch {
	case b.in.Park == ParkOff:
		if b.rs.Backend == IPTables {
			b.note("TPROXY with the iptables backend drops inbound connections that nobody takes, also with --park=off")
		}
		l.add("nobody listens: to be refused", setMark(refuseMark))
		l.add("refused at input: it must not reach the app past the proxy", leave)
	case b.limited() && b.rs.Backend == NFTables:
		b.absent(l, b.sets(fmt.Sprint(port), ByFamily), jump("gone-for-good"))
		refuse := b.chain("gone-for-good", Mangle, NoHook)
		refuse.add("the proxy is gone: to be refused", setMark(refuseMark))
		refuse.add("refused at input: it must not reach the app past the proxy", leave)
	default:
		// TPROXY of iptables drops by itself where nobody listens, so nothing can be counted behind it.
		if b.limited() {
			b.note("TPROXY with the iptables backend parks inbound connections without a time limit: callers wait for as long as they choose to")
		}
		l.add(ReasonParked, drop)
	}
}

// tproxyInput clears the memory of an absence when a connection is taken.
func (b *builder) tproxyInput(input *ruleList) {
	if b.rs.Backend != NFTables {
		return
	}
	sets := b.sets(fmt.Sprint(b.in.InboundPort), ByFamily)
	taken := []Match{syn, mark(b.in.TProxyMark)}
	input.add("the proxy takes connections", onSet(Delete, sets.parking), append(taken, in(sets.parking))...)
	input.add("the proxy takes connections", onSet(Delete, sets.gone), append(taken, in(sets.gone))...)
}

// release lets the proxy end the parking itself: one that leaves for good sends a
// packet to its own port, and nobody waits for it any longer. The kernel reads
// the packet; it goes nowhere, and nobody but the proxy's users is heard.
func (b *builder) release(ports []uint16) {
	out := b.chain("filter-output", Filter, Output)
	owners, words := b.owners()
	owners, words = append(owners, Match{Key: UID, Num: 0}), append(words, "root")
	for i, owner := range owners {
		for _, addr := range releaseAddrs {
			out.add("may say that a proxy has left for good: "+words[i], jump("release"), oif("lo"), to(addr), udp, owner)
		}
	}
	l := b.chain("release", Filter, NoHook)
	for _, p := range ports {
		sets := b.sets(fmt.Sprint(p), ByFamily)
		l.add(fmt.Sprintf("who listened on %d has left for good: refuse from now on", p), onSet(Update, sets.gone), udp, dport(p))
		l.add("heard", onSet(Delete, sets.parking), udp, dport(p))
	}
}
