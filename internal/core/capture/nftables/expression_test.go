//go:build linux

package nftables

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/netlink"
	"outrider.dev/test/scenario"
)

// libraries maps the names of our expressions to the types of google/nftables for them.
var libraries = map[string]func() expr.Any{
	"meta":      func() expr.Any { return &expr.Meta{} },
	"ct":        func() expr.Any { return &expr.Ct{} },
	"socket":    func() expr.Any { return &expr.Socket{} },
	"payload":   func() expr.Any { return &expr.Payload{} },
	"bitwise":   func() expr.Any { return &expr.Bitwise{} },
	"cmp":       func() expr.Any { return &expr.Cmp{} },
	"lookup":    func() expr.Any { return &expr.Lookup{} },
	"dynset":    func() expr.Any { return &expr.Dynset{} },
	"counter":   func() expr.Any { return &expr.Counter{} },
	"immediate": func() expr.Any { return &expr.Immediate{} },
	verdict:     func() expr.Any { return &expr.Verdict{} },
	"redir":     func() expr.Any { return &expr.Redir{} },
	"reject":    func() expr.Any { return &expr.Reject{} },
	"tproxy":    func() expr.Any { return &expr.TProxy{} },
}

// The library google/nftables reads each expression of our rules, and writes what it has read in the same
// bytes.
func TestExpressionsAreThoseOfTheLibrary(t *testing.T) {
	rulesets := []capture.Ruleset{variety()}
	for _, s := range scenario.All {
		in, err := s.Intent()
		if err != nil {
			t.Fatal(err)
		}
		rs, _ := capture.Build(in, capture.NFTables)
		rulesets = append(rulesets, rs)
	}
	unseen := maps.Clone(libraries)
	for _, rs := range rulesets {
		for _, c := range rs.Chains {
			for _, r := range c.Rules {
				exprs, err := compile(r, inKernel)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range exprs {
					delete(unseen, e.name)
					ours := payload(t, func(b batch) { b.Message(newRule, create, "", func() { b.expression(e) }) })
					if theirs := throughLibrary(t, e, ours); !bytes.Equal(ours, theirs) {
						t.Errorf("rule %q, expression %s:\n%x, the library's is\n%x", r, e, ours, theirs)
					}
				}
			}
		}
	}
	if len(unseen) > 0 {
		t.Errorf("no rule has %q", slices.Sorted(maps.Keys(unseen)))
	}
}

// throughLibrary decodes an element of a list of expressions, and encodes it again.
func throughLibrary(t *testing.T, e *expression, element []byte) []byte {
	t.Helper()
	list := netlink.Attributes{Rest: element}
	list.Next()
	parts := netlink.Attributes{Rest: list.Value}
	parts.Next()
	parts.Next()
	theirs := libraries[e.name]()
	switch into := theirs.(type) {
	case *expr.Ct: // the library does not distinguish reads from writes
		into.Key, into.Register = expr.CtKey(e.number(unix.NFTA_CT_KEY)), reg
		into.SourceRegister = e.values[unix.NFTA_CT_SREG] != ""
	case *expr.TProxy: // the library cannot decode it
		into.Family, into.RegPort = unix.NFPROTO_UNSPEC, reg
	default:
		if err := expr.Unmarshal(unix.NFPROTO_INET, parts.Value, theirs); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
	}
	data, err := expr.Marshal(unix.NFPROTO_INET, theirs)
	if err != nil {
		t.Fatalf("%s: %v", e, err)
	}
	b := netlink.Batch{}
	b.Attribute(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, data)
	return b.Buf
}

// An expression belongs to another program if it has an attribute that our rules do not use and that is not
// zero, or a number of another size than ours.
func TestExpressionWithOtherAttributes(t *testing.T) {
	const other = 99
	meta := meta(unix.NFT_META_MARK)
	for _, tt := range []struct {
		kind  uint16
		value []byte
		want  *expression
	}{
		{other, []byte{0, 0, 0, 0}, meta},
		{other, []byte{0, 0, 0, 1}, &expression{name: "?meta"}},
		{unix.NFTA_META_SREG, make([]byte, 4), meta},
		{unix.NFTA_META_SREG, make([]byte, 8), &expression{name: "?meta"}},
		{unix.NFTA_META_SREG, []byte("nine bytes"), &expression{name: "?meta"}},
	} {
		b := batch{&netlink.Batch{}}
		b.Text(unix.NFTA_EXPR_NAME, "meta")
		b.Nest(unix.NFTA_EXPR_DATA, func() {
			b.Attribute(unix.NFTA_META_KEY, []byte{0, 0, 0, unix.NFT_META_MARK})
			b.Attribute(unix.NFTA_META_DREG, []byte{0, 0, 0, reg})
			b.Attribute(tt.kind, tt.value)
		})
		if got := decodeExpression(netlink.Attributes{Rest: b.Buf}); *got != *tt.want {
			t.Errorf("attribute %d = %x: %s, want %s", tt.kind, tt.value, got, tt.want)
		}
	}
}

// A process with NET_ADMIN may put an expression in any place of a rule. The mask of this one has the number of
// a payload's length, and is longer than a number.
func TestMaskWhereAConditionBegins(t *testing.T) {
	exprs := append(family(capture.IPv6), mask(bytes.Repeat([]byte{0xff}, 16), make([]byte, 16)))
	if r, _ := model(exprs); r.Action.Verb != unknown {
		t.Errorf("read as %q, want an unknown rule", r)
	}
}
