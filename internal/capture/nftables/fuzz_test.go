package nftables

import (
	"bytes"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
)

// message is a rule as the kernel would send it.
func message(t testing.TB, chain string, r capture.Rule, sets map[string]*nftables.Set) []byte {
	t.Helper()
	exprs, err := compile(r, sets)
	if err != nil {
		t.Fatal(err)
	}
	var list []netlink.Attribute
	for _, e := range exprs {
		data, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: data})
	}
	nested, err := netlink.MarshalAttributes(list)
	if err != nil {
		t.Fatal(err)
	}
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_RULE_CHAIN, Data: append([]byte(chain), 0)},
		{Type: unix.NLA_F_NESTED | unix.NFTA_RULE_EXPRESSIONS, Data: nested},
		{Type: unix.NFTA_RULE_USERDATA, Data: comment(r.Reason)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attrs...)
}

// FuzzDecodeRule: whatever the kernel, or a process with NET_ADMIN, puts into our
// table is read without a panic, and what is read as one of our rules means just
// that: written again it reads the same.
func FuzzDecodeRule(f *testing.F) {
	in := capture.Defaults()
	in.Families = capture.DualStack
	in.OutboundRanges.All, in.InboundPorts.All, in.Mode, in.DNS = true, true, capture.TProxyMode, capture.DNSAll
	in.ParkPorts.All = true
	rs, _ := capture.Build(in, capture.NFTables)
	sets := map[string]*nftables.Set{}
	for _, s := range rs.Sets {
		sets[s.Name] = kernelSet(nil, s)
	}
	for _, c := range rs.Chains {
		for _, r := range c.Rules {
			f.Add(message(f, c.Name, r, sets))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entry, err := decodeRule(data)
		if err != nil || entry.rule.Action.Verb == unknown {
			return
		}
		for _, m := range entry.rule.Match {
			if m.Key == capture.InSet {
				sets[m.Name] = &nftables.Set{Name: m.Name}
			}
		}
		if a := entry.rule.Action; a.Verb == capture.Add || a.Verb == capture.Update || a.Verb == capture.Delete {
			sets[a.Name] = &nftables.Set{Name: a.Name}
		}
		if bytes.ContainsRune([]byte(entry.chain+entry.rule.Reason), 0) || len(entry.rule.Reason) > 250 {
			return
		}
		again, err := decodeRule(message(t, entry.chain, entry.rule, sets))
		if err != nil || again.rule.String() != entry.rule.String() || again.rule.Reason != entry.rule.Reason {
			t.Errorf("read %q (%s), wrote it, read %q (%s), %v", entry.rule, entry.rule.Reason, again.rule, again.rule.Reason, err)
		}
	})
}

func TestAbsenceOfASocketCannotBeMatched(t *testing.T) {
	r := capture.Rule{Match: []capture.Match{{Key: capture.Socket, Not: true}}, Action: capture.Action{Verb: capture.Return}}
	if exprs, err := compile(r, nil); err == nil {
		t.Errorf("compile(%s) = %v, want an error", r, exprs)
	}
}
