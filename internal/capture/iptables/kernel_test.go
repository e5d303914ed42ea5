package iptables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/capture"
)

// newNamespace gives the calling goroutine, which must end with the test, a
// network namespace with a loopback interface.
func newNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace takes root")
	}
	runtime.LockOSThread() // for good: a thread in another namespace must not be used again
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Fatalf("unsharing the network namespace: %v", err)
	}
	command(t, "", "ip", "link", "set", "lo", "up")
}

func command(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, errOut.String())
	}
	return string(out)
}

// eachVariant runs a test with each iptables, in a namespace of its own.
func eachVariant(t *testing.T, test func(t *testing.T, b *Backend)) {
	for _, v := range variants {
		t.Run(string(v), func(t *testing.T) {
			newNamespace(t)
			test(t, &Backend{Variant: string(v)})
		})
	}
}

func apply(t *testing.T, b *Backend, in capture.Intent) capture.Ruleset {
	t.Helper()
	rs, _ := capture.Build(in, capture.IPTables)
	if err := b.Apply(t.Context(), rs); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	return rs
}

func read(t *testing.T) capture.State {
	t.Helper()
	st, err := new(Backend).Read(t.Context())
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return st
}

var noise = regexp.MustCompile(`(?m)^#.*\n|\[[0-9]+:[0-9]+\]`)

// saved is everything in both families of a variant, without times and counts.
func saved(t *testing.T, v string) string {
	t.Helper()
	text := command(t, "", "iptables-"+v+"-save") + command(t, "", "ip6tables-"+v+"-save")
	return noise.ReplaceAllString(text, "")
}

func TestOneCurrentRuleSetWhateverWasThere(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		if _, err := b.Read(t.Context()); !errors.Is(err, capture.ErrNone) {
			t.Fatalf("Read of nothing: %v", err)
		}
		guests := capturing(capture.DualStack)
		guests.VirtualInterfaces, guests.ExcludeInterfaces = []string{"virt0"}, []string{"eth1"}
		guests.OwnerGroups = capture.Groups{List: []uint32{5, 3, 8}}
		guests.OutboundRanges = capture.Ranges{List: prefixes("0.0.0.0/0", "fd00::/8", "10.0.0.0/8", "::/0")}
		parkAll := capturing(capture.DualStack)
		parkAll.ParkPorts.All = true
		parkOnly := capture.Defaults()
		parkOnly.Families, parkOnly.ParkOnly = capture.IPv6, true
		for i, in := range []capture.Intent{
			capturing(capture.DualStack), capturing(capture.DualStack), // the same twice
			withDNS(capture.DualStack), guests, withTProxy(capture.DualStack), parkAll,
			capturing(capture.IPv4), parkOnly, withDNS(capture.DualStack),
		} {
			want := apply(t, b, in)
			t.Logf("intent %d", i)
			sameRules(t, want, read(t))
		}
		apply(t, b, capture.Intent{Families: capture.DualStack, Mode: capture.NoneMode, Park: capture.ParkOff})
		if _, err := b.Read(t.Context()); !errors.Is(err, capture.ErrNone) {
			t.Fatalf("Read after a rule set without rules: %v", err)
		}
	})
}

func TestFromOneVariantToTheOther(t *testing.T) {
	newNamespace(t)
	in := capturing(capture.DualStack)
	for _, v := range []string{"legacy", "nft", "legacy", ""} {
		want := apply(t, &Backend{Variant: v}, in)
		sameRules(t, want, read(t)) // Read refuses rules in both
	}
	if text := saved(t, "legacy"); strings.Contains(text, "OUTRIDER") {
		t.Errorf("legacy rules remain:\n%s", text)
	}
}

func TestLookingMakesNoLegacyTables(t *testing.T) {
	newNamespace(t)
	b := &Backend{}
	if _, err := b.Read(t.Context()); !errors.Is(err, capture.ErrNone) {
		t.Fatal(err)
	}
	apply(t, b, capturing(capture.DualStack))
	read(t)
	if err := b.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, file := range legacyNames {
		if names, err := os.ReadFile(file); len(names) > 0 {
			t.Errorf("%s: %q, %v", file, names, err)
		}
	}
}

// otherRules look like ours as far as possible.
const otherRules = `*filter
:OTHER - [0:0]
-A INPUT -p tcp -m comment --comment "outrider -j OUTRIDER_INPUT" -j OTHER
-A OTHER -m comment --comment OUTRIDER_RECORD -j RETURN
COMMIT
*nat
:ISTIO_OUTPUT - [0:0]
-A OUTPUT -m comment --comment outrider -j ISTIO_OUTPUT
-A ISTIO_OUTPUT -p tcp -m tcp --dport 9 -j REDIRECT --to-ports 10
COMMIT
*mangle
:MINE_OUTRIDER_ - [0:0]
COMMIT
*raw
:MINE - [0:0]
COMMIT
`

func TestRemoveLeavesOtherRulesAlone(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		command(t, otherRules, "iptables-"+b.Variant+"-restore")
		command(t, otherRules, "ip6tables-"+b.Variant+"-restore")
		before := saved(t, b.Variant)
		apply(t, b, withTProxy(capture.DualStack))
		apply(t, b, withDNS(capture.IPv4))
		// What leads to our chains is ours, whoever wrote it.
		command(t, "", "iptables-"+b.Variant, "-t", "nat", "-I", "ISTIO_OUTPUT", "-p", "udp", "-j", "OUTRIDER_OUTPUT")
		if _, err := b.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "ISTIO_OUTPUT") {
			t.Errorf("Read with another program's jump: %v", err)
		}
		for range 2 {
			if err := new(Backend).Remove(t.Context()); err != nil {
				t.Fatalf("Remove: %v", err)
			}
			// Chains that stood empty are listed for every table that was ever used.
			if after := saved(t, b.Variant); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		}
	})
}

func TestRemoveFromBothVariants(t *testing.T) {
	newNamespace(t)
	rs, _ := capture.Build(capturing(capture.DualStack), capture.IPTables)
	four, six := render(t, rs)
	for _, v := range variants {
		command(t, four, "iptables-"+string(v)+"-restore", "--noflush")
		command(t, six, "ip6tables-"+string(v)+"-restore", "--noflush")
	}
	b := &Backend{}
	if _, err := b.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "at once") {
		t.Errorf("Read of two copies: %v", err)
	}
	if err := b.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, v := range variants {
		if text := saved(t, string(v)); strings.Contains(text, "OUTRIDER") {
			t.Errorf("rules remain in %s:\n%s", v, text)
		}
	}
}

// script puts a program before all others in PATH.
func script(t *testing.T, name, body string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestFailureLeavesTheOldRules(t *testing.T) {
	broken := func(in capture.Intent) capture.Ruleset {
		rs, _ := capture.Build(in, capture.IPTables)
		// The nat table comes last: all others are written by then.
		rs.Chains = append(rs.Chains, capture.Chain{Name: "broken", Table: capture.NAT, Rules: []capture.Rule{
			{Action: capture.Action{Verb: capture.Goto, Name: "nowhere"}, Reason: "broken"},
		}})
		return rs
	}
	whole := func(in capture.Intent) capture.Ruleset {
		rs, _ := capture.Build(in, capture.IPTables)
		return rs
	}
	tests := map[string]struct {
		build  func(capture.Intent) capture.Ruleset
		script string
		want   string
	}{
		"at the last table":     {broken, "", "OUTRIDER_NOWHERE"},
		"at IPv6":               {whole, "ip6tables-%s-restore", "boom"},
		"at the other variant":  {whole, "ip6tables-%[2]s-restore", "boom"},
		"at a rule for nothing": {func(in capture.Intent) capture.Ruleset { rs := broken(in); rs.Backend = "other"; return rs }, "", "built for"},
	}
	other := map[string]string{"nft": "legacy", "legacy": "nft"}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, old := range []string{"", "same", "other"} {
				if old != "other" && strings.Contains(tt.script, "[2]") {
					continue
				}
				t.Run("old="+old, func(t *testing.T) {
					eachVariant(t, func(t *testing.T, b *Backend) {
						first := &Backend{Variant: map[string]string{"same": b.Variant, "other": other[b.Variant]}[old]}
						var want capture.Ruleset
						if old != "" {
							want = apply(t, first, withDNS(capture.DualStack))
						}
						before := saved(t, b.Variant) + saved(t, other[b.Variant])
						if tt.script != "" {
							program := fmt.Sprintf(tt.script+"%.0[1]s%.0[2]s", b.Variant, other[b.Variant])
							real, err := exec.LookPath(program)
							if err != nil {
								t.Fatal(err)
							}
							// It fails once, after it has done its work.
							flag := filepath.Join(t.TempDir(), "failed")
							script(t, program, fmt.Sprintf("%s \"$@\" || exit\n[ -e %s ] && exit 0\ntouch %s\necho boom >&2\nexit 4", real, flag, flag))
						}
						err := b.Apply(t.Context(), tt.build(capturing(capture.DualStack)))
						if err == nil || !strings.Contains(err.Error(), tt.want) {
							t.Fatalf("Apply: %v, want an error with %q", err, tt.want)
						}
						if old == "" {
							if st, err := b.Read(t.Context()); !errors.Is(err, capture.ErrNone) {
								t.Fatalf("Read: %v\n%s", err, st)
							}
							return
						}
						sameRules(t, want, read(t))
						if after := saved(t, b.Variant) + saved(t, other[b.Variant]); !slices.Equal(rulesIn(after), rulesIn(before)) {
							t.Errorf("before:\n%s\nafter:\n%s", strings.Join(rulesIn(before), "\n"), strings.Join(rulesIn(after), "\n"))
						}
					})
				})
			}
		})
	}
}

func TestContextEndsACommand(t *testing.T) {
	newNamespace(t)
	apply(t, &Backend{Variant: "nft"}, capturing(capture.IPv4))
	want := read(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	rs, _ := capture.Build(withDNS(capture.IPv4), capture.IPTables)
	if err := new(Backend).Apply(ctx, rs); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("Apply: %v", err)
	}
	if diff := capture.Diff(want.Ruleset, read(t).Ruleset); diff != nil {
		t.Error(diff)
	}
}

func TestIPv4AloneLeavesIPv6Alone(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		apply(t, b, capturing(capture.IPv4))
		if text := command(t, "", "ip6tables-"+b.Variant+"-save"); strings.Contains(text, "OUTRIDER") {
			t.Errorf("rules for IPv6:\n%s", text)
		}
	})
}

func TestWhereIPv6CannotBeFilteredIPv4Is(t *testing.T) {
	script(t, "ip6tables-nft-save", "echo 'Could not fetch rule set generation id: Protocol not supported' >&2; exit 1")
	newNamespace(t)
	b := &Backend{Variant: "nft"}
	if got, err := b.Available(t.Context()); got != capture.IPv4 || err != nil {
		t.Fatalf("Available: %s, %v", got, err)
	}
	want := apply(t, b, capturing(capture.IPv4))
	for _, families := range []capture.Families{capture.IPv6, capture.DualStack} {
		rs, _ := capture.Build(capturing(families), capture.IPTables)
		if err := b.Apply(t.Context(), rs); err == nil || !strings.Contains(err.Error(), "IPv6") {
			t.Errorf("Apply of %s where there is no IPv6: %v", families, err)
		}
	}
	sameRules(t, want, read(t))
}

func TestReadWithoutPermissionIsAnError(t *testing.T) {
	script(t, "iptables-nft-save", "echo 'Could not fetch rule set generation id: Permission denied (you must be root)' >&2; exit 4")
	newNamespace(t)
	if _, err := new(Backend).Read(t.Context()); err == nil || !strings.Contains(err.Error(), "you must be root") {
		t.Errorf("Read: %v", err)
	}
}

func TestATableThatCannotBeListedIsAnError(t *testing.T) {
	newNamespace(t)
	b := &Backend{Variant: "nft"}
	apply(t, b, capturing(capture.IPv4))
	command(t, "", "nft", "add rule ip nat OUTPUT numgen inc mod 2 0 accept")
	_, readErr := b.Read(t.Context())
	for _, err := range []error{readErr, b.Remove(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "table nat has rules that only nft can list") {
			t.Errorf("rules that cannot be seen: %v", err)
		}
	}
}

func TestMissingCommandsAreAHint(t *testing.T) {
	newNamespace(t)
	t.Setenv("PATH", t.TempDir())
	rs, _ := capture.Build(capturing(capture.IPv4), capture.IPTables)
	for _, v := range []string{"", "nft", "legacy"} {
		err := (&Backend{Variant: v}).Apply(t.Context(), rs)
		if err == nil || !strings.Contains(err.Error(), "install iptables, or use the nftables backend") {
			t.Errorf("Apply with variant %q: %v", v, err)
		}
	}
	if err := (&Backend{Variant: "new"}).Apply(t.Context(), rs); err == nil {
		t.Error("an unknown variant was taken")
	}
}

func TestPlainCommandsServeTheirVariant(t *testing.T) {
	newNamespace(t)
	dir := t.TempDir()
	for _, c := range []string{"iptables-save", "iptables-restore", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink("/usr/sbin/xtables-legacy-multi", filepath.Join(dir, c)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	if err := (&Backend{Variant: "nft"}).Apply(t.Context(), capture.Ruleset{Chains: []capture.Chain{{}}}); err == nil || !strings.Contains(err.Error(), "other variant") {
		t.Errorf("Apply with nft: %v", err)
	}
	b := &Backend{}
	want := apply(t, b, capturing(capture.DualStack))
	sameRules(t, want, read(t))
}

// dial connects once. It says "connected", "refused" or "waited".
func dial(t *testing.T, address string, wait time.Duration) string {
	t.Helper()
	c, err := (&net.Dialer{Timeout: wait}).Dial("tcp", address)
	switch {
	case err == nil:
		c.Close()
		return "connected"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, new(net.Error)) && err.(net.Error).Timeout():
		return "waited"
	}
	t.Fatalf("connecting to %s: %v", address, err)
	return ""
}

// The kernel's memory is what the model says: see capture's doc of parking.
func TestConnectionsWaitForAListenerAndForNoLongerThanTheLimit(t *testing.T) {
	const soon, long = 300 * time.Millisecond, 10 * time.Second
	eachVariant(t, func(t *testing.T, b *Backend) {
		in := capture.Defaults()
		in.Families, in.ParkOnly, in.ParkLimit = capture.DualStack, true, 2*time.Second
		in.Park, in.Mode = capture.ParkRequire, capture.RedirectMode
		apply(t, b, in)
		expect := func(address string, wait time.Duration, want string) {
			t.Helper()
			if got := dial(t, address, wait); got != want {
				t.Fatalf("%s: %s, want %s\n%s", address, got, want, command(t, "", "iptables-"+b.Variant+"-save", "-c"))
			}
		}
		four, six := "127.0.0.1:15001", "[::1]:15001"
		expect(four, soon, "waited")
		expect("127.0.0.2:15001", soon, "waited") // one memory whatever the address
		expect(six, long, "refused")              // when the limit is over
		expect(four, soon, "refused")             // which began earlier for IPv4
		ln, err := net.Listen("tcp", four)
		if err != nil {
			t.Fatal(err)
		}
		expect(four, soon, "connected")
		expect(six, soon, "refused") // a memory for each family
		ln.Close()
		expect(four, soon, "waited") // forgotten, and begun anew
		st := read(t)
		if st.Parked() < 3 || st.Count(capture.ReasonOver) < 3 || st.Count(capture.ReasonFirst) != 3 {
			t.Errorf("%d parked, %d the first of an absence, %d refused", st.Parked(), st.Count(capture.ReasonFirst), st.Count(capture.ReasonOver))
		}
	})
}

// rulesIn is the rules and the chains that programs made, without the kernel's own
// chains, which remain when they were once used.
func rulesIn(text string) []string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool {
		return !strings.HasPrefix(l, "-A ") && !strings.HasSuffix(l, " - ")
	})
	return slices.Sorted(slices.Values(lines))
}
