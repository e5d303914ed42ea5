// Package ipset writes the sets of a rule set into the kernel's ipset, reads them back and removes them. Rules of
// iptables look them up with the module "set": bitmap:port for ports, hash:net for addresses. The memory of parking
// for many ports is a bitmap:port with a timeout for each family, which the target SET changes. Each such set takes
// 512 KiB.
//
// A set cannot be replaced together with the rules that refer to it. So each rule set has its own
// sets, with a letter in their names: its generation. They are created before the rules, and
// removed when no rule refers to them any more.
//
// The package uses netlink, in the network namespace of the calling thread, and not the program ipset. It does not
// change sets of other programs. If not all sets of a rule set can be created, it removes those that were. A set of
// ours that is not as it writes sets is an error of [Set.Model]. Reading does not load the kernel's module.
package ipset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/core/capture"
)

// prefix is the beginning of our sets' names in the kernel. The generation, a dash and the name in the model
// follow.
const prefix = "outrider-"

// maxName is IPSET_MAXNAMELEN without the final NUL.
const maxName = 31

// MaxTimeout is the longest timeout of a set. The kernel can count it in 32 bits at any clock rate.
const MaxTimeout = 24 * time.Hour

var families = []capture.Families{capture.IPv4, capture.IPv6}

// Name returns the kernel's name of a set for a family.
func Name(generation byte, s capture.Set, family capture.Families) string {
	name := prefix + string(generation) + "-" + s.Name
	if s.Key == capture.ByFamilyPort && family == capture.IPv6 {
		name += sixSuffix
	}
	return name
}

const sixSuffix = "-6"

// SplitName is the inverse of Name.
func SplitName(kernel string) (generation byte, name string, ok bool) {
	rest, ok := strings.CutPrefix(kernel, prefix)
	if !ok || len(rest) < 3 || rest[0] < 'a' || rest[0] > 'z' || rest[1] != '-' || !capture.ValidName(rest[2:]) {
		return 0, "", false
	}
	return rest[0], rest[2:], true
}

const (
	bitmapPort = "bitmap:port"
	hashNet    = "hash:net"
)

// The families of sets: NFPROTO_UNSPEC, NFPROTO_IPV4 and NFPROTO_IPV6 of linux/netfilter.h.
const (
	anyFamily = 0
	family4   = 2
	family6   = 10
)

// A Set is a set as the kernel describes it.
type Set struct {
	Name, Type string
	Family     uint8 // of linux/netfilter.h; 0: the set has ports
	Ports      []capture.Interval[uint32]
	Addresses  []capture.Interval[netip.Addr]
	Timeout    uint32 // of keys, in seconds; 0: none
	Foreign    bool   // the set contains something that we do not write
	entries    uint32 // number, by the set's header
}

// Model returns s as a set of the model, looked up by the source or the destination of packets.
func (s Set) Model(source bool) (capture.Set, error) {
	_, name, ok := SplitName(s.Name)
	out := capture.Set{Name: name, Numbers: capture.Join(capture.ByPort, s.Ports), Addresses: capture.JoinAddresses(s.Addresses)}
	if s.Type == bitmapPort && !source && s.Timeout > 0 && ok {
		return capture.Set{Name: strings.TrimSuffix(name, sixSuffix), Key: capture.ByFamilyPort, Timeout: time.Duration(s.Timeout) * time.Second}, nil
	}
	if out.Key, ok = s.key(source), ok && s.Timeout == 0 && !s.Foreign && out.Len() > 0; !ok || out.Key == capture.UnknownKey {
		return out, fmt.Errorf("set %s of type %s is not as we write it", s.Name, s.Type)
	}
	return out, nil
}

// key returns the key of a constant set.
func (s Set) key(source bool) capture.SetKey {
	for _, k := range []capture.SetKey{capture.ByPort, capture.BySource4, capture.BySource6, capture.ByDestination4, capture.ByDestination6} {
		kind, family, _ := kindOf(k)
		bySource := k == capture.BySource4 || k == capture.BySource6
		if kind == s.Type && (kind == bitmapPort || family == s.Family) && bySource == source {
			return k
		}
	}
	return capture.UnknownKey
}

// kindOf returns ipset's type and family of a set with this key.
func kindOf(k capture.SetKey) (kind string, family uint8, ok bool) {
	switch k {
	case capture.ByPort, capture.ByFamilyPort:
		return bitmapPort, anyFamily, true
	case capture.BySource4, capture.ByDestination4:
		return hashNet, family4, true
	case capture.BySource6, capture.ByDestination6:
		return hashNet, family6, true
	}
	return "", 0, false
}

// prefixesOf returns the addresses as prefixes. A set cannot contain a prefix of length 0.
func prefixesOf(list []capture.Interval[netip.Addr]) (out []netip.Prefix) {
	for _, i := range list {
		for a := i.First; ; {
			bits := a.BitLen()
			p := netip.PrefixFrom(a, bits)
			for bits > 1 {
				wider := netip.PrefixFrom(a, bits-1)
				if wider.Masked().Addr() != a || capture.Range(wider).Last.Compare(i.Last) > 0 {
					break
				}
				p, bits = wider, bits-1
			}
			out = append(out, p)
			last := capture.Range(p).Last
			if last == i.Last {
				break
			}
			a = last.Next()
		}
	}
	return out
}

// freeGeneration returns a generation that no set has.
func freeGeneration(names []string) byte {
	generation := byte('a')
	for slices.ContainsFunc(names, func(n string) bool { g, _, ok := SplitName(n); return ok && g == generation }) {
		generation++
	}
	return generation
}
