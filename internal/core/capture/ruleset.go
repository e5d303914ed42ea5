package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// A Ruleset contains all rules and sets of Outrider in the packet filter of one network namespace.
// Backends write it, read it back and compare it.
type Ruleset struct {
	Backend  string   // "nftables" or "iptables": the rules respect its limits
	Families Families // families to which the rules apply
	Sets     []Set
	Chains   []Chain
	Routing  Routing
}

// Families is a set of IP families.
type Families uint8

// The two families; they can be combined with |.
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

// Table is the stage of packet processing to which a chain belongs, with its name in iptables. In
// nftables the stages are priorities (man 8 nft, "priority").
type Table string

// The stages, in the order in which a packet traverses them:
const (
	Raw    Table = "raw"    // before connection tracking
	Mangle Table = "mangle" // marks and transparent proxying
	NAT    Table = "nat"    // only the first packet of a connection
	Filter Table = "filter"
)

// Hook is the point of the network stack at which a chain is called.
type Hook string

// The hooks in use. A chain without a hook is reached only by Goto.
const (
	NoHook     Hook = ""
	Prerouting Hook = "prerouting"
	Input      Hook = "input"
	Output     Hook = "output"
)

// A Chain is a list of rules, tried in order. Chains reach one another only by Goto, which does not
// come back. So a Return in any chain ends our rules for this packet, and the rules of other
// programs follow.
type Chain struct {
	Name  string
	Table Table
	Hook  Hook
	Rules []Rule
}

// ValidName reports whether iptables can have a chain or a set of this name: words of lower case letters and digits,
// joined by dashes.
func ValidName(name string) bool {
	for word := range strings.SplitSeq(name, "-") {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return false
		}
	}
	return true
}

// A Rule applies its action to packets that meet all its conditions. Every rule counts its packets.
type Rule struct {
	Family Families // IPv4 or IPv6; 0: both
	Match  []Match
	Action Action
	Reason string // for people; also the rule's comment in the kernel
}

// Key names a property of a packet or of its socket.
type Key string

// The properties that a rule can match. Numbers are in Match.Num, prefixes in Match.Prefix, names
// in Match.Name.
const (
	Protocol     Key = "proto"    // Num: 6 TCP, 17 UDP
	SYN          Key = "syn"      // TCP with SYN and without ACK, FIN, RST: a connection starts. Negated: any other TCP packet
	InInterface  Key = "iif"      // Name; a + at its end makes it a prefix
	OutInterface Key = "oif"      // Name; a + at its end makes it a prefix
	Source       Key = "saddr"    // Prefix
	Destination  Key = "daddr"    // Prefix
	SourcePort   Key = "sport"    // Num; goes with Protocol
	DestPort     Key = "dport"    // Num, or Num to Last (iptables only; nftables uses sets); goes with Protocol
	UID          Key = "uid"      // Num: user of the sending process; local output only
	GID          Key = "gid"      // Num: primary group of the sending process
	Mark         Key = "mark"     // Num: packet mark
	ConnMark     Key = "ctmark"   // Num: mark of the connection
	Original     Key = "original" // sent by the side that opened the connection
	Invalid      Key = "invalid"  // connection tracking finds no connection for the packet
	Socket       Key = "socket"   // there is a socket for the packet
	InSet        Key = "in"       // Name: the set that contains the packet's key, Num: the set's SetKey
)

// Values of Protocol:
const (
	TCP = 6
	UDP = 17
)

// A Match is one condition; Not negates it. It is comparable.
type Match struct {
	Key    Key
	Not    bool
	Num    uint32
	Last   uint32 // end of a range that starts with Num; 0: only Num
	Prefix netip.Prefix
	Name   string
}

// Range returns the numbers that m matches.
func (m Match) Range() Interval[uint32] { return Interval[uint32]{m.Num, max(m.Num, m.Last)} }

// family returns the family of packets that can meet m; 0: both.
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

// The verbs. SetMark, SetConnMark, Add, Update and Delete continue with the next rule; the others
// end the chain.
const (
	Return      Verb = "return"   // skips the rest of our rules
	Drop        Verb = "drop"     // without an answer
	Reject      Verb = "reject"   // TCP reset to the sender
	Goto        Verb = "goto"     // Name: chain of the same table
	Redirect    Verb = "redirect" // Num: local port
	TProxy      Verb = "tproxy"   // Num: local port, Mark: for the routing policy; no effect if there is no listener
	Zone        Verb = "zone"     // Num: connection tracking zone
	SetMark     Verb = "mark"     // Mark
	SetConnMark Verb = "ctmark"   // Mark
	Add         Verb = "add"      // Name: set, Num: its SetKey; does not change the timeout of an existing key
	Update      Verb = "update"   // Name: set; restarts the timeout of the key
	Delete      Verb = "delete"   // Name: set
)

// An Action is the effect of a rule. It is comparable.
type Action struct {
	Verb Verb
	Num  uint32
	Mark uint32
	Name string
}

// Routing describes the routing that transparent proxying needs besides the packet filter. The zero
// value means none.
type Routing struct {
	Mark  uint32 // packets with this mark are delivered locally; 0: none
	Table int    // routing table for these packets
	// SixSource means that lo has the address ::6/128, from which the proxy passes inbound
	// connections on to the app. IPv4 needs no address for this: all of 127.0.0.0/8 is local.
	SixSource bool
}

// RouteProtocol is the protocol of the routing rules and routes of a [Routing] (ip -details rule). Linux assigns no
// program to this number (/etc/iproute2/rt_protos).
const RouteProtocol = 151

// recordChain contains one rule without effect, whose comment is the record.
const recordChain = "record"

// recordVersion must change whenever reasons of rules or their order change: the counters of rules are found by
// their reasons and order.
const recordVersion = "outrider/4"

// Record identifies a rule set in the kernel: its version, backend and digest.
func (rs Ruleset) Record() string {
	return recordVersion + " " + rs.Backend + " " + rs.Digest()
}

// Digest returns a short hash of all rules, sets and routes in rs, without the record. Two rule sets with the
// same digest treat every packet alike.
func (rs Ruleset) Digest() string {
	h := sha256.New()
	h.Write([]byte(rs.String()))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// withRecord returns rs with its record chain.
func (rs Ruleset) withRecord() Ruleset {
	rs.Chains = append(rs.Chains, Chain{Name: recordChain, Table: Filter, Rules: []Rule{
		{Action: Action{Verb: Return}, Reason: rs.Record()},
	}})
	return rs
}

// Recorded returns the record in rs, and whether it matches the content of rs. It does not match if
// rules were changed or come from another version. A rule set without a record is not ours, or is
// incomplete.
func (rs Ruleset) Recorded() (record string, intact bool) {
	if c := rs.Chain(recordChain); c != nil && len(c.Rules) == 1 {
		record = c.Rules[0].Reason
	}
	return record, record == rs.Record()
}

// Chain returns the chain with this name, or nil.
func (rs Ruleset) Chain(name string) *Chain {
	for i := range rs.Chains {
		if rs.Chains[i].Name == name {
			return &rs.Chains[i]
		}
	}
	return nil
}

// Set returns the set with this name, or nil.
func (rs Ruleset) Set(name string) *Set {
	for i := range rs.Sets {
		if rs.Sets[i].Name == name {
			return &rs.Sets[i]
		}
	}
	return nil
}

// Len returns the number of rules, without the record.
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
