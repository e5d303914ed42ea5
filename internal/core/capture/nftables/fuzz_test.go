package nftables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

// payload returns one message of a batch without its netlink header.
func payload(t testing.TB, fill func(batch)) []byte {
	t.Helper()
	b := batch{&netlink.Batch{}}
	fill(b)
	if b.Err != nil {
		t.Fatal(b.Err)
	}
	m, _, err := netlink.Split(b.Buf)
	if err != nil {
		t.Fatal(err)
	}
	return m.Data
}

func ruleMessage(t testing.TB, chain string, r capture.Rule, ids setIDs) []byte {
	t.Helper()
	return payload(t, func(b batch) { b.rule(chain, r, ids) })
}

// variety returns a rule set with every kind of rule and set.
func variety() capture.Ruleset {
	in := capture.Defaults()
	in.Families = capture.DualStack
	in.InboundPorts.All, in.Mode, in.DNS = true, capture.TProxyMode, capture.DNSServers
	in.Nameservers = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::9")}
	in.ParkPorts.All = true
	in.ProxyUIDs, in.OwnerGroups = []uint32{0, 1, 1337}, capture.Groups{List: []uint32{1, 2}}
	in.ExcludeOutboundPorts = []uint16{1, 2, 3, 25, 65535}
	in.ExcludeInterfaces = []string{"eth+", "lo"}
	for _, p := range []string{"0.0.0.0/8", "10.0.0.0/24", "10.0.1.0/24", "10.0.4.1/32", "255.0.0.0/8", "::/16", "fd00::/64", "ff00::/8"} {
		in.OutboundRanges.List = append(in.OutboundRanges.List, netip.MustParsePrefix(p))
	}
	rs, _ := capture.Build(in, capture.NFTables)
	return rs
}

// FuzzDecodeRule checks that any rule in our table, from the kernel or from a process with
// NET_ADMIN, is read without a panic. If it is read as one of our rules, writing and reading it
// again returns the same rule.
func FuzzDecodeRule(f *testing.F) {
	rs := variety()
	ids := setIDs{}
	for _, s := range rs.Sets {
		ids[s.Name] = 0
	}
	for _, c := range rs.Chains {
		for _, r := range c.Rules {
			f.Add(ruleMessage(f, c.Name, r, ids))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, _ := netlink.AttributesOf(data)
		_, packets, _ := decodeCount(a)
		entry, err := decodeRule(a)
		if err == nil && packets != entry.packets && entry.rule.Action.Verb != unknown {
			t.Errorf("%d packets, counted alone %d", entry.packets, packets)
		}
		if err != nil || entry.rule.Action.Verb == unknown {
			return
		}
		ids := setIDs{entry.rule.Action.Name: 0}
		for _, m := range entry.rule.Match {
			ids[m.Name] = 0
		}
		if strings.ContainsRune(entry.chain+entry.rule.Reason, 0) || len(entry.rule.Reason) > 250 {
			return
		}
		a, _ = netlink.AttributesOf(ruleMessage(t, entry.chain, entry.rule, ids))
		again, err := decodeRule(a)
		if err != nil || again.rule.String() != entry.rule.String() || again.rule.Reason != entry.rule.Reason {
			t.Errorf("read %q (%s), wrote it, read %q (%s), %v", entry.rule, entry.rule.Reason, again.rule, again.rule.Reason, err)
		}
	})
}

// FuzzDecodeSet checks that any set and its elements are read without a panic. A constant set of a
// kind that we write does not change when it is written and read again.
func FuzzDecodeSet(f *testing.F) {
	for _, s := range variety().Sets {
		b := batch{&netlink.Batch{}}
		b.set(s, 1)
		if b.Err != nil {
			f.Fatal(b.Err)
		}
		set, rest, err := netlink.Split(b.Buf)
		if err != nil {
			f.Fatal(err)
		}
		var elements netlink.Message
		if len(rest) > 0 {
			if elements, _, err = netlink.Split(rest); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(set.Data, elements.Data)
	}
	decode := func(set, elements []byte) (capture.Set, error) {
		a, _ := netlink.AttributesOf(set)
		_, s, err := decodeSet(a)
		if err != nil || !s.Constant() || s.Key == capture.UnknownKey {
			return s, err
		}
		a, _ = netlink.AttributesOf(elements)
		bounds, err := decodeElements(nil, a, setTypes[s.Key].size)
		if err == nil {
			fill(&s, bounds)
		}
		return s, err
	}
	f.Fuzz(func(t *testing.T, set, elements []byte) {
		s, err := decode(set, elements)
		if err != nil || !s.Constant() || s.Key == capture.UnknownKey || s.Len() == 0 || s.Len() > maxElements || strings.ContainsRune(s.Name, 0) {
			return
		}
		b := batch{&netlink.Batch{}}
		b.set(s, 1)
		if b.Err != nil {
			return // the name is too long
		}
		first, rest, _ := netlink.Split(b.Buf)
		second, _, err := netlink.Split(rest)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(first.Data, second.Data)
		if diff := cmp.Diff(s, again, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
			t.Errorf("%v (-read first +read again):\n%s", err, diff)
		}
	})
}

// FuzzAnswer checks that any data from the socket is split into messages and attributes without a
// panic.
func FuzzAnswer(f *testing.F) {
	b := batch{&netlink.Batch{}}
	b.table(getTable, create)
	f.Add(b.Buf)
	f.Fuzz(func(t *testing.T, data []byte) {
		for len(data) > 0 {
			m, rest, err := netlink.Split(data)
			if err != nil {
				return
			}
			if len(rest) >= len(data) {
				t.Fatal("no progress")
			}
			_ = m.Errno()
			a, _ := netlink.AttributesOf(m.Data)
			r := reader{}
			_ = r.chain(a)
			data = rest
		}
	})
}

func TestAbsenceOfASocketCannotBeMatched(t *testing.T) {
	r := capture.Rule{Match: []capture.Match{{Key: capture.Socket, Not: true}}, Action: capture.Action{Verb: capture.Return}}
	if exprs, err := compile(r, nil); err == nil {
		t.Errorf("compile(%s) = %v, want an error", r, exprs)
	}
}
