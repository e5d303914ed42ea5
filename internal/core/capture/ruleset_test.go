package capture_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/scenario"
)

var update = flag.Bool("update", false, "write the golden files anew")

// injected are the arguments of an init container that injection adds.
var injected = []string{"-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15020"}

func TestExplainIsAsWrittenDown(t *testing.T) {
	tests := map[string][]string{
		"tproxy.explain": {"-m", "TPROXY", "-i", "*", "-b", "*"},
		"dns.explain":    append(slices.Clone(injected), "--redirect-dns", "--capture-all-dns"),
	}
	for name, flags := range tests {
		t.Run(name, func(t *testing.T) {
			got := build(t, scenario.Scenario{Flags: flags}, capture.NFTables).Explain()
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("Explain (-want +got), -update if it is meant:\n%s", diff)
			}
		})
	}
}

// each calls f for the rule sets of all scenarios.
func each(t *testing.T, f func(t *testing.T, flags []string, rs capture.Ruleset)) {
	seen := map[string]bool{}
	for _, s := range scenario.All {
		for _, backend := range backends {
			if key := fmt.Sprint(backend, s.Flags, s.Nameservers); !seen[key] {
				seen[key] = true
				f(t, s.Flags, build(t, s, backend))
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("the scenarios have only %d rule sets", len(seen))
	}
}

func TestRulesetsAreWellFormed(t *testing.T) {
	each(t, func(t *testing.T, flags []string, rs capture.Ruleset) {
		for _, fault := range faults(rs) {
			t.Errorf("%s, flags %q: %s", rs.Backend, flags, fault)
		}
	})
}

func TestDiffFindsEveryLostRule(t *testing.T) {
	lists := [][]string{
		injected,
		{"-m", "TPROXY", "-i", "*", "-b", "*", "--drop-invalid", "-k", "virt0"},
		{"-i", "10.96.0.0/12,fd96::/16", "-b", "8080", "--redirect-dns", "--capture-all-dns", "--park-ports", "*"},
		{"--park-only", "--families", "ipv4"},
	}
	for _, flags := range lists {
		rs := build(t, scenario.Scenario{Flags: flags}, capture.NFTables)
		if diff := capture.Diff(rs, rs); len(diff) != 0 {
			t.Errorf("flags %q: Diff of the same = %q", flags, diff)
		}
		for i, c := range rs.Chains {
			if c.Name == "record" {
				continue
			}
			for j := range c.Rules {
				lost := rs
				lost.Chains = slices.Clone(rs.Chains)
				lost.Chains[i].Rules = slices.Delete(slices.Clone(c.Rules), j, j+1)
				line := "- " + c.Name + ": " + c.Rules[j].String() + " # " + c.Rules[j].Reason
				if diff := capture.Diff(rs, lost); !slices.Equal(diff, []string{line}) {
					t.Errorf("flags %q: Diff = %q, want %q", flags, diff, line)
				}
				if _, intact := lost.Recorded(); intact {
					t.Errorf("flags %q: the record is true though %s rule %d is lost", flags, c.Name, j+1)
				}
			}
		}
	}
}

func TestDiffFindsWhatElseDiffers(t *testing.T) {
	rs := build(t, scenario.Scenario{Flags: []string{"-m", "TPROXY", "-b", "*"}}, capture.NFTables)
	tests := map[string]struct {
		change func(*capture.Ruleset)
		want   []string
	}{
		"a rule that should not be there": {
			func(rs *capture.Ruleset) {
				c := rs.Chain("output")
				c.Rules = append(c.Rules, capture.Rule{Action: capture.Action{Verb: capture.Drop}, Reason: "mine"})
			},
			[]string{"+ output: drop # mine"},
		},
		"a set is gone": {
			func(rs *capture.Ruleset) { rs.Sets = rs.Sets[1:] },
			[]string{"- set status-ports by th dport", "- set status-ports by th dport: 15020-15021", "- set status-ports by th dport: 15090"},
		},
		"a set has another timeout": {
			func(rs *capture.Ruleset) { rs.Sets[1].Timeout++ },
			[]string{"- set parking-15006 by meta nfproto for 1m0s", "+ set parking-15006 by meta nfproto for 1m0.000000001s"},
		},
		"a set has other elements": {
			func(rs *capture.Ruleset) {
				rs.Sets[0].Numbers = []capture.Interval[uint32]{{First: 15020, Last: 15021}, {First: 15090, Last: 15091}}
			},
			[]string{"- set status-ports by th dport: 15090", "+ set status-ports by th dport: 15090-15091"},
		},
		"another route": {
			func(rs *capture.Ruleset) { rs.Routing.Table = 134 },
			[]string{"- routing mark 0x539 table 133 ::6 true", "+ routing mark 0x539 table 134 ::6 true"},
		},
		"another family": {
			func(rs *capture.Ruleset) { rs.Families = capture.IPv4 },
			[]string{"- backend nftables, families ipv4+ipv6", "+ backend nftables, families ipv4"},
		},
		"chains and sets in another order": {
			func(rs *capture.Ruleset) { slices.Reverse(rs.Chains); slices.Reverse(rs.Sets) },
			nil,
		},
		"another order": {
			func(rs *capture.Ruleset) { slices.Reverse(rs.Chain("output").Rules) },
			[]string{"the same rules in another order or number"},
		},
		"another reason": {
			func(rs *capture.Ruleset) { rs.Chain("park-15001").Rules[0].Reason = "why not" },
			[]string{
				"- park-15001: socket transparent <= 1 meta nfproto != @gone-15001 return # there is a listener",
				"+ park-15001: socket transparent <= 1 meta nfproto != @gone-15001 return # why not",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := rs
			got.Sets, got.Chains = slices.Clone(rs.Sets), slices.Clone(rs.Chains)
			for i := range got.Chains {
				got.Chains[i].Rules = slices.Clone(got.Chains[i].Rules)
			}
			tt.change(&got)
			if diff := cmp.Diff(tt.want, capture.Diff(rs, got)); diff != "" {
				t.Errorf("Diff (-want +got):\n%s", diff)
			}
			if record, intact := got.Recorded(); intact != (tt.want == nil) || record != rs.Record() {
				t.Errorf("Recorded = %q, %t", record, intact)
			}
		})
	}
}

func TestNothingToDoIsAnEmptyRuleset(t *testing.T) {
	for _, flags := range [][]string{{"-m", "NONE"}, {"-m", "NONE", "--park=off"}} {
		rs := build(t, scenario.Scenario{Flags: flags}, capture.NFTables)
		if !rs.Empty() {
			t.Errorf("flags %q give\n%s", flags, rs)
		}
		if record, intact := rs.Recorded(); intact || record != "" {
			t.Errorf("flags %q: Recorded = %q, %t", flags, record, intact)
		}
	}
}

func TestCount(t *testing.T) {
	rs := build(t, scenario.Scenario{Flags: []string{"-m", "TPROXY", "-b", "*"}}, capture.NFTables)
	s := capture.State{Ruleset: rs, Packets: map[string][]uint64{}}
	for _, c := range rs.Chains {
		for i := range c.Rules {
			s.Packets[c.Name] = append(s.Packets[c.Name], uint64(i+1))
		}
	}
	s.Packets["park-15006"] = s.Packets["park-15006"][:5] // a kernel that returned fewer counters
	// Rule 5 of both chains has ReasonParked, and rule 10 of park-15001 ReasonFirst. For TPROXY,
	// rules 4 and 9 of take have these reasons.
	if s.Count(capture.ReasonParked) != 5+5+4 || s.Parked() != 5+5+10+4+9 || s.Count("no such reason") != 0 {
		t.Errorf("parked %d, of them not first %d", s.Parked(), s.Count(capture.ReasonParked))
	}
}

var testServers = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::10")}

// Few parked ports work without ipset; with ipset, many ports do not need separate rules.
func TestParkedPortsTakeIPSet(t *testing.T) {
	in := capture.Defaults()
	in.InboundPorts.All, in.Families = true, capture.DualStack
	for i := range 14 { // in addition to the proxy's ports
		if rs, _ := capture.Build(in, capture.IPTables); slices.ContainsFunc(rs.Sets, capture.Set.IPSet) {
			t.Errorf("%d parked ports take ipset: %v", 2+i, rs.Sets)
		}
		in.ParkPorts.List = append(in.ParkPorts.List, uint16(20000+i))
	}
	if rs, _ := capture.Build(in, capture.IPTables); len(rs.Sets) != 2 || rs.Chain("park") == nil {
		t.Errorf("16 parked ports have the sets %v, want two", rs.Sets)
	}
	in.SingleRules = true
	if rs, _ := capture.Build(in, capture.IPTables); slices.ContainsFunc(rs.Sets, capture.Set.IPSet) {
		t.Errorf("without ipset: %v", rs.Sets)
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "9": true, "excluded-ranges-ipv4": true, "parking-6": true,
		"": false, "-": false, "-a": false, "a-": false, "a--b": false, "A": false, "a_b": false, "a b": false, "a\n": false, "é": false, "a\xff": false,
	} {
		if got := capture.ValidName(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}
