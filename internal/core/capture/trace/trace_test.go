package trace

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/capture"
)

// The scenarios of test/scenario are traced in the tests of package capture.

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func sent(proto, uid, gid uint32, out, src, dst string) Conn {
	return Conn{Proto: proto, Src: at(src), Dst: at(dst), Out: out, UID: uid, GID: gid}
}

// Follow does not change its arguments.
func TestTraceLeavesItsArgumentsAlone(t *testing.T) {
	in := capture.Defaults()
	in.OutboundRanges.All = true
	rs, _ := capture.Build(in, capture.NFTables)
	pod := Pod{Remembered: []string{"parking-15001", "gone-15001", "a"}[:2]}
	before := rs.String()
	Follow(rs, sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80"), pod)
	if diff := cmp.Diff([]string{"parking-15001", "gone-15001", "a"}, pod.Remembered[:3]); diff != "" {
		t.Errorf("the pod (-before +after):\n%s", diff)
	}
	if rs.String() != before {
		t.Error("the rules are not what they were")
	}
}

// The kernel refuses rules that form a loop; a trace of them ends nevertheless.
func TestTraceOfACircleEnds(t *testing.T) {
	again := []capture.Rule{{Action: capture.Action{Verb: capture.Goto, Name: "a"}}}
	rs := capture.Ruleset{Families: capture.DualStack, Chains: []capture.Chain{
		{Name: "a", Table: capture.NAT, Hook: capture.Output, Rules: again},
	}}
	if got := Follow(rs, sent(capture.TCP, 0, 0, "eth0", "10.9.0.2:1", "10.9.0.1:2"), Pod{}); got.Fate != Passes {
		t.Errorf("Trace = %s", got)
	}
}

// A packet that arrives from outside has no owner. It meets neither a condition on the owner nor
// its negation: such rules belong to output.
func TestTraceHasNoOwnerOutsideOutput(t *testing.T) {
	var rules []capture.Rule
	for _, key := range []capture.Key{capture.UID, capture.GID} {
		for _, not := range []bool{false, true} {
			rules = append(rules, capture.Rule{
				Match:  []capture.Match{{Key: key, Num: 0, Not: not}},
				Action: capture.Action{Verb: capture.Drop},
			})
		}
	}
	rs := capture.Ruleset{Families: capture.DualStack, Chains: []capture.Chain{
		{Name: "a", Table: capture.Mangle, Hook: capture.Prerouting, Rules: rules},
		{Name: "b", Table: capture.Filter, Hook: capture.Input, Rules: rules},
	}}
	pod := Pod{Listeners: []Listener{{Proto: capture.TCP, Port: 2}}}
	for _, c := range []Conn{
		sent(capture.TCP, 0, 0, "lo", "10.9.0.2:1", "10.9.0.2:2"),
		{Proto: capture.TCP, Src: at("10.9.0.1:1"), Dst: at("10.9.0.2:2"), In: "eth0"},
	} {
		if got := Follow(rs, c, pod); got.Fate != Passes {
			t.Errorf("Trace = %s", got)
		}
	}
}

// FuzzQuery checks that any query is either refused with an error that names a flag, or can be
// followed.
func FuzzQuery(f *testing.F) {
	f.Add("10.96.0.10:80", "", "1000", "", "", "10.9.0.2,fd09::2", "15001")
	f.Add("[fd09::2]:80", "::6", "0:1337", "", "lo", "", "")
	f.Add("[fe80::1%eth0]:80", "", "1000", "", "", "", "")
	f.Add("[::ffff:10.9.0.2]:53", "127.0.0.6", "1000", "virt0", "eth0", "10.9.0.2", "53")
	in := capture.Defaults()
	in.OutboundRanges.All, in.InboundPorts.All, in.Families = true, true, capture.DualStack
	rs, _ := capture.Build(in, capture.NFTables)
	f.Fuzz(func(t *testing.T, to, from, as, iif, oif, local, listening string) {
		words := func(s string) []string {
			return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
		}
		q := Query{To: to, From: from, As: as, In: iif, Out: oif, Local: words(local), Listening: words(listening)}
		network, err := q.Network(Network{})
		if err == nil {
			var c Conn
			var pod Pod
			if c, pod, _, err = q.Parse(network); err == nil {
				if c.Src.Addr().Is4() != c.Dst.Addr().Is4() {
					t.Errorf("%v: of two families", c)
				}
				_ = Follow(rs, c, pod).String()
				return
			}
		}
		if !strings.HasPrefix(err.Error(), "--") {
			t.Errorf("error %q does not name the flag", err)
		}
	})
}
