package setup

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/ns"
)

var errInjected = errors.New("injected")

// faults makes one call of the backends fail, before or after it has an effect.
type faults struct {
	calls int
	at    int // number of the call that fails; 0: none
	after bool
}

func (f *faults) do(call func() error) error {
	f.calls++
	if f.calls != f.at {
		return call()
	}
	if f.after {
		_ = call()
	}
	return errInjected
}

type faulty struct {
	Backend
	*faults
}

func (b faulty) Apply(ctx context.Context, rs capture.Ruleset) error {
	return b.do(func() error { return b.Backend.Apply(ctx, rs) })
}

func (b faulty) Remove(ctx context.Context) error {
	return b.do(func() error { return b.Backend.Remove(ctx) })
}

func (b faulty) Read(ctx context.Context) (st capture.State, err error) {
	err = b.do(func() error {
		st, err = b.Backend.Read(ctx)
		return err
	})
	if errors.Is(err, errInjected) {
		st = capture.State{}
	}
	return st, err
}

// kernel returns everything in the namespace that capture may change, without counters, as sorted
// lines, since iptables may list its chains in any order.
func kernel(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, line := range []string{
		"nft -s list ruleset", "ip -4 rule", "ip -6 rule", "ip -4 route show table all", "ip -6 route show table all", "ip addr show lo",
	} {
		words := strings.Fields(line)
		text, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out.Write(text)
	}
	lines := slices.Sorted(strings.Lines(out.String()))
	return strings.Join(slices.DeleteFunc(lines, func(s string) bool { return strings.Contains(s, "proto kernel") }), "")
}

// Whichever call of a backend fails, with or without an effect, the kernel is then in its earlier state: it has
// the earlier rules and routing, or nothing. The next run works.
func TestEveryFailureRestores(t *testing.T) {
	transparent := everything(capture.ParkOn)
	transparent.Mode, transparent.Families = capture.TProxyMode, capture.DualStack
	redirected := everything(capture.ParkOff)
	redirected.Families, redirected.ExcludeOutboundPorts = capture.IPv4, ports(300)
	for name, tt := range map[string]struct {
		old *capture.Intent
		by  string
		new capture.Intent
	}{
		"nothing before":                     {nil, "", transparent},
		"transparent before":                 {&transparent, capture.NFTables, redirected},
		"redirected before":                  {&redirected, capture.NFTables, transparent},
		"transparent by iptables before":     {&transparent, capture.IPTables, redirected},
		"nothing is to be captured any more": {&redirected, capture.NFTables, capture.Intent{Mode: capture.NoneMode, Families: capture.IPv4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns.Pod(t).Do(func() {
				nft, ipt := backends(t)
				real := []Backend{nft, ipt}
				set := func() {
					all := real
					if tt.by == capture.IPTables {
						all = []Backend{ipt, nft}
					}
					if tt.old == nil {
						if err := Clean(t.Context(), real); err != nil {
							t.Fatal(err)
						}
					} else if _, err := Capture(t.Context(), Options{Intent: *tt.old, Backends: all, NoProof: true}); err != nil {
						t.Fatal(err)
					}
				}
				set()
				if tt.by == capture.IPTables { // the backend's own tables remain when its rules are removed
					if err := Clean(t.Context(), real); err != nil {
						t.Fatal(err)
					}
					set()
				}
				before := kernel(t)
				for at := 1; ; at++ {
					var f faults
					for _, f.after = range []bool{false, true} {
						f.calls, f.at = 0, at
						_, err := Capture(t.Context(), Options{Intent: tt.new, Backends: []Backend{faulty{nft, &f}, faulty{ipt, &f}}})
						if f.calls < at {
							if err != nil {
								t.Errorf("without a failure: %v", err)
							}
							break
						}
						if !errors.Is(err, errInjected) {
							t.Errorf("call %d, after its effect %t: error %v", at, f.after, err)
						}
						if diff := cmp.Diff(before, kernel(t)); diff != "" {
							t.Errorf("call %d, after its effect %t (-before +after):\n%s", at, f.after, diff)
							set()
						}
					}
					if f.calls < at {
						if at < 3 {
							t.Errorf("only %d calls", at-1)
						}
						return
					}
				}
			})
		})
	}
}

// failsOnce is a backend whose first transaction is applied and reported as an error.
type failsOnce struct {
	Backend
	failed *bool
}

func (b failsOnce) Apply(ctx context.Context, rs capture.Ruleset) error {
	err := b.Backend.Apply(ctx, rs)
	if !*b.failed {
		*b.failed = true
		err = errors.Join(err, errInjected)
	}
	return err
}

// A failed run does not restore damaged rules: they would capture only some of the intended
// connections.
func TestDamagedRulesAreNotRestored(t *testing.T) {
	ns.Pod(t).Do(func() {
		nft, ipt := backends(t)
		o := Options{Intent: everything(capture.ParkOn), Backends: []Backend{nft, ipt}}
		if _, err := Capture(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("nft", "flush", "chain", "inet", "outrider", "output").CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
		o.Backends = []Backend{failsOnce{nft, new(bool)}, ipt}
		if _, err := Capture(t.Context(), o); !errors.Is(err, errInjected) {
			t.Fatalf("error %v, want the injected one", err)
		}
		if state, err := nft.Read(t.Context()); !errors.Is(err, capture.ErrNone) {
			t.Errorf("%v, and there are rules:\n%s", err, state.Ruleset)
		}
	})
}

// A packet that arrived in an earlier attempt does not prove a later one.
func TestProofIsOfItsAttempt(t *testing.T) {
	ns.Pod(t).Do(func() {
		nft, ipt := backends(t)
		if _, err := Capture(t.Context(), Options{Intent: everything(capture.ParkOff), Backends: []Backend{nft, ipt}, NoProof: true}); err != nil {
			t.Fatal(err)
		}
		state, err := nft.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counted := func(out, in uint64) capture.State {
			s := state
			s.Packets = map[string][]uint64{}
			for _, c := range s.Chains {
				n := make([]uint64, len(c.Rules))
				for i, r := range c.Rules {
					switch r.Reason {
					case capture.ReasonProofOut:
						n[i] = out
					case capture.ReasonProofIn:
						n[i] = in
					}
				}
				s.Packets[c.Name] = n
			}
			return s
		}
		reads := 0
		proofs, err := prove(t.Context(), counted(0, 0), func() (capture.State, error) {
			if reads++; reads == 1 {
				return counted(10, 0), nil // only the outbound packet arrived
			}
			return counted(10, 10), nil // only the inbound packet arrived
		})
		if err == nil || reads != rounds {
			t.Errorf("%v, %v after %d rounds; want an error after %d", proofs, err, reads, rounds)
		}
	})
}

// If the routing table is already in use, a run fails after its rules are written.
func TestRoutingThatFailsRestores(t *testing.T) {
	transparent := everything(capture.ParkOn)
	transparent.Mode, transparent.Families = capture.TProxyMode, capture.DualStack
	redirected := everything(capture.ParkOn)
	redirected.Families = capture.IPv4
	for name, old := range map[string]*capture.Intent{"nothing before": nil, "redirected before": &redirected} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns.Pod(t).Do(func() {
				nft, ipt := backends(t)
				all := []Backend{nft, ipt}
				if old != nil {
					if _, err := Capture(t.Context(), Options{Intent: *old, Backends: all}); err != nil {
						t.Fatal(err)
					}
				}
				if out, err := exec.Command("ip", "-6", "route", "add", "local", "default", "dev", "lo", "table", "133").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				before := kernel(t)
				if _, err := Capture(t.Context(), Options{Intent: transparent, Backends: all}); err == nil || !strings.Contains(err.Error(), "in use") {
					t.Fatalf("error %v, want that the table is in use", err)
				}
				if diff := cmp.Diff(before, kernel(t)); diff != "" {
					t.Errorf("(-before +after):\n%s", diff)
				}
			})
		})
	}
}
