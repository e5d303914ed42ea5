// Package nftables writes capture's rule sets into the kernel with one netlink transaction, reads
// them back and removes them.
//
// All our rules and sets are in one table, so a new rule set replaces the old one atomically: the
// transaction deletes the table and creates it again, and every packet meets either the old rules
// or the new ones.
package nftables

import (
	"fmt"
	"strings"

	"outrider.dev/internal/core/capture"
)

// Table is the name of our table, of family inet.
const Table = "outrider"

// priorities maps tables to the priorities that nft uses for them (man 8 nft).
var priorities = map[capture.Table]int32{capture.Raw: -300, capture.Mangle: -150, capture.NAT: -100, capture.Filter: 0}

// A setType is the type that nf_tables has for sets with a given key.
type setType struct {
	name     string // in nft's syntax
	magic    uint32 // nft's number of the type; the kernel only stores it
	size     int    // of a key, in bytes
	interval bool   // elements are intervals; each is a pair of bounds
}

// setTypes are the set types by key (nft's enum datatypes; for a key of two parts, each part has 6
// bits of the number). Numbers of users and groups are in the machine's byte order, in which the
// kernel cannot sort them, so they cannot form intervals.
var setTypes = [capture.UnknownKey]setType{
	capture.ByFamily:       {"nf_proto", 2, 1, false},
	capture.ByFamilyPort:   {"nf_proto . inet_service", 2<<6 | 13, 8, false},
	capture.ByPort:         {"inet_service", 13, 2, true},
	capture.ByUID:          {"uid", 24, 4, false},
	capture.ByGID:          {"gid", 25, 4, false},
	capture.BySource4:      {"ipv4_addr", 7, 4, true},
	capture.ByDestination4: {"ipv4_addr", 7, 4, true},
	capture.BySource6:      {"ipv6_addr", 8, 16, true},
	capture.ByDestination6: {"ipv6_addr", 8, 16, true},
}

// sizeByFamily is the size of a set with one key for each family.
const sizeByFamily = 2

// Script returns rs as input for "nft -f": the same transaction, for people to read or run.
func Script(rs capture.Ruleset) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s\ndelete table inet %s\n", Table, Table)
	fmt.Fprintf(&b, "table inet %s {\n", Table)
	for _, s := range rs.Sets {
		t := setTypes[s.Key]
		fmt.Fprintf(&b, "\tset %s { type %s; ", s.Name, t.name)
		switch {
		case !s.Constant():
			fmt.Fprintf(&b, "size %d; flags dynamic,timeout; timeout %s; }\n", max(sizeByFamily, s.Size), s.Timeout)
			continue
		case t.interval:
			fmt.Fprint(&b, "flags interval; ")
		}
		fmt.Fprintf(&b, "elements = { %s } }\n", s.Elements())
	}
	for _, c := range rs.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Hook != capture.NoHook {
			fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy accept;\n", chainType(c), c.Hook, priorities[c.Table])
		}
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", line(r))
		}
		fmt.Fprintln(&b, "\t}")
	}
	fmt.Fprintln(&b, "}")
	return b.String()
}

func line(r capture.Rule) string {
	conditions := strings.TrimSuffix(r.String(), r.Action.String())
	return fmt.Sprintf("%scounter %s comment %q", conditions, r.Action, r.Reason)
}

// chainType returns nf_tables' type of a hooked chain. Marks that are set on output must cause a
// new routing decision, which only type route does.
func chainType(c capture.Chain) string {
	switch {
	case c.Table == capture.NAT:
		return "nat"
	case c.Table == capture.Mangle && c.Hook == capture.Output:
		return "route"
	}
	return "filter"
}
