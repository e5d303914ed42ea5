package setup

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/ns"
)

// chosen opens the backends for a choice on the command line.
func chosen(t *testing.T, choice, variant string) []Backend {
	t.Helper()
	backends, err := Backends(choice, variant)
	if err != nil {
		t.Fatal(err)
	}
	return backends
}

// listing returns all iptables rules, and our rules in nftables. It omits the empty tables that the programs of
// iptables leave behind.
func listing(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, line := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save", "nft -s list table inet outrider"} {
		words := strings.Fields(line)
		text, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil && words[0] != "nft" { // the table may not exist
			t.Errorf("%s: %v", line, err)
		}
		for l := range strings.Lines(string(text)) {
			if words[0] == "nft" || strings.HasPrefix(l, "-A") {
				out.WriteString(l)
			}
		}
	}
	return out.String()
}

// Rules that iptables wrote are found even if its programs are missing. They cannot be removed then, so no other
// rules are written.
func TestRulesOfProgramsThatAreGone(t *testing.T) {
	ns.RequireRoot(t)
	for _, variant := range []string{"legacy", "nft"} {
		ns.New(t).Do(func() {
			in := everything(capture.ParkOn)
			in.Families = capture.DualStack
			if _, err := Capture(t.Context(), Options{Intent: in, Backends: chosen(t, capture.IPTables, variant)}); err != nil {
				t.Error(err)
				return
			}
			before := listing(t)
			var errs []error
			without(t, func() {
				for _, choice := range []string{"auto", capture.NFTables, capture.IPTables} {
					b := chosen(t, choice, "")
					_, capturing := Capture(t.Context(), Options{Intent: in, Backends: b})
					_, verifying := Verify(t.Context(), b, nil)
					errs = append(errs, capturing, verifying, Clean(t.Context(), b))
				}
			})
			for _, err := range errs {
				if err == nil || !strings.Contains(err.Error(), "rules of outrider are in iptables-"+variant) || !strings.Contains(err.Error(), "install iptables") {
					t.Errorf("iptables-%s: %v; want the place of the rules and what to install", variant, err)
				}
			}
			if after := listing(t); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// without runs f with an empty PATH. The function f runs on the caller's thread, and so in its namespace.
func without(t *testing.T, f func()) {
	path := os.Getenv("PATH")
	defer os.Setenv("PATH", path)
	os.Setenv("PATH", t.TempDir())
	f()
}

// If only another mesh has iptables rules, whatever their names, capture and clean need no iptables
// programs.
func TestRulesOfOthersNeedNoPrograms(t *testing.T) {
	ns.RequireRoot(t)
	ns.New(t).Do(func() {
		for _, line := range []string{
			"iptables-legacy -t nat -N ISTIO_OUTPUT",
			"iptables-legacy -t nat -A OUTPUT -m comment --comment OUTRIDER_OUTPUT -j ISTIO_OUTPUT",
			"ip6tables-nft -t nat -N MINE_OUTRIDER_",
			"nft add table ip outrider",
			"nft add chain ip outrider OUTRIDER_OUTPUT",
		} {
			words := strings.Fields(line)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", line, err, out)
			}
		}
		without(t, func() {
			b := chosen(t, "auto", "")
			if _, err := Capture(t.Context(), Options{Intent: everything(capture.ParkOn), Backends: b}); err != nil {
				t.Error(err)
			}
			if err := Clean(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	})
}

// The configured backend writes the rules, or the run fails.
func TestTheChosenBackendOrNone(t *testing.T) {
	ns.RequireRoot(t)
	ns.New(t).Do(func() {
		in := everything(capture.ParkOn)
		if _, err := Capture(t.Context(), Options{Intent: in, Backends: chosen(t, capture.NFTables, "")}); err != nil {
			t.Error(err)
			return
		}
		before := listing(t)
		without(t, func() {
			_, err := Capture(t.Context(), Options{Intent: in, Backends: chosen(t, capture.IPTables, "")})
			if err == nil || strings.Count(err.Error(), "iptables cannot be used") != 1 {
				t.Errorf("iptables without its programs: %v, want one error that says so", err)
			}
		})
		if after := listing(t); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		// If the chosen backend fails after it has written, the rules of the other backend are
		// restored.
		in.Mode, in.TProxyTable = capture.TProxyMode, 199
		if out, err := exec.Command("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", "199").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		_, err := Capture(t.Context(), Options{Intent: in, Backends: chosen(t, capture.IPTables, "")})
		if err == nil || strings.Contains(err.Error(), "putting back") {
			t.Errorf("a routing table in use: %v", err)
		}
		if after := listing(t); after != before {
			t.Errorf("before:\n%s\nafter a failure:\n%s", before, after)
		}
	})
}

// If capture cannot find out whether there are legacy rules, it writes no rules, because legacy rules might
// conflict with them.
func TestLegacyTablesThatCannotBeListed(t *testing.T) {
	ns.RequireRoot(t)
	ns.New(t).As(1337, 1337, func() {
		b := chosen(t, "auto", "")
		_, capturing := Capture(t.Context(), Options{Intent: everything(capture.ParkOn), Backends: b})
		_, verifying := Verify(t.Context(), b, nil)
		for _, err := range []error{capturing, verifying, Clean(t.Context(), b)} {
			if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "(it takes root)") {
				t.Errorf("%v, want what it takes", err)
			}
		}
	})
}
