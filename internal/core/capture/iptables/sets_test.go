package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
)

// long returns an intent with lists of n ports, and of n ranges of each family.
func long(n int) capture.Intent {
	in := capturing(capture.DualStack)
	for i := range n {
		in.ExcludeOutboundPorts = append(in.ExcludeOutboundPorts, uint16(20000+2*i))
		in.ExcludeOutboundRanges = append(in.ExcludeOutboundRanges,
			netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/25", i>>8, i&255)), netip.MustParsePrefix(fmt.Sprintf("fd00:%x::/48", 2*i)))
	}
	return in
}

// sets returns the names and lengths of the sets in the kernel, as the program ipset lists them.
func sets(t *testing.T) string {
	t.Helper()
	counts := map[string]int{}
	var names []string
	for line := range strings.Lines(command(t, "", "ipset", "save")) {
		switch words := strings.Fields(line); words[0] {
		case "create":
			names = append(names, words[1])
		case "add":
			counts[words[1]]++
		}
	}
	slices.Sort(names)
	for i, n := range names {
		names[i] = fmt.Sprintf("%s:%d", n, counts[n])
	}
	return strings.Join(names, " ")
}

// The number of rules does not grow with the lists; sets are created and removed with their rules.
func TestLongListsAreSets(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		rules := 0
		for i, n := range []int{16, 5000, 100} {
			want := apply(t, b, long(n))
			sameRules(t, want, read(t))
			if rules == 0 {
				rules = want.Len()
			}
			if want.Len() != rules {
				t.Errorf("%d rules with lists of %d, %d with shorter ones", want.Len(), n, rules)
			}
			g := string("aba"[i])
			list := fmt.Sprintf("outrider-%[1]s-excluded-out-ports:%[2]d outrider-%[1]s-excluded-ranges-ipv4:%[2]d outrider-%[1]s-excluded-ranges-ipv6:%[2]d", g, n)
			if got := sets(t); got != list {
				t.Errorf("sets %s, want %s", got, list)
			}
			if text := saved(t, b.Variant); strings.Count(text, "--match-set") != 4 {
				t.Errorf("rules that look up sets:\n%s", text)
			}
		}
		if err := b.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if got := sets(t); got != "" {
			t.Errorf("sets remain: %s", got)
		}
	})
}

// Lists of up to 15 elements become rules without ipset.
func TestShortListsAreRules(t *testing.T) {
	rs, _ := capture.Build(long(15), capture.IPTables)
	if slices.ContainsFunc(rs.Sets, capture.Set.Constant) {
		t.Error("lists of 15 elements are sets")
	}
	in := long(16)
	in.SingleRules = true
	if rs, _ = capture.Build(in, capture.IPTables); slices.ContainsFunc(rs.Sets, capture.Set.Constant) {
		t.Error("there is a set though it cannot be used")
	}
}

// Read detects a set that another program changed or that a killed capture left, and the next run
// replaces it.
func TestChangedSets(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		for _, change := range []string{
			"del outrider-a-excluded-out-ports 20002", "add outrider-a-excluded-out-ports 1",
			"add outrider-a-excluded-ranges-ipv4 11.0.0.0/8 -exist", "flush outrider-a-excluded-ranges-ipv6",
			"create outrider-left hash:ip", "create outrider-c-ports bitmap:port range 1-9",
		} {
			want := apply(t, b, long(16))
			if strings.Contains(sets(t), "outrider-b") { // the generations alternate
				want = apply(t, b, long(16))
			}
			if strings.Contains(change, "11.0.0.0") {
				command(t, "", "ipset", "del", "outrider-a-excluded-ranges-ipv4", "10.0.1.0/25")
			}
			command(t, "", "ipset", strings.Fields(change)...)
			if st, err := b.Read(t.Context()); err == nil && capture.Diff(want, st.Ruleset) == nil {
				t.Errorf("%s: not seen", change)
			}
			sameRules(t, apply(t, b, long(17)), read(t))
			if got := strings.Fields(sets(t)); len(got) != 3 {
				t.Errorf("%s: sets %s", change, got)
			}
			if err := b.Remove(t.Context()); err != nil {
				t.Error(err)
			}
			if got := sets(t); got != "" {
				t.Errorf("%s: sets remain: %s", change, got)
			}
		}
	})
}

// The memory of parking is one set for each family, however many ports are parked. So 2,000 ports need no more
// rules than 16.
func TestManyParkedPortsShareSets(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		rules := 0
		for _, n := range []int{16, 2000, 17} {
			in := capturing(capture.DualStack)
			in.ParkPorts.List = long(n).ExcludeOutboundPorts
			want := apply(t, b, in)
			sameRules(t, want, read(t))
			if rules == 0 {
				rules = want.Len()
			}
			if want.Len() != rules {
				t.Errorf("%d rules for %d ports, %d for 16", want.Len(), n, rules)
			}
			if got := strings.Fields(sets(t)); len(got) != 5 {
				t.Errorf("sets %s", got)
			}
		}
		// A set with a different timeout is not the one that the rules need.
		command(t, "", "ipset", "create", "outrider-t", "bitmap:port", "range", "0-65535", "timeout", "9")
		command(t, "", "ipset", "swap", "outrider-t", "outrider-a-parking-6")
		command(t, "", "ipset", "destroy", "outrider-t")
		if st, err := b.Read(t.Context()); err == nil {
			if _, ok := st.Recorded(); ok {
				t.Error("a set with another timeout is not seen")
			}
		}
		if err := b.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if got := sets(t); got != "" {
			t.Errorf("sets remain: %s", got)
		}
	})
}

// A failed run removes the new sets and keeps the old ones.
func TestFailureKeepsTheOldSets(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		old := apply(t, b, long(20))
		before := sets(t)
		failOnce(t, "iptables-"+b.Variant+"-restore")
		rs, _ := capture.Build(long(30), capture.IPTables)
		if err := b.Apply(t.Context(), rs); err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("Apply: %v", err)
		}
		sameRules(t, old, read(t))
		if got := sets(t); got != before {
			t.Errorf("sets %s, want %s", got, before)
		}
	})
}

// A capture that is killed before it writes rules leaves only its sets, which the next run or clean
// removes.
func TestSetsWithoutRules(t *testing.T) {
	newNamespace(t)
	rs, _ := capture.Build(long(16), capture.IPTables)
	if _, _, err := ipset.Create(rs); err != nil {
		t.Fatal(err)
	}
	if _, err := new(Backend).Read(t.Context()); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("Read: %v", err)
	}
	if err := new(Backend).Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if got := sets(t); got != "" {
		t.Errorf("sets remain: %s", got)
	}
}

// The printed script of a dry run creates the same rules.
func TestScriptMakesTheSameRules(t *testing.T) {
	newNamespace(t)
	in := long(16)
	in.ParkPorts.List = in.ExcludeOutboundPorts
	rs, _ := capture.Build(in, capture.IPTables)
	text, err := Script(rs)
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(text, "# for ") {
		if title, body, _ := strings.Cut(part, "\n"); title != "" {
			words := strings.Fields(title)
			command(t, body, words[0], words[1:]...)
		}
	}
	sameRules(t, rs, read(t))
}
