package captures

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/build/commands"
	"outrider.dev/internal/capture"
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
	} {
		if got, _, err := Parse([]string{"-i", "*", flag}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q is parsed as %q, %v; want an error with %q", flag, got, err, why)
		}
	}
}

// Whatever the annotation has: the agent gets long flags of the intent, each with a value.
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

// program is an agent that writes its arguments and variables to a file, and ends with a status.
func program(t *testing.T, status string) (path, seen string) {
	t.Helper()
	dir := t.TempDir()
	path, seen = filepath.Join(dir, "agent"), filepath.Join(dir, "seen")
	script := "#!/bin/sh\n{ printf '%s\\n' \"$@\"; env | grep -v -e ^_= -e ^PWD= -e ^SHLVL= -e ^OLDPWD=; } >> " + seen + "\necho no nftables >&2\nexit " + status + "\n"
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
	c := New(path, dir) // another process
	other := ns.Empty(t).Path()
	flags := []string{"-i", "*", "--redirect-dns"}
	for range 2 { // the second one is proven already
		if err := c.Ensure(t.Context(), "a", other, flags); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Ensure(t.Context(), "b", other, flags); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	run := "capture\n--network-namespace=" + other + "\n--backend=auto\n--termination-log=\n--istio-service-cidr=*\n--redirect-dns=true\n"
	want := run + "--nameservers=10.96.0.10,fd00::a\n" + environment + "\n" + run + "--capture-all-dns=true\n" + environment + "\n"
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
	if err := c.Ensure(t.Context(), "b", other, flags); err != nil {
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
	if err := c.Ensure(t.Context(), "a", other, []string{"-i", "*"}); err == nil || !strings.Contains(err.Error(), "no nftables") {
		t.Errorf("the agent fails: %v", err)
	}
	for name, namespace := range map[string]string{"the node's": "/proc/self/ns/net", "none": "/run/netns/none"} {
		if err := c.Ensure(t.Context(), "a", namespace, []string{"-i", "*"}); err == nil || !strings.Contains(err.Error(), namespace) {
			t.Errorf("namespace %s: %v", name, err)
		}
	}
	late := errors.New("the runtime does not wait")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 1, late)
	defer cancel()
	if err := c.Ensure(ctx, "a", other, []string{"-i", "*"}); !errors.Is(err, late) {
		t.Errorf("too late: %v", err)
	}
}

// With the real agent: rules that are gone come back, and those that are there stay.
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
		if err := c.Ensure(t.Context(), "a", pod.Path(), flags); err != nil {
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
