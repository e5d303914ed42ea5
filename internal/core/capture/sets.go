package capture

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// A Set is a collection of keys that rules look up. A set with a timeout is dynamic: it starts
// empty, and rules add and delete keys, so that the kernel keeps state without a process in user
// space. A set without a timeout is constant: it contains a list of the intent, so that the number
// of rules does not grow with the list.
type Set struct {
	Name    string
	Key     SetKey
	Timeout time.Duration // of a key, since it was added or last updated; 0: the set is constant
	Size    uint32        // maximum number of keys in a dynamic set by family and port; iptables has no limit
	// The elements of a constant set, as returned by [Join]: Addresses if its keys are addresses,
	// otherwise Numbers.
	Numbers   []Interval[uint32]
	Addresses []Interval[netip.Addr]
}

// Constant reports whether s has fixed elements.
func (s Set) Constant() bool { return s.Timeout == 0 }

// IPSet reports whether iptables needs ipset for s.
func (s Set) IPSet() bool { return s.Constant() || s.Key == ByFamilyPort }

// Len returns the number of elements in a constant set; an interval counts as one.
func (s Set) Len() int { return len(s.Numbers) + len(s.Addresses) }

// SetKey is the property of a packet that is looked up in a Set.
type SetKey uint8

// The keys. Dynamic sets use the first two, constant sets use the others.
const (
	ByFamily     SetKey = iota // one key for each family
	ByFamilyPort               // one key for each family and destination port
	ByPort                     // destination port
	ByUID                      // user of the sending process; local output only
	ByGID                      // primary group of the sending process
	BySource4
	BySource6
	ByDestination4
	ByDestination6
	// UnknownKey is the key of a set that another program wrote.
	UnknownKey
)

// SetKeys returns all keys.
func SetKeys() []SetKey {
	out := make([]SetKey, UnknownKey)
	for i := range out {
		out[i] = SetKey(i)
	}
	return out
}

// Family returns the family of packets that have the key; 0: both.
func (k SetKey) Family() Families {
	switch k {
	case BySource4, ByDestination4:
		return IPv4
	case BySource6, ByDestination6:
		return IPv6
	}
	return 0
}

// String returns the key in the syntax of nft.
func (k SetKey) String() string {
	if k >= UnknownKey {
		return "unknown"
	}
	return [...]string{
		ByFamily: "meta nfproto", ByFamilyPort: "meta nfproto . th dport", ByPort: "th dport",
		ByUID: "meta skuid", ByGID: "meta skgid",
		BySource4: "ip saddr", BySource6: "ip6 saddr", ByDestination4: "ip daddr", ByDestination6: "ip6 daddr",
	}[k]
}

// An Interval contains the keys from First to Last, inclusive.
type Interval[T any] struct{ First, Last T }

// String returns the interval in nft's syntax: a number, an address, a range of addresses with its
// prefix length, or two ends.
func (i Interval[T]) String() string {
	switch i := any(i).(type) {
	case Interval[uint32]:
		if i.First == i.Last {
			return strconv.FormatUint(uint64(i.First), 10)
		}
	case Interval[netip.Addr]:
		if i.First == i.Last {
			return i.First.String()
		}
		if p, ok := prefixOf(i.First, i.Last); ok {
			return p.String()
		}
	}
	return fmt.Sprintf("%v-%v", i.First, i.Last)
}

// elements returns the elements of a constant set as text.
func (s Set) elements() []string {
	out := make([]string, 0, s.Len())
	for _, i := range s.Numbers {
		out = append(out, i.String())
	}
	for _, i := range s.Addresses {
		out = append(out, i.String())
	}
	return out
}

// Elements returns the elements of a constant set in nft's syntax.
func (s Set) Elements() string { return strings.Join(s.elements(), ", ") }

func portsOf(list []uint16) (out []Interval[uint32]) {
	for _, p := range list {
		out = append(out, Interval[uint32]{uint32(p), uint32(p)})
	}
	return Join(ByPort, out)
}

func idsOf(list []uint32) (out []Interval[uint32]) {
	for _, n := range list {
		out = append(out, Interval[uint32]{n, n})
	}
	return Join(ByUID, out)
}

// Join sorts the numbers of a set, and merges intervals that overlap or touch. Numbers of users and
// groups stay single: nf_tables has no intervals of them.
func Join(k SetKey, list []Interval[uint32]) []Interval[uint32] {
	if k == ByUID || k == ByGID {
		return slices.Compact(sorted(list, cmp.Compare))
	}
	return join(list, cmp.Compare, func(n uint32) (uint32, bool) { return n + 1, n+1 != 0 })
}

// JoinAddresses does the same as [Join] for intervals of addresses of one family.
func JoinAddresses(list []Interval[netip.Addr]) []Interval[netip.Addr] {
	return join(list, netip.Addr.Compare, func(a netip.Addr) (netip.Addr, bool) { a = a.Next(); return a, a.IsValid() })
}

// sorted returns a sorted copy. It uses sort.Slice, whose code is in the binary once:
// slices.SortFunc takes 10 kB for each type, and the agent is in every pod.
func sorted[T any](list []Interval[T], compare func(a, b T) int) []Interval[T] {
	list = slices.Clone(list)
	sort.Slice(list, func(i, j int) bool { return compare(list[i].First, list[j].First) < 0 })
	return list
}

func join[T any](list []Interval[T], compare func(a, b T) int, next func(T) (T, bool)) []Interval[T] {
	list = sorted(list, compare)
	out := list[:0]
	for _, i := range list {
		if n := len(out); n > 0 {
			before := &out[n-1]
			after, more := next(before.Last)
			if !more || compare(i.First, after) <= 0 {
				if compare(i.Last, before.Last) > 0 {
					before.Last = i.Last
				}
				continue
			}
		}
		out = append(out, i)
	}
	return out
}

// rangesOf returns the address ranges of the prefixes of one family.
func rangesOf(list []netip.Prefix, f Families) (out []Interval[netip.Addr]) {
	for _, p := range list {
		if FamilyOf(p.Addr()) == f {
			out = append(out, Range(p))
		}
	}
	return JoinAddresses(out)
}

// Range returns the addresses of a prefix.
func Range(p netip.Prefix) Interval[netip.Addr] {
	p = p.Masked()
	return Interval[netip.Addr]{p.Addr(), lastOf(p)}
}

// lastOf returns the highest address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	for i := range b {
		b[i] |= byte(0xff >> min(8, max(0, bits-8*i)))
	}
	last := netip.AddrFrom16(b)
	if p.Addr().Is4() {
		return last.Unmap()
	}
	return last
}

// prefixOf returns the prefix with exactly the addresses from first to last, if there is one.
func prefixOf(first, last netip.Addr) (netip.Prefix, bool) {
	a, b := first.As16(), last.As16()
	common := 0
	for common < 16 && a[common] == b[common] {
		common++
	}
	length := 8 * common
	if common < 16 {
		length += bits.LeadingZeros8(a[common] ^ b[common])
	}
	p := netip.PrefixFrom(first, length-128+first.BitLen())
	return p, p.Masked().Addr() == first && lastOf(p) == last
}
