package wire

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var away = Away{
	Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd96::/112"), netip.MustParsePrefix("10.0.0.7/32")},
	HTTP:     []byte("http"), TCP: []byte("tcp"), Refused: []byte("refused"), Grace: 1500 * time.Millisecond,
}

func TestAway(t *testing.T) {
	got, err := ParseAway(away.Marshal())
	if diff := cmp.Diff(away, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	many := Away{Services: make([]netip.Prefix, MaxServiceNetworks+1)}
	for i := range many.Services {
		many.Services[i] = away.Services[0]
	}
	for want, raw := range map[string][]byte{
		"more than 4096":                    many.Marshal(),
		"want 4 or 16 bytes of address":     AppendField(nil, 1, "10.96"),
		"of address and one of length":      AppendField(nil, 1, []byte{10, 96, 0, 0, 33}),
		"0a0b; want":                        AppendField(nil, 1, []byte{10, 11}),
		"field service: ; want":             AppendField(nil, 1, ""),
		"field 3: 4097 bytes; at most 4096": AppendField(nil, 3, bytes.Repeat([]byte{1}, maxTemplate+1)),
		"not a protobuf message":            {0xff},
		"131076 bytes; at most 131072":      AppendField(nil, 9, make([]byte, maxAway)),
	} {
		if _, err := ParseAway(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func FuzzAway(f *testing.F) {
	f.Add(away.Marshal())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := ParseAway(raw)
		if err != nil {
			return
		}
		again, err := ParseAway(a.Marshal())
		if diff := cmp.Diff(a, again, cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
	})
}
