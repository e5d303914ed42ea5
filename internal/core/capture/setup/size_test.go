package setup

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/iptables"
	"outrider.dev/test/ns"
)

// ports returns n ports that do not touch one another.
func ports(n int) (out []uint16) {
	for i := range n {
		out = append(out, uint16(20000+2*i))
	}
	return out
}

// ranges returns n address ranges that do not touch one another, half of them of each family.
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

// Every list that the flags accept can be written, read back and proved. The number of rules does
// not grow with the list.
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

// A plain backend is the iptables backend without sets.
type plain struct{ *iptables.Backend }

func (plain) Sets() error { return errors.New("no sets here") }

// If iptables has no sets, a long list takes a rule for each element, and a note says so.
func TestListsWithoutSets(t *testing.T) {
	in := everything(capture.ParkRequire)
	in.ExcludeOutboundPorts, in.ExcludeOutboundRanges = ports(100), ranges(100)
	ns.Pod(t).Do(func() {
		_, ipt := backends(t)
		b := []Backend{plain{ipt.(*iptables.Backend)}}
		report, err := Capture(t.Context(), Options{Intent: in, Backends: b})
		if err != nil {
			t.Error(err)
			return
		}
		if report.Ruleset.Len() < 150 || !strings.Contains(strings.Join(report.Notes, "\n"), "no sets here") {
			t.Errorf("%d rules, notes %q", report.Ruleset.Len(), report.Notes)
		}
		if report, err := Verify(t.Context(), b, &in); err != nil || !strings.Contains(strings.Join(report.Notes, "\n"), "no sets here") {
			t.Errorf("Verify: notes %q, %v", report.Notes, err)
		}
	})
}
