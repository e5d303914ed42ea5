package captures

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/build/commands"
	"outrider.dev/internal/core/capture"
	"outrider.dev/test/ns"
)

func TestParse(t *testing.T) {
	got, dns, err := Parse([]string{"-p", "15001", "-i*", "--istio-inbound-ports", "", "--redirect-dns", "--park=require", "-u", "1337,1338", "--park=off"})
	want := []string{"--envoy-port=15001", "--istio-service-cidr=*", "--istio-inbound-ports=", "--redirect-dns=true", "--park=require", "--proxy-uid=1337,1338", "--park=off"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || !dns {
		t.Errorf("%v, DNS %v (-want +got):\n%s", err, dns, diff)
	}
	for flag, why := range map[string]string{
		"--host":                          "unknown flag",
		"--network-namespace=/proc/1":     "unknown flag",
		"--backend=iptables":              "unknown flag",
		"--force-iptables-binary=nft":     "unknown flag",
		"--nameservers=1.1.1.1":           "unknown flag",
		"--output=json":                   "unknown flag",
		"--cleanup-only":                  "unknown flag",
		"-n":                              "unknown shorthand",
		"--proof=false":                   "unknown flag",
		"--":                              "not a flag",
		"verify":                          "not a flag",
		"-h":                              "help",
		"--help":                          "help",
		"-p":                              "needs an argument",
		"-p=0":                            "envoy-port",
		"-p=15021":                        "reserved",
		"--proxy-uid=root":                "proxy-uid",
		"--istio-exclude-interfaces=\x00": "zero byte",
		"--istio-outbound-ports=" + strings.Repeat("1:2,", 129) + "x": "at most 128",
	} {
		if got, _, err := Parse([]string{"-i", "*", flag}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q is parsed as %q, %v; want an error with %q", flag, got, err, why)
		}
	}
}

// Limits protect the daemon from an annotation with 31,000 names, or with as many flags.
func TestParseIsBounded(t *testing.T) {
	long := "-ce0,e0,"
	for i := range 31000 {
		long += fmt.Sprintf("e%d,", i)
	}
	for want, flags := range map[string][]string{"at most 64": {long}, "at most 128": slices.Repeat([]string{"-mNONE"}, maxFlags+1)} {
		if _, _, err := Parse(flags); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%.600v; want a short error with %q", err, want)
		}
	}
}

// Agents run in a cgroup whose limit is the daemon's own minus the reserve, with cgroup versions 1 and
// 2.
func TestConfine(t *testing.T) {
	path, _ := program(t, "0")
	pid := strconv.Itoa(os.Getpid())
	for name, tt := range map[string]struct{ self, own, file, limit, want, fails string }{
		"1, in a container":  {"4:memory:/kubepods/x\n0::/y\n", "memory", "memory.limit_in_bytes", "134217728\n", "100663296", ""},
		"1, on the node":     {"4:cpu,memory:/x\n", "memory/x", "memory.limit_in_bytes", "134217728\n", "100663296", ""},
		"1, without a limit": {"4:memory:/x\n", "memory/x", "memory.limit_in_bytes", "9223372036854771712\n", "", ""},
		"2":                  {"1:name=systemd:/\n0::/x/y\n", "x/y", "memory.max", "134217728\n", "100663296", ""},
		"2, without a limit": {"0::/\n", "", "memory.max", "max\n", "", ""},
		"too small":          {"0::/\n", "", "memory.max", "50000000\n", "", "too small"},
		"another's":          {"0::/\n", "z", "memory.max", "134217728\n", "", "no cgroup with this process"},
	} {
		root := t.TempDir()
		own := filepath.Join(root, tt.own)
		write := func(name, text string) string {
			name = filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
			return name
		}
		write(filepath.Join(tt.own, "cgroup.procs"), "1\n"+pid+"\n")
		write(filepath.Join(tt.own, tt.file), tt.limit)
		c := New(path, root)
		if err := c.Confine(write("self", tt.self), root); (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s: %v; want %q", name, err, tt.fails)
		}
		text := func(name string) string { text, _ := os.ReadFile(filepath.Join(own, name)); return string(text) }
		if got := text("captures/" + tt.file); got != tt.want {
			t.Errorf("%s: the agents' limit is %q, want %q", name, got, tt.want)
		}
		if tt.want == "" {
			continue
		}
		if v2 := tt.file == "memory.max"; v2 && text("daemon/cgroup.procs")+text("cgroup.subtree_control") != pid+"+memory" {
			t.Errorf("%s: the daemon is not in a cgroup beside the agents'", name)
		}
		if _, err := c.run(t.Context(), nil); err != nil || text("captures/cgroup.procs") == "" {
			t.Errorf("%s: %v, and the agent ran outside the cgroup", name, err)
		}
	}
}

// No more agents run at once than the limit, and an agent that would have to wait too long does not run.
func TestAgentsRunInTurn(t *testing.T) {
	path, seen := program(t, "0")
	c := New(path, t.TempDir())
	for range atOnce {
		c.turns <- struct{}{}
	}
	late := errors.New("the runtime does not wait")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 1, late)
	defer cancel()
	if _, err := c.run(ctx, nil); !errors.Is(err, late) || !strings.Contains(err.Error(), "in its turn") {
		t.Error(err)
	}
	if _, err := os.Stat(seen); err == nil {
		t.Error("it ran")
	}
}

// For any annotation, the agent gets only long flags of the intent, each with a value.
func FuzzParse(f *testing.F) {
	f.Add("-p\n15001\n-i\n*")
	f.Add("--host\n--\n-b=*\n--redirect-dns")
	in := capture.Defaults()
	var names []string
	for _, flag := range capture.Flags(&in, nil, nil) {
		names = append(names, flag.Name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		flags := strings.Split(text, "\n")
		got, dns, err := Parse(flags)
		if err != nil {
			return
		}
		for _, arg := range got {
			name, _, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !ok || !slices.Contains(names, name) {
				t.Errorf("%q gives the agent %q", flags, arg)
			}
		}
		if again, also, err := Parse(got); err != nil || also != dns || !slices.Equal(again, got) {
			t.Errorf("%q gives %q, which is parsed as %q, %v", flags, got, again, err)
		}
	})
}

// program returns an agent that writes its arguments and variables to a file, and exits with a status.
func program(t *testing.T, status string) (path, seen string) {
	t.Helper()
	dir := t.TempDir()
	path, seen = filepath.Join(dir, "agent"), filepath.Join(dir, "seen")
	script := "#!/bin/sh\n{ printf '%s\\n' \"$@\"; env | grep -v -e ^_= -e ^PWD= -e ^SHLVL= -e ^OLDPWD= | sort; } >> " + seen + "\necho no nftables >&2\necho {}\nexit " + status + "\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path, seen
}

func TestTheAgentGetsTheIntentAlone(t *testing.T) {
	t.Setenv("OUTRIDER_BACKEND", "iptables")
	path, seen := program(t, "0")
	dir := filepath.Join(t.TempDir(), "dns")
	if err := New(path, dir).Servers("a", []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a")}); err != nil {
		t.Fatal(err)
	}
	c := New(path, dir) // as a new process would do
	other := ns.Empty(t).Path()
	flags := []string{"-i", "*", "--redirect-dns"}
	for range 2 { // the second capture is already proven
		if err := c.Ensure(t.Context(), "a", "default/a", other, flags); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Ensure(t.Context(), "b", "", other, flags); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	run := "capture\n--network-namespace=" + other + "\n--backend=auto\n--termination-log=\n--output=json\n--istio-service-cidr=*\n--redirect-dns=true\n"
	variables := environment[1] + "\n" + environment[0] + "\n"
	want := run + "--nameservers=10.96.0.10,fd00::a\n" + variables + run + "--capture-all-dns=true\n" + variables
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Keep([]string{"b"})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("of a sandbox that may be starting there is %v, %v", entries, err)
	}
	if err := os.Chtimes(filepath.Join(dir, "a"), time.Time{}, time.Now().Add(-2*starting)); err != nil {
		t.Fatal(err)
	}
	c.Keep([]string{"b"})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("of a sandbox that has ended there is %v, %v", entries, err)
	}
	c.Forget("b")
	c.Forget("../dns")
	if err := c.Ensure(t.Context(), "b", "", other, flags); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.ReadFile(seen); len(again) <= len(got) {
		t.Error("what was forgotten is not proven again")
	}
}

func TestErrors(t *testing.T) {
	path, _ := program(t, "1")
	c := New(path, t.TempDir())
	other := ns.Empty(t).Path()
	if err := c.Ensure(t.Context(), "a", "default/a", other, []string{"-i", "*"}); err == nil || !strings.Contains(err.Error(), "no nftables") {
		t.Errorf("the agent fails: %v", err)
	}
	for name, namespace := range map[string]string{"the node's": "/proc/self/ns/net", "none": "/run/netns/none"} {
		if err := c.Ensure(t.Context(), "a", "", namespace, []string{"-i", "*"}); err == nil || !strings.Contains(err.Error(), namespace) {
			t.Errorf("namespace %s: %v", name, err)
		}
	}
	late := errors.New("the runtime does not wait")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 1, late)
	defer cancel()
	if err := c.Ensure(ctx, "a", "", other, []string{"-i", "*"}); !errors.Is(err, late) {
		t.Errorf("too late: %v", err)
	}
}

// The real agent writes missing rules again, and leaves present ones.
func TestCaptureInANamespace(t *testing.T) {
	pod := ns.Pod(t)
	dir := t.TempDir()
	if err := commands.Build(t.Context(), dir, "outrider-agent"); err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(dir, "outrider-agent")
	verify := func(flags ...string) error {
		return exec.Command(agent, append([]string{"capture", "verify", "--network-namespace=" + pod.Path()}, flags...)...).Run()
	}
	flags := []string{"-i", "*", "-b", "*", "-d", "15090", "--redirect-dns"}
	if verify() == nil {
		t.Fatal("a new namespace is captured")
	}
	for _, what := range []string{"new", "after the rules have gone", "by another process of the daemon"} {
		c := New(agent, t.TempDir())
		if err := errors.Join(c.Servers("a", []netip.Addr{netip.MustParseAddr("10.96.0.10")}), c.Servers("../b", nil)); err != nil {
			t.Fatal(err)
		}
		if err := c.Ensure(t.Context(), "a", "", pod.Path(), flags); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := verify(); err != nil {
			t.Errorf("%s: not captured: %v", what, err)
		}
		if what == "new" {
			if err := exec.Command(agent, "capture", "clean", "--network-namespace="+pod.Path()).Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
