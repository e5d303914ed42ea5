package nftables

import (
	"os/exec"
	"strings"
	"testing"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/ns"
	"outrider.dev/test/scenario"
)

// The program nft must load each script, and the kernel must then contain the same rules as after
// Apply.
func TestScriptLoadsTheSameRules(t *testing.T) {
	pod := ns.New(t)
	seen := map[string]bool{}
	for _, s := range scenario.All {
		in, err := s.Intent()
		if err != nil {
			t.Fatal(err)
		}
		want, _ := capture.Build(in, capture.NFTables)
		if want.Empty() || seen[want.Digest()] {
			continue
		}
		seen[want.Digest()] = true
		pod.Do(func() {
			nft(t, Script(want))
			got := read(t)
			got.Routing = want.Routing
			if diff := capture.Diff(want, got.Ruleset); diff != nil {
				t.Errorf("flags %q (- missing, + unexpected):\n%s", s.Flags, strings.Join(diff, "\n"))
			}
			if record, intact := got.Recorded(); !intact || record != want.Record() {
				t.Errorf("flags %q: Recorded() = %q, %t; want %q, true", s.Flags, record, intact, want.Record())
			}
		})
	}
}

func TestRuleOfAnotherProgramInOurTableShows(t *testing.T) {
	in := capture.Defaults()
	in.Families, in.OutboundRanges.All = capture.DualStack, true
	rs, _ := capture.Build(in, capture.NFTables)
	ns.New(t).Do(func() {
		nft(t, Script(rs))
		nft(t, "insert rule inet outrider output tcp dport 80 limit rate 1/second accept")
		got := read(t)
		if _, intact := got.Recorded(); intact {
			t.Error("a changed rule set counts as intact")
		}
		if diff := strings.Join(capture.Diff(rs, got.Ruleset), "\n"); !strings.Contains(diff, "+ output: unknown") {
			t.Errorf("Diff does not show the rule:\n%s", diff)
		}
	})
}

func read(t *testing.T) capture.State {
	t.Helper()
	b, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	got, err := b.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func nft(t *testing.T, script string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft -f: %v\n%s\n%s", err, out, script)
	}
}
