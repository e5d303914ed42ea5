package setup

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"outrider.dev/internal/capture"
	"outrider.dev/test/ns"
)

// ports are n ports that do not touch.
func ports(n int) (out []uint16) {
	for i := range n {
		out = append(out, uint16(20000+2*i))
	}
	return out
}

// ranges are n address ranges that do not touch, half of each family.
func ranges(n int) (out []netip.Prefix) {
	for i := range n {
		address := fmt.Sprintf("10.%d.%d.0/25", i>>8, i&255)
		if i%2 == 1 {
			address = fmt.Sprintf("fd01:%x::/33", i)
		}
		out = append(out, netip.MustParsePrefix(address))
	}
	return out
}

// Any list that the flags take is written, read back and proved, and the number of rules does
// not grow with it.
func TestLists(t *testing.T) {
	rules := map[string]int{}
	for _, n := range []int{2, 76, 5000} {
		for name, change := range map[string]func(*capture.Intent){
			"redirect": func(*capture.Intent) {},
			"tproxy":   func(in *capture.Intent) { in.Mode, in.DNS = capture.TProxyMode, capture.DNSAll },
			"ranges": func(in *capture.Intent) {
				in.OutboundRanges, in.InboundPorts = capture.Ranges{List: ranges(2 * n)}, capture.Ports{List: ports(n)}
			},
		} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				in := everything(capture.ParkRequire)
				in.Families = capture.DualStack
				in.ParkPorts.List, in.ExcludeOutboundPorts, in.ExcludeInboundPorts.List = ports(n), ports(n), ports(n)
				in.ExcludeOutboundRanges = ranges(2 * n)
				change(&in)
				if name == "ranges" {
					in.ExcludeOutboundRanges, in.ExcludeInboundPorts.List = nil, nil
				}
				ns.Pod(t).Do(func() {
					nft, ipt := backends(t)
					report, err := Capture(t.Context(), Options{Intent: in, Backends: []Backend{nft, ipt}})
					if err != nil {
						t.Fatal(err)
					}
					for _, p := range report.Proofs {
						if !p.Proved && p.Family == "ipv4" { // the pod has no route for IPv6
							t.Error(p)
						}
					}
					if _, err := Verify(t.Context(), []Backend{nft, ipt}, &in); err != nil {
						t.Error(err)
					}
					if rules[name] == 0 {
						rules[name] = report.Ruleset.Len()
					}
					if got := report.Ruleset.Len(); got != rules[name] {
						t.Errorf("%d rules; with shorter lists %d", got, rules[name])
					}
					in.ExcludeOutboundPorts = in.ExcludeOutboundPorts[1:]
					if _, err := Verify(t.Context(), []Backend{nft, ipt}, &in); err == nil || !strings.Contains(err.Error(), "excluded-out-ports") {
						t.Errorf("a port less: %v", err)
					}
				})
			})
		}
	}
}
