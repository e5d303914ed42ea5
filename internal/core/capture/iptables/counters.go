//go:build linux

package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/nftables"
)

// count updates the counters of the rules from the kernel. It reports whether the kernel has the
// same number of rules in each chain as o.
func (o owned) count(p place) (same bool, err error) {
	if o.empty() {
		return true, nil
	}
	packets := map[string][]uint64{}
	if p.variant == nft {
		packets, err = nftCounters(p.family)
	} else {
		err = legacyCounters(p.family, packets)
	}
	if err != nil {
		return false, err
	}
	for _, t := range o { // any order: each chain is counted separately
		for _, c := range t.chains {
			rules := t.rules[c]
			if len(packets[c]) != len(rules) {
				return false, nil
			}
			for i := range rules {
				rules[i].packets = packets[c][i]
			}
		}
	}
	return true, nil
}

// nftCounters returns the packet counts of the rules in our chains.
func nftCounters(family capture.Families) (map[string][]uint64, error) {
	b, err := nftables.Open()
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return b.Counters(family, prefix)
}

// legacyCounters adds the packet counts of the rules in our chains to the given ones.
func legacyCounters(family capture.Families, packets map[string][]uint64) error {
	names, err := legacyTables(family)
	if err != nil {
		return err
	}
	for _, name := range names {
		entries, err := legacyEntries(family, name)
		if err == nil {
			err = decodeEntries(entries, family, packets)
		}
		if err != nil {
			return fmt.Errorf("legacy table %s of %s: %w", name, family, err)
		}
	}
	return nil
}

// Offsets of fields in struct ipt_entry and in struct ip6t_entry
// (linux/netfilter_ipv4/ip_tables.h), counted from the end of the address part, whose size differs.
const (
	entryTarget   = 4  // target_offset
	entryNext     = 6  // next_offset
	entryCounters = 12 // struct xt_counters, aligned to 8 bytes
	targetName    = 2  // struct xt_entry_target
)

// walk calls a function for each entry of a table, with the offsets of its target and of its counters.
func walk(entries []byte, family capture.Families, do func(entry []byte, target, counters int)) error {
	address := map[capture.Families]int{capture.IPv4: 84, capture.IPv6: 136}[family] // struct ipt_ip, struct ip6t_ip6
	counters := (address + entryCounters + 7) &^ 7
	for len(entries) > 0 {
		if len(entries) < counters+16 {
			return errors.New("it ends within a rule")
		}
		target := int(binary.NativeEndian.Uint16(entries[address+entryTarget:]))
		next := int(binary.NativeEndian.Uint16(entries[address+entryNext:]))
		if target < counters+16 || next < target+targetName || next > len(entries) {
			return fmt.Errorf("a rule of %d bytes with its target at %d", next, target)
		}
		do(entries[:next], target, counters)
		entries = entries[next:]
	}
	return nil
}

// decodeEntries adds the packet counts of the rules in our chains to the given ones. A chain
// consists of an entry with the target ERROR and the chain's name, the rules, and a final entry.
func decodeEntries(entries []byte, family capture.Families, packets map[string][]uint64) error {
	chain := ""
	return walk(entries, family, func(entry []byte, target, counters int) {
		if name, ok := bytes.CutPrefix(entry[target+targetName:], chainMark[:len(chainMark)-len(prefix)]); ok {
			// The previous entry was the final one of its chain.
			if list := packets[chain]; len(list) > 0 {
				packets[chain] = list[:len(list)-1]
			}
			name, _, _ = bytes.Cut(name, []byte{0})
			chain = string(name)
		} else if isOurs(chain) {
			packets[chain] = append(packets[chain], binary.NativeEndian.Uint64(entry[counters:]))
		}
	})
}
