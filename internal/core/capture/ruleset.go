package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
)

// A Ruleset is everything that Outrider has in the packet filter of one network
// namespace. Backends write it, read it back and compare.
type Ruleset struct {
	Backend  string   // "nftables" or "iptables": the limits it was built for
	Families Families // what the rules apply to
	Sets     []Set
	Chains   []Chain
	Routing  Routing
}

// Families is a set of IP families.
type Families uint8

// The two families; their values can be or-ed.
const (
	IPv4 Families = 1 << iota
	IPv6
	DualStack = IPv4 | IPv6
)

// Has reports whether f contains all of g.
func (f Families) Has(g Families) bool { return f&g == g }

func (f Families) String() string {
	switch f {
	case IPv4:
		return "ipv4"
	case IPv6:
		return "ipv6"
	case DualStack:
		return "ipv4+ipv6"
	}
	return "none"
}

// Table is the stage of packet processing a chain belongs to, in iptables' words.
// nftables has the same stages as priorities (man 8 nft, "priority").
type Table string

// The stages, in the order in which a packet meets them.
const (
	Raw    Table = "raw"    // before connection tracking
	Mangle Table = "mangle" // marks and transparent proxying
	NAT    Table = "nat"    // first packet of a connection only
	Filter Table = "filter"
)

// Hook is the place in the network stack where a chain is called.
type Hook string

// The hooks in use. A chain without a hook is reached by Goto alone.
const (
	NoHook     Hook = ""
	Prerouting Hook = "prerouting"
	Input      Hook = "input"
	Output     Hook = "output"
)

// A Chain is a list of rules, tried in order. Chains call one another by Goto
// alone, which does not come back: so Return anywhere means "no further rule of
// ours for this packet", and the rules of other programs follow.
type Chain struct {
	Name  string
	Table Table
	Hook  Hook
	Rules []Rule
}

// A Rule does its action for packets that meet every match. Every rule counts
// its packets.
type Rule struct {
	Family Families // IPv4 or IPv6; 0 is both
	Match  []Match
	Action Action
	Reason string // for people; the rule's comment in the kernel
}

// Key names a property of a packet or of its socket.
type Key string

// What a rule can match. Numbers are in Match.Num, prefixes in Match.Prefix,
// names in Match.Name.
const (
	Protocol     Key = "proto"    // Num: 6 TCP, 17 UDP
	SYN          Key = "syn"      // TCP, and SYN without ACK, FIN, RST: a connection starts. Not: TCP, and no start
	InInterface  Key = "iif"      // Name; with + at its end, every name that begins so
	OutInterface Key = "oif"      // Name, likewise
	Source       Key = "saddr"    // Prefix
	Destination  Key = "daddr"    // Prefix
	SourcePort   Key = "sport"    // Num; goes with Protocol
	DestPort     Key = "dport"    // Num, or Num to Last (iptables; nftables has sets); goes with Protocol
	UID          Key = "uid"      // Num: user of the sending process; local output only
	GID          Key = "gid"      // Num: its primary group
	Mark         Key = "mark"     // Num: packet mark
	ConnMark     Key = "ctmark"   // Num: mark of the connection
	Original     Key = "original" // sent by the side that opened the connection
	Invalid      Key = "invalid"  // connection tracking cannot place the packet
	Socket       Key = "socket"   // there is a socket for the packet
	InSet        Key = "in"       // Name: the set that holds the packet's key, Num: the set's SetKey
)

// TCP and UDP are the values of Protocol in use.
const (
	TCP = 6
	UDP = 17
)

// A Match is one condition; Not negates it. It is comparable.
type Match struct {
	Key    Key
	Not    bool
	Num    uint32
	Last   uint32 // of a range that begins with Num; 0: Num alone
	Prefix netip.Prefix
	Name   string
}

// Range is the numbers of m.
func (m Match) Range() Interval[uint32] { return Interval[uint32]{m.Num, max(m.Num, m.Last)} }

// family is the family of packets that can meet m; 0 is both.
func (m Match) family() Families {
	switch {
	case m.Prefix.IsValid():
		return FamilyOf(m.Prefix.Addr())
	case m.Key == InSet:
		return SetKey(m.Num).Family()
	}
	return 0
}

// Verb is the kind of an action.
type Verb string

// The verbs. After SetMark, SetConnMark, Add, Update and Delete the next rule follows;
// the others end the chain.
const (
	Return      Verb = "return"   // no further rule of ours
	Drop        Verb = "drop"     // silently
	Reject      Verb = "reject"   // TCP reset to the sender
	Goto        Verb = "goto"     // Name: chain of the same table
	Redirect    Verb = "redirect" // Num: local port
	TProxy      Verb = "tproxy"   // Num: local port, Mark: for the routing policy; no effect without a listener
	Zone        Verb = "zone"     // Num: connection tracking zone
	SetMark     Verb = "mark"     // Mark
	SetConnMark Verb = "ctmark"   // Mark
	Add         Verb = "add"      // Name: set, Num: its SetKey; keeps the timeout of a key that is in it
	Update      Verb = "update"   // Name: set; restarts the timeout of the key
	Delete      Verb = "delete"   // Name: set
)

// An Action is what a rule does. It is comparable.
type Action struct {
	Verb Verb
	Num  uint32
	Mark uint32
	Name string
}

// Routing is what transparent proxying needs outside the packet filter. The
// zero value is nothing.
type Routing struct {
	Mark  uint32 // packets with this mark are delivered locally; 0 is none
	Table int    // by this routing table
	// SixSource adds ::6/128 to lo: the address from which the proxy passes
	// inbound connections on to the app. IPv4 needs none: 127.0.0.0/8 is local.
	SixSource bool
}

// recordChain holds one rule without effect. Its comment is the record.
const recordChain = "record"

// recordVersion changes with the reasons and the order of rules, by which the counters
// of rules are found.
const recordVersion = "outrider/3"

// Record identifies a rule set in the kernel: its version, backend and digest.
func (rs Ruleset) Record() string {
	return recordVersion + " " + rs.Backend + " " + rs.Digest()
}

// Digest is a short hash over every rule, set and route of rs, its record apart.
// Two rule sets with the same digest treat every packet alike.
func (rs Ruleset) Digest() string {
	h := sha256.New()
	h.Write([]byte(rs.String()))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// withRecord returns rs with the chain that records it.
func (rs Ruleset) withRecord() Ruleset {
	rs.Chains = append(rs.Chains, Chain{Name: recordChain, Table: Filter, Rules: []Rule{
		{Action: Action{Verb: Return}, Reason: rs.Record()},
	}})
	return rs
}

// Recorded returns the record that rs carries, and whether it is that of rs as it is
// now. It is not where rules were changed, or are those of another version. A rule set
// without a record is not ours, or incomplete.
func (rs Ruleset) Recorded() (record string, intact bool) {
	if c := rs.Chain(recordChain); c != nil && len(c.Rules) == 1 {
		record = c.Rules[0].Reason
	}
	return record, record == rs.Record()
}

// Chain returns the chain of that name, or nil.
func (rs Ruleset) Chain(name string) *Chain {
	for i := range rs.Chains {
		if rs.Chains[i].Name == name {
			return &rs.Chains[i]
		}
	}
	return nil
}

// Set returns the set of that name, or nil.
func (rs Ruleset) Set(name string) *Set {
	for i := range rs.Sets {
		if rs.Sets[i].Name == name {
			return &rs.Sets[i]
		}
	}
	return nil
}

// Len is the number of rules, the record apart.
func (rs Ruleset) Len() int {
	n := 0
	for _, c := range rs.Chains {
		if c.Name != recordChain {
			n += len(c.Rules)
		}
	}
	return n
}

// Empty reports whether rs has no effect.
func (rs Ruleset) Empty() bool {
	return len(rs.Chains) == 0 && rs.Routing == Routing{}
}
