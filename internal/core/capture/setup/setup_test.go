package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/ns"
)

// A limited backend is a real one that refuses rules as an older kernel does. The kernel of the
// tests supports all rules.
type limited struct {
	Backend
	cannot func(capture.Ruleset) bool
}

func (l limited) Apply(ctx context.Context, rs capture.Ruleset) error {
	if l.cannot(rs) {
		return fmt.Errorf("writing: %w", unix.ENOENT)
	}
	return l.Backend.Apply(ctx, rs)
}

func anything(capture.Ruleset) bool { return true }

func matchesSockets(rs capture.Ruleset) bool {
	return anyRule(rs, func(r capture.Rule) bool {
		return slices.ContainsFunc(r.Match, func(m capture.Match) bool { return m.Key == capture.Socket })
	})
}

func everything(park capture.ParkMode) capture.Intent {
	in := capture.Defaults()
	in.OutboundRanges.All, in.InboundPorts.All, in.Park = true, true, park
	return in
}

// backends returns the real backends.
func backends(t *testing.T) (nft, ipt Backend) {
	t.Helper()
	all, err := Backends("auto", "")
	if err != nil {
		t.Fatal(err)
	}
	return all[0], all[1]
}

func TestWhatTheKernelCannotDo(t *testing.T) {
	tests := map[string]struct {
		park       capture.ParkMode
		nft, ipt   func(capture.Ruleset) bool // rules that the backend refuses
		wantBy     string
		wantParked bool
		wantNote   string
		wantErr    string
	}{
		"everything is there": {park: capture.ParkRequire, wantBy: capture.NFTables, wantParked: true},
		"nf_tables cannot match sockets, iptables can": {
			park: capture.ParkOn, nft: matchesSockets, wantBy: capture.IPTables, wantParked: true,
		},
		"no backend can match sockets: on goes on, with a note": {
			park: capture.ParkOn, nft: matchesSockets, ipt: matchesSockets, wantBy: capture.NFTables,
			wantNote: "parking is off",
		},
		"no backend can match sockets: require fails": {
			park: capture.ParkRequire, nft: matchesSockets, ipt: matchesSockets, wantErr: "--park=require",
		},
		"no nf_tables":   {park: capture.ParkRequire, nft: anything, wantBy: capture.IPTables, wantParked: true},
		"no filter":      {park: capture.ParkOn, nft: anything, ipt: anything, wantErr: "no such file"},
		"parking is off": {park: capture.ParkOff, nft: matchesSockets, ipt: matchesSockets, wantBy: capture.NFTables},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns.New(t).Do(func() {
				nft, ipt := backends(t)
				all := []Backend{nft, ipt}
				if tt.nft != nil {
					all[0] = limited{nft, tt.nft}
				}
				if tt.ipt != nil {
					all[1] = limited{ipt, tt.ipt}
				}
				report, err := Capture(t.Context(), Options{Intent: everything(tt.park), Backends: all})
				if tt.wantErr != "" {
					if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
						t.Errorf("error %v, want %q in it", err, tt.wantErr)
					}
					nothingOfOurs(t)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if report.Ruleset.Backend != tt.wantBy || matchesSockets(report.Ruleset) != tt.wantParked {
					t.Errorf("written by %s, parking %t; want %s, %t", report.Ruleset.Backend, matchesSockets(report.Ruleset), tt.wantBy, tt.wantParked)
				}
				if notes := strings.Join(report.Notes, "\n"); !strings.Contains(notes, tt.wantNote) || tt.wantNote == "" && notes != "" {
					t.Errorf("notes %q, want %q", notes, tt.wantNote)
				}
			})
		})
	}
}

func nothingOfOurs(t *testing.T) {
	t.Helper()
	nft, ipt := backends(t)
	for _, b := range []Backend{nft, ipt} {
		if _, err := b.Read(t.Context()); !errors.Is(err, capture.ErrNone) {
			t.Errorf("%s: %v, want nothing of ours", b.Name(), err)
		}
	}
}

// Rules of other programs can defeat ours even if all of ours are in place. The proof detects this,
// and the earlier state is restored.
func TestProofSeesWhatReadingBackCannot(t *testing.T) {
	others := map[string]string{
		"outbound goes elsewhere first": "add table ip s; add chain ip s c { type nat hook output priority -150; }; add rule ip s c ip daddr 192.0.2.1 tcp dport 15002 redirect to :9",
		"outbound leaves by a mark":     "add table ip s; add chain ip s c { type filter hook output priority -50; }; add rule ip s c tcp dport 15001 meta mark set 1",
		"inbound is dropped":            "add table inet s; add chain inet s c { type filter hook input priority -10; }; add rule inet s c tcp dport 15006 drop",
	}
	for name, script := range others {
		for _, backend := range []string{capture.NFTables, capture.IPTables} {
			t.Run(name+", "+backend, func(t *testing.T) {
				t.Parallel()
				ns.Pod(t).Do(func() {
					all, err := Backends(backend, "")
					if err != nil {
						t.Fatal(err)
					}
					old := everything(capture.ParkOff)
					old.ExcludeOutboundPorts = []uint16{7777}
					want, err := Capture(t.Context(), Options{Intent: old, Backends: all})
					if err != nil {
						t.Fatal(err)
					}
					if out, err := exec.Command("nft", script).CombinedOutput(); err != nil {
						t.Fatalf("nft: %v: %s", err, out)
					}
					_, err = Capture(t.Context(), Options{Intent: everything(capture.ParkOn), Backends: all})
					if err == nil || !strings.Contains(err.Error(), "proof: ") || !strings.Contains(err.Error(), "another program's rules take the traffic: table "+strings.Fields(script)[2]+" s") {
						t.Fatalf("error %v, want a failed proof, and the table that takes the traffic", err)
					}
					got, err := all[0].Read(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					got.Routing = want.Ruleset.Routing
					if diff := capture.Diff(want.Ruleset, got.Ruleset); diff != nil {
						t.Errorf("the old rules are not back:\n%s", strings.Join(diff, "\n"))
					}
				})
			})
		}
	}
}

// If a packet has the same ports as an earlier proof, connection tracking sends it to that proof's
// destination. With eight source ports, such repetitions are frequent.
func TestProofFromThePortsOfAnEarlierOne(t *testing.T) {
	for range 8 {
		ns.Pod(t).Do(func() {
			if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40007"), 0); err != nil {
				t.Fatal(err)
			}
			nft, ipt := backends(t)
			in := everything(capture.ParkOff)
			for range 2 {
				if _, err := Capture(t.Context(), Options{Intent: in, Backends: []Backend{nft, ipt}}); err != nil {
					t.Fatal(err)
				}
				in.OutboundPort, in.InboundPort = 16001, 16006
			}
		})
	}
}

// Capture replaces rules that were changed, also if they are listed as before.
func TestCaptureReplacesDamagedRules(t *testing.T) {
	for _, script := range []string{
		"flush chain inet outrider output",
		"add table inet outrider { flags dormant; }",
		"add chain inet outrider output { policy drop; }",
		"add chain inet outrider input { policy drop; }",
		"add chain inet outrider prerouting { policy drop; }",
		"add chain inet outrider more { type filter hook forward priority 0; }",
		"add set inet outrider more { type inet_service; }",
	} {
		t.Run(script, func(t *testing.T) {
			ns.New(t).Do(func() {
				nft, ipt := backends(t)
				o := Options{Intent: everything(capture.ParkOn), Backends: []Backend{nft, ipt}}
				if _, err := Capture(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command("nft", script).CombinedOutput(); err != nil {
					t.Fatalf("nft: %v: %s", err, out)
				}
				if _, err := Verify(t.Context(), o.Backends, nil); err == nil {
					t.Error("Verify sees no damage")
				}
				report, err := Capture(t.Context(), o)
				if err != nil || report.Unchanged {
					t.Errorf("Capture over damaged rules: %v, unchanged %t", err, report.Unchanged)
				}
				if _, err := Verify(t.Context(), o.Backends, nil); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A sticky backend fails to remove its rules.
type sticky struct{ Backend }

func (sticky) Remove(context.Context) error { return errors.New("stuck") }

// If the rules of the other backend cannot be removed, no new rules are written.
func TestCaptureThatCannotReplaceChangesNothing(t *testing.T) {
	ns.New(t).Do(func() {
		nft, ipt := backends(t)
		old, err := Capture(t.Context(), Options{Intent: everything(capture.ParkOff), Backends: []Backend{ipt, nft}})
		if err != nil || old.Ruleset.Backend != capture.IPTables {
			t.Fatalf("%s: %v", old.Ruleset.Backend, err)
		}
		_, err = Capture(t.Context(), Options{Intent: everything(capture.ParkOn), Backends: []Backend{nft, sticky{ipt}}})
		if err == nil || !strings.Contains(err.Error(), "stuck") {
			t.Errorf("error %v, want the one of the removal", err)
		}
		if _, err := nft.Read(t.Context()); !errors.Is(err, capture.ErrNone) {
			t.Errorf("nftables: %v, want nothing of ours", err)
		}
		if _, err := Verify(t.Context(), []Backend{nft, ipt}, nil); err != nil {
			t.Errorf("the old rules: %v", err)
		}
	})
}
