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

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/ns"
)

// newNamespace gives the calling goroutine, which must end with the test, a network namespace with
// a loopback interface.
func newNamespace(t *testing.T) {
	t.Helper()
	ns.RequireRoot(t)
	runtime.LockOSThread() // the thread is never unlocked: a thread in another namespace must not be reused
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

// eachVariant runs a test with each variant of iptables, in a new namespace.
func eachVariant(t *testing.T, test func(t *testing.T, b *Backend)) {
	for _, v := range variants {
		t.Run(string(v), func(t *testing.T) {
			newNamespace(t)
			test(t, &Backend{Variant: string(v)})
		})
	}
}

// capturing returns the intent of a mesh's init container.
func capturing(families capture.Families) capture.Intent {
	in := capture.Defaults()
	in.Families = families
	in.InboundPorts.All = true
	in.OutboundRanges.All = true
	return in
}

// withDNS returns an intent whose rules differ from the rules of capturing, and are in every table except mangle.
func withDNS(families capture.Families) capture.Intent {
	in := capturing(families)
	in.DNS = capture.DNSAll
	in.ExcludeOutboundRanges = prefixes("fd00:1::/64", "10.9.0.0/16", "fd00:2::/64")
	return in
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

// saved returns the rules and chains that programs created, in both families of a variant. It omits
// the kernel's own chains, which remain once they were used.
func saved(t *testing.T, v string) string {
	t.Helper()
	text := command(t, "", "iptables-"+v+"-save") + command(t, "", "ip6tables-"+v+"-save")
	lines := slices.DeleteFunc(strings.Split(noise.ReplaceAllString(text, ""), "\n"), func(l string) bool {
		return !strings.HasPrefix(l, "-A ") && !strings.HasSuffix(l, " - ")
	})
	return strings.Join(slices.Sorted(slices.Values(lines)), "\n")
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

// otherRules look as much as possible like ours.
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
		transparent := capturing(capture.DualStack)
		transparent.Mode = capture.TProxyMode
		apply(t, b, transparent)
		apply(t, b, withDNS(capture.IPv4))
		// A rule that leads to our chains counts as ours, whoever wrote it.
		command(t, "", "iptables-"+b.Variant, "-t", "nat", "-I", "ISTIO_OUTPUT", "-p", "udp", "-j", "OUTRIDER_OUTPUT")
		if _, err := b.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "ISTIO_OUTPUT") {
			t.Errorf("Read with another program's jump: %v", err)
		}
		for range 2 {
			if err := new(Backend).Remove(t.Context()); err != nil {
				t.Fatalf("Remove: %v", err)
			}
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

// script places a program before all others in PATH.
func script(t *testing.T, name, body string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestFailureLeavesTheOldRules(t *testing.T) {
	whole, _ := capture.Build(capturing(capture.DualStack), capture.IPTables)
	broken := whole
	// The nat table comes last: all other tables are written by then.
	broken.Chains = append(slices.Clip(whole.Chains), capture.Chain{Name: "broken", Table: capture.NAT, Rules: []capture.Rule{
		{Action: capture.Action{Verb: capture.Goto, Name: "nowhere"}, Reason: "broken"},
	}})
	tests := map[string]struct {
		rs   capture.Ruleset
		fail string // program that fails, of Apply's variant or of the other one
		want string
	}{
		"at the last table":    {broken, "", "OUTRIDER_NOWHERE"},
		"at IPv6":              {whole, "ip6tables-same-restore", "boom"},
		"at the other variant": {whole, "ip6tables-other-restore", "boom"},
	}
	for name, tt := range tests {
		for _, old := range []string{"none", "same", "other"} {
			if old != "other" && strings.Contains(tt.fail, "other") {
				continue // there is nothing to remove in the other variant
			}
			t.Run(name+", old rules: "+old, func(t *testing.T) {
				eachVariant(t, func(t *testing.T, b *Backend) {
					variant := map[string]string{"same": b.Variant, "other": map[string]string{"nft": "legacy", "legacy": "nft"}[b.Variant]}
					if old != "none" {
						apply(t, &Backend{Variant: variant[old]}, withDNS(capture.DualStack))
					}
					before := saved(t, b.Variant) + saved(t, variant["other"])
					if tt.fail != "" {
						failOnce(t, strings.NewReplacer("same", variant["same"], "other", variant["other"]).Replace(tt.fail))
					}
					if err := b.Apply(t.Context(), tt.rs); err == nil || !strings.Contains(err.Error(), tt.want) {
						t.Fatalf("Apply: %v, want an error with %q", err, tt.want)
					}
					if diff := cmp.Diff(before, saved(t, b.Variant)+saved(t, variant["other"])); diff != "" {
						t.Errorf("rules (-before +after):\n%s", diff)
					}
				})
			})
		}
	}
}

// failOnce makes a program fail once, after it has done its work.
func failOnce(t *testing.T, program string) {
	t.Helper()
	real, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	flag := filepath.Join(t.TempDir(), "failed")
	script(t, program, fmt.Sprintf("%s \"$@\" || exit\n[ -e %s ] && exit 0\ntouch %s\necho boom >&2\nexit 4", real, flag, flag))
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

func TestWhereIPv6CannotBeFilteredIPv4Is(t *testing.T) {
	newNamespace(t)
	defer func(file string) { hasSix = file }(hasSix)
	hasSix = filepath.Join(t.TempDir(), "if_inet6")
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
	newNamespace(t)
	apply(t, &Backend{Variant: "nft"}, capturing(capture.IPv4))
	script(t, "iptables-nft-save", "echo 'Could not fetch rule set generation id: Permission denied (you must be root)' >&2; exit 4")
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

// Whenever a run is killed, each family has the old rules, the new rules, or a guard; and one
// family never has the new rules while the other has the old ones. The next run completes the
// change, or clean removes the rules.
func TestEveryCommitIsSafe(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		transparent := capturing(capture.DualStack)
		transparent.Mode = capture.TProxyMode
		changes := map[string][2]func() capture.Ruleset{
			"the first":        {nothing, built(capturing(capture.DualStack))},
			"transparent":      {built(withDNS(capture.DualStack)), built(transparent)},
			"one family fewer": {built(withDNS(capture.DualStack)), built(capturing(capture.IPv4))},
			"clean":            {built(transparent), nothing},
		}
		for name, change := range changes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				newNamespace(t)
				everyCommit(t, &Backend{Variant: b.Variant}, change[0](), change[1]())
			})
		}
	})
}

func nothing() capture.Ruleset { return capture.Ruleset{} }

func built(in capture.Intent) func() capture.Ruleset {
	return func() capture.Ruleset {
		rs, _ := capture.Build(in, capture.IPTables)
		return rs
	}
}

// everyCommit changes one rule set to another, and stops after each commit.
func everyCommit(t *testing.T, b *Backend, from, to capture.Ruleset) {
	var before, wanted [2]string
	families := func() [2]string {
		m, err := look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := m[variant(b.Variant)]
		return [2]string{summary(s.four), summary(s.six)}
	}
	if err := b.Apply(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	wanted = families()
	commits := 1
	for done := 1; done <= commits; done++ {
		if err := b.Apply(t.Context(), from); err != nil {
			t.Fatal(err)
		}
		if done == 1 {
			before = families()
		}
		m, err := look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		steps := m.removal()
		if len(to.Chains) > 0 {
			if steps, err = m.replace(variant(b.Variant), to, 'a'); err != nil {
				t.Fatal(err)
			}
		}
		commits = 0
		for _, s := range steps {
			for part := range strings.SplitAfterSeq(transition(s.from, s.to), "COMMIT\n") {
				if part == "" {
					continue
				}
				if commits++; commits <= done {
					if err := restore(t.Context(), s.variant, s.family, part); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		var words [2]string
		for i, now := range families() {
			switch now {
			case before[i]:
				words[i] = "before"
			case wanted[i]:
				words[i] = "wanted"
			case "guarded":
				words[i] = "waits"
			default:
				t.Errorf("after commit %d of %d family %d is neither as before, nor as wanted, nor guarded:\n%s", done, commits, i, now)
			}
		}
		if words == [2]string{"before", "wanted"} || words == [2]string{"wanted", "before"} {
			t.Errorf("after commit %d of %d the families are as %s", done, commits, words)
		}
		if _, err := b.Read(t.Context()); slices.Contains(words[:], "waits") && (err == nil || !strings.Contains(err.Error(), "interrupted")) {
			t.Errorf("after commit %d of %d, %s: Read says %v", done, commits, words, err)
		}
	}
	t.Logf("%d commits", commits)
}

// summary returns the rules of a family, or "guarded".
func summary(o owned) string {
	rest, g, whole := o.split()
	if whole && g >= rest.needs() {
		return "guarded"
	}
	return change(owned{}, o)
}

// A guard is replaced and removed even if another program has deleted a part of it.
func TestWhatIsLeftOfAGuardIsRemoved(t *testing.T) {
	eachVariant(t, func(t *testing.T, b *Backend) {
		for _, damage := range []string{"-D INPUT 1", "-F OUTRIDER_GUARD", "-D OUTRIDER_GUARD 1", "-I OUTPUT -p tcp -j OUTRIDER_GUARD", "-A OUTRIDER_GUARD -j ACCEPT"} {
			if err := restore(t.Context(), variant(b.Variant), capture.IPv4, dnsGuard.raise(owned{})); err != nil {
				t.Fatal(err)
			}
			command(t, "", "iptables-"+b.Variant, strings.Fields(damage)...)
			if _, err := b.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "interrupted") {
				t.Errorf("%s: Read says %v", damage, err)
			}
			if err := b.Remove(t.Context()); err != nil {
				t.Errorf("%s: %v", damage, err)
			}
			if text := saved(t, b.Variant); strings.Contains(text, "OUTRIDER") {
				t.Fatalf("%s: rules remain:\n%s", damage, text)
			}
		}
	})
}

// A program that outlives capture keeps the lock of capture.
func TestProgramsKeepAFileOpen(t *testing.T) {
	f, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := run(WithOpenFile(t.Context(), f), "", "readlink", "/proc/self/fd/3")
	if err != nil || !strings.HasPrefix(got, "net:[") {
		t.Errorf("file 3 of a program is %q, %v; want the namespace", got, err)
	}
}

// logPrograms makes every iptables program write its name into a log; the function that it returns reads these
// names.
func logPrograms(t *testing.T) (read func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, v := range variants {
			for _, action := range []string{"save", "restore"} {
				name := fmt.Sprintf("%s-%s-%s", family, v, action)
				real, err := exec.LookPath(name)
				if err != nil {
					t.Fatal(err)
				}
				body := fmt.Sprintf("#!/bin/sh\necho %s >>%s\nexec %s \"$@\"\n", name, log, real)
				if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		os.Remove(log)
		return slices.Sorted(strings.FieldsSeq(string(text)))
	}
}

// The programs of iptables take longer than everything else. They run only where there are rules, and the rules
// are read once between two changes.
func TestFewPrograms(t *testing.T) {
	programs := logPrograms(t)
	eachVariant(t, func(t *testing.T, b *Backend) {
		want := func(what string, names ...string) {
			t.Helper()
			for i, n := range names {
				program, action, _ := strings.Cut(n, "-")
				names[i] = program + "-" + b.Variant + "-" + action
			}
			if got := programs(); !slices.Equal(got, names) {
				t.Errorf("%s ran %q, want %q", what, got, names)
			}
		}
		begin := func(wantErr error) {
			t.Helper()
			if _, err := b.Read(t.Context()); !errors.Is(err, wantErr) {
				t.Errorf("Read: %v", err)
			}
			if _, err := b.Available(t.Context()); err != nil {
				t.Error(err)
			}
		}
		// Rules of another program, in both families and both variants, are not read.
		for _, v := range variants {
			command(t, otherRules, "iptables-"+string(v)+"-restore")
			command(t, otherRules, "ip6tables-"+string(v)+"-restore")
		}
		programs()
		begin(capture.ErrNone)
		apply(t, b, capturing(capture.IPv4))
		want("a first capture", "iptables-restore")
		begin(nil)
		want("a reading", "iptables-save")
		apply(t, b, withDNS(capture.IPv4))
		want("other rules", "iptables-restore")
		begin(nil)
		want("a reading", "iptables-save")
		if err := b.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		want("removal", "iptables-restore")
		begin(capture.ErrNone)
		if err := b.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		want("removal of nothing")
	})
}

// Recount, which starts no programs, returns the same counters as the programs list.
func TestRecountIsARead(t *testing.T) {
	programs := logPrograms(t)
	eachVariant(t, func(t *testing.T, b *Backend) {
		command(t, otherRules, "iptables-"+b.Variant+"-restore")
		command(t, otherRules, "ip6tables-"+b.Variant+"-restore")
		in := withDNS(capture.DualStack)
		in.Mode = capture.TProxyMode
		apply(t, b, in)
		st, err := b.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, dst := range []string{"127.0.0.1:9", "127.0.0.2:15001", "[::1]:9", "[::1]:15006"} {
			conn, err := new(net.Dialer).DialContext(t.Context(), "udp", dst)
			if err != nil {
				t.Fatal(err)
			}
			conn.Write([]byte("x"))
			conn.Close()
			if conn, err := net.DialTimeout("tcp", dst, time.Millisecond); err == nil { // time limit: one packet is enough
				conn.Close()
			}
		}
		programs()
		got, err := b.Recount(t.Context(), st)
		if ran := programs(); err != nil || len(ran) > 0 {
			t.Errorf("Recount ran %q, %v", ran, err)
		}
		want := read(t)
		if diff := cmp.Diff(want.Packets, got.Packets); diff != "" {
			t.Errorf("counters (-iptables-save +Recount):\n%s", diff)
		}
		if cmp.Equal(st.Packets, got.Packets) {
			t.Error("no rule has counted anything")
		}
		// Add a rule that the last Read did not return.
		command(t, "", "ip6tables-"+b.Variant, "-A", "OUTRIDER_INPUT", "-j", "RETURN")
		if got, err := b.Recount(t.Context(), st); err == nil && capture.Diff(st.Ruleset, got.Ruleset) == nil {
			t.Error("rules that were changed are counted")
		}
	})
}
