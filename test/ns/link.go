package ns

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
)

// IP runs the command "ip" inside the namespace. The test fails if the command does.
func (n *Namespace) IP(args ...string) {
	n.t.Helper()
	n.Do(func() {
		if err := ip(args...); err != nil {
			n.t.Error(err)
		}
	})
	if n.t.Failed() {
		n.t.FailNow()
	}
}

// Sh runs a script inside the namespace, until a command of it fails. The test fails then.
func (n *Namespace) Sh(script string) {
	n.t.Helper()
	n.Do(func() {
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			n.t.Errorf("%s: %v: %s", script, err, out)
		}
	})
}

// Connect connects two namespaces by a veth pair. Each end gets a name and addresses.
func Connect(a *Namespace, nameA string, addrsA []netip.Prefix, b *Namespace, nameB string, addrsB []netip.Prefix) {
	a.t.Helper()
	a.IP("link", "add", nameA, "type", "veth", "peer", "name", nameB, "netns", b.Path())
	a.address(nameA, addrsA)
	b.address(nameB, addrsB)
	a.IP("link", "set", nameA, "up")
	b.IP("link", "set", nameB, "up")
}

// Pod makes a namespace with the IPv4 network of a pod: eth0 with an address, and a default route. Nothing answers
// at the other end.
func Pod(t testing.TB) *Namespace {
	t.Helper()
	pod, node := New(t), Empty(t)
	Connect(pod, "eth0", []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}, node, "pod0", nil)
	pod.IP("route", "add", "default", "via", "10.9.0.1")
	return pod
}

func (n *Namespace) address(link string, addrs []netip.Prefix) {
	for _, a := range addrs {
		// nodad turns duplicate address detection off, so that an IPv6 address can be used at once.
		n.IP("addr", "add", a.String(), "dev", link, "nodad")
	}
}

func setUp(link string) error { return ip("link", "set", link, "up") }

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
