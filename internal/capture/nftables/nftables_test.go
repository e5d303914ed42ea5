package nftables

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/capture"
	"outrider.dev/test/ns"
)

// intents are the settings that between them make every kind of rule.
func intents(t *testing.T) map[string]capture.Intent {
	t.Helper()
	args := map[string]map[string]string{
		"default":        {"istio-service-cidr": "*", "istio-inbound-ports": "*"},
		"nothing":        {"istio-inbound-interception-mode": "NONE"},
		"transparent":    {"istio-service-cidr": "*", "istio-inbound-ports": "*", "istio-inbound-interception-mode": "TPROXY", "drop-invalid": "true"},
		"refusing":       {"istio-service-cidr": "*", "istio-inbound-ports": "*", "istio-inbound-interception-mode": "TPROXY", "park": "off"},
		"waiting":        {"istio-service-cidr": "*", "istio-inbound-ports": "*", "istio-inbound-interception-mode": "TPROXY", "park-limit": "0"},
		"names":          {"istio-service-cidr": "*", "redirect-dns": "true", "capture-all-dns": "true"},
		"lists":          {"istio-service-cidr": "10.0.0.0/8,fd00::/8,192.0.2.1", "istio-service-exclude-cidr": "10.1.0.0/16,fd00:1::/32", "istio-inbound-ports": "80,443", "istio-outbound-ports": "9000", "istio-local-outbound-ports-exclude": "25", "istio-local-exclude-ports": "443"},
		"owners":         {"istio-service-cidr": "*", "proxy-uid": "1337,1338", "proxy-gid": "1,2", "outbound-owner-groups": "1000,1001"},
		"interfaces":     {"istio-service-cidr": "*", "istio-exclude-interfaces": "eth1,net1", "kube-virt-interfaces": "virt0", "istio-inbound-ports": "*"},
		"ipv4 alone":     {"istio-service-cidr": "*", "istio-inbound-ports": "*", "families": "ipv4"},
		"ipv6 alone":     {"istio-service-cidr": "*", "istio-inbound-ports": "*", "families": "ipv6"},
		"parking alone":  {"park-only": "true", "park-ports": "8080"},
		"parking at all": {"istio-service-cidr": "*", "park-ports": "*"},
	}
	out := map[string]capture.Intent{}
	for name, values := range args {
		in := capture.Defaults()
		in.Families = capture.DualStack
		for _, f := range capture.Flags(&in, nil, nil) {
			if v, ok := values[f.Name]; ok {
				if err := f.Set(v); err != nil {
					t.Fatal(err)
				}
			}
		}
		out[name] = in
	}
	return out
}

func TestKernelGivesBackWhatWasWritten(t *testing.T) {
	for name, in := range intents(t) {
		want, _ := capture.Build(in, capture.NFTables)
		if want.Empty() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ns.New(t).Do(func() {
				got := applied(t, want)
				got.Routing = want.Routing
				if diff := capture.Diff(want, got.Ruleset); diff != nil {
					t.Errorf("read back (- missing, + too much):\n%s", strings.Join(diff, "\n"))
				}
				if record, intact := got.Recorded(); !intact || record != want.Record() {
					t.Errorf("Recorded() = %q, %t; want %q, true", record, intact, want.Record())
				}
			})
		})
	}
}

// nft is the other implementation of the same interface: it must load our script,
// and the kernel must then hold the same rules.
func TestScriptLoadsTheSameRules(t *testing.T) {
	for name, in := range intents(t) {
		want, _ := capture.Build(in, capture.NFTables)
		if want.Empty() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ns.New(t).Do(func() {
				nft := exec.Command("nft", "-f", "-")
				nft.Stdin = strings.NewReader(Script(want))
				if out, err := nft.CombinedOutput(); err != nil {
					t.Fatalf("nft -f: %v\n%s\n%s", err, out, Script(want))
				}
				b := open(t)
				got, err := b.Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got.Routing = want.Routing
				if diff := capture.Diff(want, got.Ruleset); diff != nil {
					t.Errorf("nft wrote other rules (- missing, + too much):\n%s", strings.Join(diff, "\n"))
				}
			})
		})
	}
}

func TestSecondRunReplacesTheFirst(t *testing.T) {
	all := intents(t)
	first, _ := capture.Build(all["default"], capture.NFTables)
	second, _ := capture.Build(all["transparent"], capture.NFTables)
	ns.New(t).Do(func() {
		applied(t, first)
		got := applied(t, second)
		got.Routing = second.Routing
		if diff := capture.Diff(second, got.Ruleset); diff != nil {
			t.Errorf("after the second run:\n%s", strings.Join(diff, "\n"))
		}
	})
}

func TestRemoveLeavesOtherTablesAlone(t *testing.T) {
	rs, _ := capture.Build(intents(t)["default"], capture.NFTables)
	ns.New(t).Do(func() {
		nft(t, "add table inet other; add chain inet other c { type filter hook input priority 0; }; add rule inet other c tcp dport 1 drop; add table ip outrider; add chain ip outrider x")
		before := nft(t, "list ruleset")
		applied(t, rs)
		b := open(t)
		for range 2 { // the second time there is nothing to remove
			if err := b.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(before, nft(t, "list ruleset")); diff != "" {
			t.Errorf("ruleset (-before +after):\n%s", diff)
		}
		if _, err := b.Read(t.Context()); !errors.Is(err, capture.ErrNone) {
			t.Errorf("Read after Remove: %v, want ErrNone", err)
		}
	})
}

func TestRuleOfAnotherProgramInOurTableShows(t *testing.T) {
	rs, _ := capture.Build(intents(t)["default"], capture.NFTables)
	ns.New(t).Do(func() {
		applied(t, rs)
		nft(t, "insert rule inet outrider output tcp dport 80 limit rate 1/second accept")
		got, err := open(t).Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, intact := got.Recorded(); intact {
			t.Error("a changed rule set counts as intact")
		}
		if diff := strings.Join(capture.Diff(rs, got.Ruleset), "\n"); !strings.Contains(diff, "+ output: unknown") {
			t.Errorf("Diff does not show the rule:\n%s", diff)
		}
	})
}

func applied(t *testing.T, rs capture.Ruleset) capture.State {
	t.Helper()
	b := open(t)
	if err := b.Apply(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	got, err := b.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func open(t *testing.T) *Backend {
	t.Helper()
	b, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func nft(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nft", script).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s", script, err, out)
	}
	return string(out)
}
