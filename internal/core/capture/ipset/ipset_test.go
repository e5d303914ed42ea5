//go:build linux

package ipset

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
)

func TestRangesAreTheSameAsPrefixes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var list []capture.Interval[netip.Addr]
		for range 1 + r.IntN(5) {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(r.IntN(4)), byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))}), r.IntN(33))
			list = append(list, capture.Range(p))
		}
		list = capture.JoinAddresses(list)
		var again []capture.Interval[netip.Addr]
		for _, p := range prefixesOf(list) {
			if p.Bits() == 0 || p != p.Masked() {
				t.Fatalf("%s cannot be in a set", p)
			}
			again = append(again, capture.Range(p))
		}
		if again = capture.JoinAddresses(again); !slices.Equal(again, list) {
			t.Fatalf("%v, want %v", again, list)
		}
	}
}

// FuzzDecodeSet checks that any list of the kernel is read without a panic, and that a set that is
// read as ours has elements that can be written.
func FuzzDecodeSet(f *testing.F) {
	for _, s := range []Set{
		{Name: "outrider-a-ports", Type: bitmapPort},
		{Name: "outrider-a-four", Type: hashNet, Family: family4},
		{Name: "outrider-a-six", Type: hashNet, Family: family6},
	} {
		var b netlink.Batch
		b.Generic(unix.AF_INET, 0)
		b.Text(attrName, s.Name)
		b.Text(attrType, s.Type)
		byteAttribute(&b, attrFamily, s.Family)
		b.Attribute(unix.NLA_F_NESTED|attrEntries, []byte("\x1c\x00\x07\x80\x0c\x00\x01\x80\x08\x00\x01\x40\x0a\x00\x00\x00\x05\x00\x03\x00\x08\x00\x00\x00\x06\x00\x04\x40\x00\x01\x00\x00"))
		f.Add(b.Buf, true)
		f.Add(b.Buf, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, source bool) {
		var s Set
		if s.decode(data) != nil {
			return
		}
		set, err := s.Model(source)
		if err != nil {
			return
		}
		if g, _, _ := SplitName(s.Name); Name(g, set, capture.IPv4) != s.Name && Name(g, set, capture.IPv6) != s.Name {
			t.Errorf("set %q is called %q", s.Name, set.Name)
		}
		for _, p := range prefixesOf(set.Addresses) {
			if !p.IsValid() || p.Bits() == 0 {
				t.Errorf("a set with %s", p)
			}
		}
	})
}
