package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/agent/readiness"
	"outrider.dev/internal/capture"
	"outrider.dev/internal/capture/setup"
	"outrider.dev/internal/contract"
	"outrider.dev/test/ns"
)

// asAgent tells this binary to be the agent of a pod.
const asAgent = "OUTRIDER_TEST_DNS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) == "" {
		os.Exit(m.Run())
	}
	if err := agent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// agent answers as the proxy's user, until the test ends and its standard input with it.
func agent() error {
	const user = 1337
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(user), syscall.Setuid(user)); err != nil {
		return err
	}
	s, err := Listen(Options{Port: contract.DNSPort, Names: book(shop)})
	if err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		s.Close()
	}()
	return s.Serve(context.Background())
}

// inPod is a process in a pod, with the pod's resolv.conf.
func inPod(pod *ns.Namespace, conf string, args ...string) *exec.Cmd {
	script := `mount --make-rprivate / && mount --bind "$CONF" /etc/resolv.conf && exec "$@"`
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "CONF="+conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

// A pod with capture of names, the agent in it, and an app that uses libc's resolver.
func TestLookUpsOfACapturedPod(t *testing.T) {
	ns.RequireRoot(t)
	for _, tool := range []string{"getent", "mount", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here", tool)
		}
	}
	for _, backend := range []string{"nftables", "iptables"} {
		t.Run(backend, func(t *testing.T) { lookUps(t, backend) })
	}
}

func lookUps(t *testing.T, backend string) {
	pod, node := ns.New(t), ns.New(t)
	server := netip.MustParseAddr("10.9.0.10")
	ns.Connect(pod, "eth0", []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}, node, "pod0", []netip.Prefix{netip.PrefixFrom(server, 24)})
	pod.IP("route", "add", "default", "via", server.String())
	var upstream *nameserver
	node.Do(func() { upstream = newNameserver(t, netip.AddrPortFrom(server, 53)) })
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	put(t, conf, "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.9.0.10\noptions ndots:5\n")

	in := capture.Defaults()
	in.Families = capture.IPv4
	in.OutboundRanges.All, in.InboundPorts.All = true, true
	in.DNS, in.Nameservers = capture.DNSServers, []netip.Addr{server}
	var err error
	pod.Do(func() {
		var backends []setup.Backend
		if backends, err = setup.Backends(backend, ""); err == nil {
			_, err = setup.Capture(t.Context(), setup.Options{Intent: in, Backends: backends})
		}
	})
	if err != nil {
		t.Skipf("capture by %s does not work here: %v", backend, err)
	}
	startAgent(t, pod, conf)

	tests := []struct {
		name, network string
		want          string
		asked         []string // of the name server
	}{
		{"cart.web", "", "10.96.0.3", nil}, // completed in one round
		{"reviews", "", "10.96.0.1", nil},
		{"cart.web.svc.cluster.local", "use-vc", "10.96.0.3", nil}, // by TCP
		{"example.com.", "", "203.0.113.1", []string{"example.com. A"}},
		{"example.com.", "use-vc", "203.0.113.1", []string{"example.com. A tcp"}},
	}
	for _, tt := range tests {
		t.Run(tt.name+" "+tt.network, func(t *testing.T) {
			before := len(upstream.questions())
			cmd := inPod(pod, conf, "getent", "ahostsv4", tt.name)
			cmd.Env = append(cmd.Env, "RES_OPTIONS="+tt.network)
			var out []byte
			pod.Do(func() { out, err = cmd.CombinedOutput() })
			if err != nil || !strings.HasPrefix(string(out), tt.want+" ") {
				t.Errorf("getent: %v: %s; want %s", err, out, tt.want)
			}
			if got := upstream.questions()[before:]; !slices.Equal(got, tt.asked) {
				t.Errorf("the name server was asked %q; want %q", got, tt.asked)
			}
		})
	}
}

// startAgent waits until the agent answers, as readiness does.
func startAgent(t *testing.T, pod *ns.Namespace, conf string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := inPod(pod, conf, self)
	cmd.Env = append(cmd.Env, asAgent+"=1")
	cmd.Stdout, cmd.Stderr = &log, &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pod.Do(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
		if t.Failed() {
			t.Logf("the agent: %s", log.String())
		}
	})
	check := readiness.DNS("127.0.0.1:15053")
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pod.Do(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = check(ctx)
		})
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the agent never answers: %v", err)
		}
	}
}
