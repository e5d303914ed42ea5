// Package trace follows a connection through the rules of a capture, as the kernel would, and
// records the rules that determine where it ends. It is used to explain rule sets, to choose
// proofs, and to test the scenarios. The suite test/netns compares it with the kernel.
package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/core/capture"
)

// A Conn is one packet of a connection, with its sender. Unless Established, it is the first
// packet.
type Conn struct {
	Proto    uint32 // TCP or UDP
	Src, Dst netip.AddrPort
	In       string // interface on which it arrived; "" if a process of the pod opens the connection
	// Out is the interface by which the packet would leave without the rules: "lo" if its
	// destination is the pod itself. For a packet that arrived, "" means the same.
	Out      string
	UID, GID uint32 // of the sending process; no meaning if the packet arrived
	Mark     uint32

	Established bool   // not the first packet, and the connection is older than the rules
	ConnMark    uint32 // set by rules at the first packet, whose path also decided the connection's translation
	Reply       bool   // sent by the side that did not open the connection
	Invalid     bool   // connection tracking finds no connection for the packet
}

func (c Conn) String() string {
	from := fmt.Sprintf("by uid %d gid %d, out of %s", c.UID, c.GID, c.Out)
	if c.In != "" {
		from = "in by " + c.In
	}
	if c.Mark != 0 {
		from += fmt.Sprintf(", mark %#x", c.Mark)
	}
	return fmt.Sprintf("%s %s -> %s, %s", capture.ProtocolName(c.Proto), c.Src, c.Dst, from)
}

// A Listener is a socket of the pod that accepts connections at every local address.
type Listener struct {
	Proto       uint32
	Port        uint16
	Transparent bool // also at every other address, which TPROXY requires
}

// A Pod contains the state of the pod on which rules depend.
type Pod struct {
	Listeners  []Listener
	Remembered []string // names of the dynamic sets that contain the packet's key; for sets by port: NAME-PORT
}

func (p Pod) listens(proto uint32, port uint16, transparent bool) bool {
	return slices.ContainsFunc(p.Listeners, func(l Listener) bool {
		return l.Proto == proto && l.Port == port && (l.Transparent || !transparent)
	})
}

// Fate is the end of a connection.
type Fate string

const (
	Passes     Fate = "passes"              // goes to its destination
	Redirected Fate = "redirected"          // accepted by a listener on another local port
	Taken      Fate = "taken transparently" // accepted by the proxy, addresses unchanged
	Parked     Fate = "parked"              // no listener yet: the caller's kernel retries
	Refused    Fate = "refused"             // the caller gets an error at once
	Dropped    Fate = "dropped"             // the caller gets no answer
)

// A Step is a rule whose conditions were all met.
type Step struct {
	Chain string
	Hook  capture.Hook // the hook at which the packet was, even if the chain of the rule has no hook
	Index int          // of the rule in its chain
	Rule  capture.Rule
}

// A Trace is the path of a connection: where it ends, and which rules led it there.
type Trace struct {
	Conn       Conn
	Fate       Fate
	Port       uint16 // the port where it ended: of the proxy, or of its destination
	Steps      []Step
	Mark       uint32   // final mark of the packet
	ConnMark   uint32   // mark of the connection after this packet
	Zone       uint32   // connection tracking zone
	Remembered []string // like Pod.Remembered, after this packet, sorted
}

// Follow follows c through the rules as the kernel would. It ignores the rules of other programs,
// and does not know the listeners outside of the pod.
func Follow(rs capture.Ruleset, c Conn, pod Pod) Trace {
	w := walk{rs: rs, pod: pod, c: c, local: c.Out == "lo", t: Trace{Conn: c, Fate: Passes}}
	w.memory = slices.Clone(pod.Remembered)
	w.run()
	w.t.Port = w.c.Dst.Port()
	if w.t.Fate == Taken {
		w.t.Port = w.proxyPort
	}
	w.t.Mark, w.t.ConnMark = w.c.Mark, w.c.ConnMark
	slices.Sort(w.memory)
	w.t.Remembered = slices.Compact(w.memory)
	return w.t
}

// String returns t for people: the packet, every step with its reason, the end.
func (t Trace) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, t.Conn)
	for _, s := range t.Steps {
		fmt.Fprintf(&b, "  %s: chain %s, rule %d: %s\n      %s\n", s.Hook, s.Chain, s.Index+1, s.Rule, s.Rule.Reason)
	}
	switch t.Fate {
	case Passes:
		fmt.Fprintf(&b, "passes: goes to %s, its destination\n", t.Conn.Dst)
	case Redirected, Taken:
		fmt.Fprintf(&b, "%s: the listener on local port %d gets it\n", t.Fate, t.Port)
	case Parked:
		fmt.Fprintf(&b, "parked: no listener on port %d yet; the caller waits\n", t.Port)
	default:
		fmt.Fprintf(&b, "%s: on port %d\n", t.Fate, t.Port)
	}
	return b.String()
}

// A walk is the state of a packet on its way through the rules.
type walk struct {
	rs  capture.Ruleset
	pod Pod
	t   Trace

	c         Conn // the packet, with the changes that rules have made
	hook      capture.Hook
	local     bool   // delivered to a socket of the pod
	moved     bool   // redirected
	taken     bool   // assigned to the proxy's socket by TPROXY
	proxyPort uint16 // of the proxy's socket
	memory    []string
}

// run takes the packet through the hooks in the kernel's order.
//
// complexity: the order matters, and each stage can end the packet's way.
func (w *walk) run() {
	if w.c.In == "" {
		if !w.stage(capture.Raw, capture.Output) || !w.stage(capture.Mangle, capture.Output) {
			return
		}
		// Routing by the mark happens before translation, and Out does not change.
		w.local = w.local || w.byMark()
		if !w.translate(capture.Output) || !w.stage(capture.Filter, capture.Output) || !w.local {
			return
		}
		// Over loopback, the packet loses the socket of its sender, but not its marks. Translation
		// was decided at output.
		w.c.In, w.c.Out = "lo", ""
		if !w.stage(capture.Raw, capture.Prerouting) || !w.stage(capture.Mangle, capture.Prerouting) {
			return
		}
	} else {
		w.local = w.local || w.c.Out == ""
		w.c.Out = ""
		if !w.stage(capture.Raw, capture.Prerouting) || !w.stage(capture.Mangle, capture.Prerouting) || !w.translate(capture.Prerouting) {
			return
		}
		if !w.local && !w.taken {
			return
		}
	}
	if w.stage(capture.Filter, capture.Input) {
		w.deliver()
	}
}

func (w *walk) byMark() bool { return w.c.Mark != 0 && w.c.Mark == w.rs.Routing.Mark }

// translate runs the NAT stage, which sees only the first packet of a connection.
func (w *walk) translate(hook capture.Hook) bool {
	if w.t.Conn.ConnMark != 0 || w.c.Reply || w.c.Invalid {
		return true
	}
	return w.stage(capture.NAT, hook)
}

// deliver delivers the packet to a socket of the pod.
func (w *walk) deliver() {
	switch {
	case w.taken:
		w.t.Fate = Taken
	case !w.socket() && w.t.Zone != 0 && (w.moved || w.dropsInvalid()):
		// The kernel's ICMP error is in no zone, so connection tracking does not find the
		// connection of the packet that it quotes. The error is then invalid, and is not translated
		// back.
		w.t.Fate = Dropped
	case !w.socket():
		w.t.Fate = Refused
	case w.moved:
		w.t.Fate = Redirected
	}
}

func (w *walk) dropsInvalid() bool {
	return slices.ContainsFunc(w.rs.Chains, func(c capture.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r capture.Rule) bool {
			return r.Action.Verb == capture.Drop && slices.Contains(r.Match, capture.Match{Key: capture.Invalid})
		})
	})
}

// socket reports whether there is a socket for the packet. A connection in progress
// has one.
func (w *walk) socket() bool {
	return w.taken || w.c.Established || w.c.Reply || w.pod.listens(w.c.Proto, w.c.Dst.Port(), false)
}

// stage calls the chains of a table at a hook. It reports whether the packet goes on.
func (w *walk) stage(table capture.Table, hook capture.Hook) bool {
	w.hook = hook
	if !w.rs.Families.Has(w.family()) && w.rs.Backend == capture.IPTables {
		return true // iptables has separate tables for each family; this family has none
	}
	for i := range w.rs.Chains {
		if c := &w.rs.Chains[i]; c.Table == table && c.Hook == hook && !w.call(c) {
			return false
		}
	}
	return true
}

// call tries the rules of c and of the chains to which it goes. It reports whether the packet goes
// on. The kernel refuses rules that form a loop.
func (w *walk) call(c *capture.Chain) bool {
	for range w.rs.Chains {
		next := ""
		for i, r := range c.Rules {
			if !w.meets(r) {
				continue
			}
			w.t.Steps = append(w.t.Steps, Step{Chain: c.Name, Hook: w.hook, Index: i, Rule: r})
			switch w.do(r) {
			case endChain:
				return true
			case endPacket:
				return false
			}
			if r.Action.Verb == capture.Goto {
				next = r.Action.Name
				break
			}
		}
		if c = w.rs.Chain(next); c == nil {
			return true
		}
	}
	return true
}

type effect int

const (
	goOn effect = iota
	endChain
	endPacket
)

// do applies the action of a rule.
func (w *walk) do(r capture.Rule) effect {
	a := r.Action
	switch a.Verb {
	case capture.Return:
		return endChain
	case capture.Zone:
		if w.t.Zone == 0 { // a packet is tracked once
			w.t.Zone = a.Num
		}
		return endChain
	case capture.Drop:
		w.t.Fate = Dropped
		if r.Reason == capture.ReasonParked || r.Reason == capture.ReasonFirst {
			w.t.Fate = Parked
		}
		return endPacket
	case capture.Reject:
		w.t.Fate = Refused
		return endPacket
	case capture.Redirect:
		w.redirect(uint16(a.Num))
		return endChain
	case capture.TProxy:
		return w.tproxy(a)
	case capture.SetMark:
		w.c.Mark = a.Mark
	case capture.SetConnMark:
		w.c.ConnMark = a.Mark
	case capture.Add, capture.Update:
		w.memory = append(w.memory, w.remembered(a.Name, capture.SetKey(a.Num)))
	case capture.Delete:
		key := w.remembered(a.Name, capture.SetKey(a.Num))
		w.memory = slices.DeleteFunc(w.memory, func(s string) bool { return s == key })
	}
	return goOn
}

// redirect sends the packet to the pod itself: to loopback, or to the address of the interface on
// which it arrived, which the model does not contain.
func (w *walk) redirect(port uint16) {
	addr := netip.IPv6Loopback()
	switch {
	case w.c.In != "" && w.local:
		addr = w.c.Dst.Addr()
	case w.c.In != "":
		addr = netip.Addr{}
	case w.family() == capture.IPv4:
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	w.c.Dst, w.local, w.moved = netip.AddrPortFrom(addr, port), true, true
}

func (w *walk) tproxy(a capture.Action) effect {
	if w.c.Established || w.pod.listens(w.c.Proto, uint16(a.Num), true) {
		w.taken, w.proxyPort, w.c.Mark = true, uint16(a.Num), a.Mark
		return endChain
	}
	if w.rs.Backend == capture.IPTables { // xt_TPROXY drops a packet without a listener
		w.t.Fate = Parked
		return endPacket
	}
	return goOn
}

func (w *walk) family() capture.Families { return capture.FamilyOf(w.c.Src.Addr().Unmap()) }

func (w *walk) meets(r capture.Rule) bool {
	if r.Family != 0 && r.Family != w.family() {
		return false
	}
	return !slices.ContainsFunc(r.Match, func(m capture.Match) bool { return !w.met(m) })
}

// met evaluates one condition. If the packet lacks the property, the condition is not met, whether
// negated or not.
//
// complexity: one case for each key, as in the lists of the backends.
func (w *walk) met(m capture.Match) bool {
	c := &w.c
	yes := false
	switch m.Key {
	case capture.Protocol:
		yes = c.Proto == m.Num
	case capture.SYN:
		if c.Proto != capture.TCP {
			return false
		}
		yes = !c.Established && !c.Reply && !c.Invalid
	case capture.InInterface:
		yes = sameInterface(c.In, m.Name)
	case capture.OutInterface:
		yes = sameInterface(c.Out, m.Name)
	case capture.Source, capture.Destination:
		addr := c.Src.Addr()
		if m.Key == capture.Destination {
			addr = c.Dst.Addr()
		}
		if addr.Unmap().BitLen() != m.Prefix.Addr().BitLen() {
			return false
		}
		yes = m.Prefix.Contains(addr.Unmap())
	case capture.SourcePort:
		yes = uint32(c.Src.Port()) == m.Num
	case capture.DestPort:
		r := m.Range()
		yes = r.First <= uint32(c.Dst.Port()) && uint32(c.Dst.Port()) <= r.Last
	case capture.UID, capture.GID:
		if w.hook != capture.Output {
			return false
		}
		yes = m.Key == capture.UID && c.UID == m.Num || m.Key == capture.GID && c.GID == m.Num
	case capture.Mark:
		yes = c.Mark == m.Num
	case capture.ConnMark:
		yes = c.ConnMark == m.Num
	case capture.Original:
		yes = !c.Reply
	case capture.Invalid:
		yes = c.Invalid
	case capture.Socket:
		yes = w.socket()
	case capture.InSet:
		var there bool
		if yes, there = w.inSet(m); !there {
			return false
		}
	default:
		return false
	}
	return yes != m.Not
}

// sameInterface reports whether name equals want, or starts with the prefix that want has before a
// +.
func sameInterface(name, want string) bool {
	if prefix, ok := strings.CutSuffix(want, "+"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return name == want
}

// remembered returns the entry of Pod.Remembered for the packet in a dynamic set.
func (w *walk) remembered(set string, key capture.SetKey) string {
	if key == capture.ByFamilyPort {
		return fmt.Sprintf("%s-%d", set, w.c.Dst.Port())
	}
	return set
}

// inSet looks the packet up in a set. The second result is false if the packet has no key for this
// set.
func (w *walk) inSet(m capture.Match) (yes, there bool) {
	key := capture.SetKey(m.Num)
	s := w.rs.Set(m.Name)
	if s == nil || !s.Constant() {
		return slices.Contains(w.memory, w.remembered(m.Name, key)), true
	}
	addr := w.c.Src.Addr().Unmap()
	var number uint32
	switch key {
	case capture.ByPort:
		number = uint32(w.c.Dst.Port())
	case capture.ByUID, capture.ByGID:
		if w.hook != capture.Output {
			return false, false
		}
		if number = w.c.UID; key == capture.ByGID {
			number = w.c.GID
		}
	case capture.ByDestination4, capture.ByDestination6:
		addr = w.c.Dst.Addr().Unmap()
		fallthrough
	case capture.BySource4, capture.BySource6:
		if !addr.IsValid() || capture.FamilyOf(addr) != key.Family() {
			return false, false
		}
		return contains(s.Addresses, addr, netip.Addr.Compare), true
	}
	return contains(s.Numbers, number, cmp.Compare), true
}

// contains reports whether an interval of a sorted list contains v.
func contains[T any](list []capture.Interval[T], v T, compare func(a, b T) int) bool {
	_, found := slices.BinarySearchFunc(list, v, func(i capture.Interval[T], v T) int {
		switch {
		case compare(i.Last, v) < 0:
			return -1
		case compare(i.First, v) > 0:
			return 1
		}
		return 0
	})
	return found
}
