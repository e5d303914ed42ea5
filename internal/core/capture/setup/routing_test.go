package setup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/ns"
)

func show(t *testing.T) string {
	t.Helper()
	out := ""
	for _, args := range []string{"-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all", "addr show lo"} {
		b, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, b)
		}
		out += string(b)
	}
	return out
}

func changeTo(t *testing.T, want capture.Routing) (c routingChange) {
	t.Helper()
	if err := c.add(true, want, capture.DualStack); err != nil {
		t.Fatal(err)
	}
	return c
}

// rulesWith returns rules that use a routing.
func rulesWith(r capture.Routing) capture.Ruleset {
	in := capture.Defaults()
	in.InboundPorts.All, in.Families = true, capture.DualStack
	if r.Mark != 0 {
		in.Mode, in.TProxyMark, in.TProxyTable = capture.TProxyMode, r.Mark, r.Table
	}
	rs, _ := capture.Build(in, capture.NFTables)
	return rs
}

func TestRoutingApplyReadRemove(t *testing.T) {
	ns.New(t).Do(func() {
		for _, other := range []string{"rule add fwmark 7 lookup 77", "route add local 0.0.0.0/0 dev lo table 77"} {
			if out, err := exec.Command("ip", strings.Fields(other)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", other, err, out)
			}
		}
		before := show(t)
		for _, want := range []capture.Routing{
			{Mark: 1337, Table: 133, SixSource: true},
			{Mark: 1337, Table: 133, SixSource: true}, // the same again
			{Mark: 9, Table: 1000, SixSource: true},
			{SixSource: true},
		} {
			c := changeTo(t, want)
			if got, err := readRouting(rulesWith(want)); err != nil || got != want {
				t.Errorf("before what was there is removed: readRouting() = %+v, %v; want %+v", got, err, want)
			}
			if err := c.finish(); err != nil || c.notes != nil {
				t.Fatalf("routing %+v: %v, %v", want, c.notes, err)
			}
			got, err := readRouting(rulesWith(want))
			if err != nil || got != want {
				t.Errorf("readRouting() = %+v, %v; want %+v", got, err, want)
			}
		}
		if err := removeRouting(true); err != nil {
			t.Fatal(err)
		}
		if after := show(t); after != before {
			t.Errorf("before:\n%s\nafter removeRouting:\n%s", before, after)
		}
	})
}

func TestRoutingSaysThatLoopbackIsDown(t *testing.T) {
	ns.Empty(t).Do(func() {
		before := show(t)
		var c routingChange
		err := c.add(true, capture.Routing{Mark: 1337, Table: 133}, capture.DualStack)
		if err == nil || !strings.Contains(err.Error(), "bring lo up") {
			t.Errorf("error %v; want a hint to bring lo up", err)
		}
		if err := c.undo(); err != nil {
			t.Error(err)
		}
		if after := show(t); after != before {
			t.Errorf("something is left behind:\n%s", after)
		}
	})
}

func TestRoutingWithoutIPv6(t *testing.T) {
	ns.New(t).Do(func() {
		for _, key := range []string{"all", "lo"} {
			if out, err := exec.Command("sysctl", "-w", "net.ipv6.conf."+key+".disable_ipv6=1").CombinedOutput(); err != nil {
				t.Fatalf("sysctl: %v: %s", err, out)
			}
		}
		if c := changeTo(t, capture.Routing{Mark: 1337, Table: 133, SixSource: true}); len(c.notes) == 0 {
			t.Error("no note that IPv6 is off")
		}
		if err := removeRouting(true); err != nil {
			t.Fatal(err)
		}
	})
}

// watched reports which routing is missing when a backend changes its rules.
type watched struct {
	Backend
	missing func(rs capture.Ruleset)
}

func (b *watched) Apply(ctx context.Context, rs capture.Ruleset) error {
	b.missing(rs)
	err := b.Backend.Apply(ctx, rs)
	b.missing(rs)
	return err
}

func (b *watched) Remove(ctx context.Context) error {
	b.missing(capture.Ruleset{})
	return b.Backend.Remove(ctx)
}

// Rules never exist without the routing that they use, whenever a run is killed: routing is added
// before the rules and removed after them.
func TestRoutingIsThereAsLongAsRules(t *testing.T) {
	plain := everything(capture.ParkOn)
	plain.Families = capture.DualStack
	transparent, other := plain, plain
	transparent.Mode, other.Mode = capture.TProxyMode, capture.TProxyMode
	other.TProxyMark, other.TProxyTable = 99, 199
	for _, name := range []string{capture.NFTables, capture.IPTables} {
		ns.New(t).Do(func() {
			before := show(t)
			real := chosen(t, name, "")
			wanted := capture.Ruleset{} // the rules of the previous run; none at first
			b := []Backend{&watched{real[0], func(rs capture.Ruleset) {
				for _, rs := range []capture.Ruleset{rs, wanted} {
					if got, err := readRouting(rs); err != nil || got != rs.Routing {
						t.Errorf("%s: routing %+v, %v, while rules are written that use %+v", name, got, err, rs.Routing)
					}
				}
			}}, real[1]}
			for _, in := range []capture.Intent{plain, transparent, other, transparent, plain} {
				report, err := Capture(t.Context(), Options{Intent: in, Backends: b})
				if err != nil {
					t.Error(err)
					return
				}
				if wanted = report.Ruleset; wanted.Routing.Mark == 0 && strings.Contains(show(t), "fwmark") {
					t.Errorf("routing that is not used is there: %s", show(t))
				}
			}
			st, err := readState(t.Context(), real[0])
			if err != nil || st.Routing != wanted.Routing {
				t.Errorf("routing %+v, %v, want %+v", st.Routing, err, wanted.Routing)
			}
			if err := Clean(t.Context(), b); err != nil {
				t.Error(err)
			}
			if after := show(t); after != before {
				t.Errorf("before:\n%s\nafter clean:\n%s", before, after)
			}
		})
	}
}

// meddled is a backend during whose runs another program acts, after the rules and the routing were read.
type meddled struct {
	Backend
	meddle func()
}

func (b *meddled) Keeps(capture.State) bool {
	b.meddle()
	return true
}

// A run that only puts back the routing says that it changed something, so that the node's daemon reports a repair.
func TestRoutingRemovedDuringARun(t *testing.T) {
	in := everything(capture.ParkOn)
	in.Mode = capture.TProxyMode
	for _, removed := range []string{"", "rule del fwmark 1337 lookup 133", "route flush table 133"} {
		ns.New(t).Do(func() {
			real := chosen(t, capture.NFTables, "")
			b := []Backend{&meddled{real[0], func() {
				if removed == "" {
					return
				}
				if out, err := exec.Command("ip", strings.Fields(removed)...).CombinedOutput(); err != nil {
					t.Errorf("ip %s: %v: %s", removed, err, out)
				}
			}}, real[1]}
			if _, err := Capture(t.Context(), Options{Intent: in, Backends: b}); err != nil {
				t.Error(err)
				return
			}
			report, err := Capture(t.Context(), Options{Intent: in, Backends: b})
			if err != nil || report.Unchanged != (removed == "") {
				t.Errorf("after ip %q during the run: unchanged %t, %v", removed, report.Unchanged, err)
			}
			if _, err := Verify(t.Context(), real, &in); err != nil {
				t.Error(err)
			}
		})
	}
}

// Surplus routing that a killed run left is harmless. Verify names it, and the next run or clean
// removes it.
func TestRoutingOfAKilledRunIsRemoved(t *testing.T) {
	plain := everything(capture.ParkOn)
	plain.Families = capture.DualStack
	killed := capture.Routing{Mark: 99, Table: 199, SixSource: true}
	ns.New(t).Do(func() {
		before := show(t)
		b := chosen(t, "auto", "")
		changeTo(t, killed)
		if _, err := Verify(t.Context(), b, nil); !errors.Is(err, capture.ErrNone) {
			t.Errorf("Verify without rules: %v", err)
		}
		if err := Clean(t.Context(), b); err != nil {
			t.Error(err)
		}
		if after := show(t); after != before {
			t.Errorf("before:\n%s\nafter clean:\n%s", before, after)
		}
		plain.Families = capture.IPv4
		if _, err := Capture(t.Context(), Options{Intent: plain, Backends: b}); err != nil {
			t.Error(err)
		}
		before = show(t)
		changeTo(t, killed)
		const want = "routing is left, and does nothing: the IPv4 rule for mark 0x63, to table 199, the IPv6 rule for mark 0x63, to table 199, the local IPv4 route of table 199, the local IPv6 route of table 199, ::6 on lo; run capture again"
		if _, err := Verify(t.Context(), b, &plain); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Verify with more routing than rules use: %v", err)
		}
		report, err := Capture(t.Context(), Options{Intent: plain, Backends: b})
		if err != nil || !report.Unchanged {
			t.Errorf("the same again: unchanged %t, %v", report.Unchanged, err)
		}
		if after := show(t); after != before {
			t.Errorf("before:\n%s\nafter the next capture:\n%s", before, after)
		}
	})
}

// FuzzParseEntry checks that any message of the kernel results in an error, an entry, or an
// address.
func FuzzParseEntry(f *testing.F) {
	f.Add(attribute(header(unix.AF_INET, 0, 0, 0, unix.FR_ACT_TO_TBL), unix.FRA_TABLE, number(133)))
	f.Add([]byte{unix.AF_INET, 0, 0, 0})
	f.Add(addressOfLo(sixSource))
	f.Fuzz(func(t *testing.T, m []byte) {
		for _, kind := range []*entryKind{policyRules, localRoutes} {
			if e, err := parseEntry(kind, m); err == nil && e.family != m[0] {
				t.Errorf("%+v, want the family of %v", e, m)
			}
		}
		_, _ = parseAddress(m)
	})
}

// A routing rule of another program that comes before ours, and takes the packets of TPROXY, fails the proof.
func TestRoutingOfOthersComesFirst(t *testing.T) {
	pod := ns.Pod(t)
	pod.Do(func() {
		in := everything(capture.ParkOn)
		in.Mode = capture.TProxyMode
		nft, ipt := backends(t)
		o := Options{Intent: in, Backends: []Backend{nft, ipt}}
		if _, err := Capture(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		pod.Sh("ip rule add pref 1000 lookup local; ip rule add pref 1 fwmark 1337 blackhole; ip rule del pref 0")
		_, capturing := Capture(t.Context(), o)
		_, verifying := Verify(t.Context(), o.Backends, &in)
		for _, err := range []error{capturing, verifying} {
			if err == nil || !strings.Contains(err.Error(), "comes first (ip rule, ip route show table 133)") {
				t.Errorf("%v; want what takes the packets", err)
			}
		}
	})
}

// A capture, or a check of one in place, leaves no socket open.
func TestNoDescriptorIsLeft(t *testing.T) {
	for _, mode := range []capture.Mode{capture.RedirectMode, capture.TProxyMode} {
		ns.Pod(t).Do(func() {
			in := everything(capture.ParkOn)
			in.Mode = mode
			nft, _ := backends(t)
			o := Options{Intent: in, Backends: []Backend{nft}}
			var open []int
			for range 3 { // the first run opens what the runtime of Go keeps
				if _, err := Capture(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				files, err := os.ReadDir("/proc/self/fd")
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, len(files))
			}
			if open[2] != open[0] {
				t.Errorf("mode %s: the descriptors after each run: %d", mode, open)
			}
		})
	}
}
