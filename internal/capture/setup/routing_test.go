package setup

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
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
			{Mark: 1337, Table: 133, SixSource: true}, // again
			{Mark: 9, Table: 1000, SixSource: true},
			{SixSource: true},
		} {
			if notes, _, err := applyRouting(capture.Routing{SixSource: true}, want, capture.DualStack); err != nil || notes != nil {
				t.Fatalf("applyRouting(%+v): %v, %v", want, notes, err)
			}
			got, err := readRouting(capture.DualStack)
			if err != nil || got != want {
				t.Errorf("readRouting() = %+v, %v; want %+v", got, err, want)
			}
		}
		if err := removeRouting(capture.Routing{SixSource: true}); err != nil {
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
		_, _, err := applyRouting(capture.Routing{SixSource: true}, capture.Routing{Mark: 1337, Table: 133}, capture.DualStack)
		if err == nil || !strings.Contains(err.Error(), "bring lo up") {
			t.Errorf("error %v; want a hint to bring lo up", err)
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
		notes, _, err := applyRouting(capture.Routing{SixSource: true}, capture.Routing{Mark: 1337, Table: 133, SixSource: true}, capture.DualStack)
		if err != nil {
			t.Fatal(err)
		}
		if len(notes) == 0 {
			t.Error("no note that IPv6 is off")
		}
		if err := removeRouting(capture.Routing{SixSource: true}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzParseEntry: whatever the kernel sends is an error, an entry, or an address.
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
