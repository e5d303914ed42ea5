package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/agent/harness"
)

const vip6 = "fd96::10"

// call makes an HTTP request and the TCP calls, from a pod to an address. It returns the first error.
func call(p *harness.Pod, to netip.Addr, name string) error {
	at := func(port uint16) string { return netip.AddrPortFrom(to, port).String() }
	if err := fresh(p, "http://"+at(80)+"/", name+" HTTP/1.1")(); err != nil {
		return fmt.Errorf("HTTP to %s: %w", to, err)
	}
	for port, want := range map[uint16]string{90: "echo\n", 91: name + " speaks first\n"} {
		c, err := harness.Dialer(p.Namespace, harness.AppUser)(p.World.T.Context(), "tcp", at(port))
		if err != nil {
			return fmt.Errorf("port %d of %s: %w", port, to, err)
		}
		defer c.Close()
		if port == 90 {
			io.WriteString(c, "echo\n")
		}
		if got, err := firstLine(c); got != want {
			return fmt.Errorf("port %d of %s: %q, %v; want %q", port, to, got, err, want)
		}
	}
	return nil
}

// In IPv6 and dual-stack pods, services and pods are reachable through both proxies, in both directions. Strict
// mutual TLS proves that the proxies were used.
func TestFamilies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		family    harness.Family
		addresses []string
	}{
		"IPv6":          {harness.IPv6, []string{vip6}},
		"IPv4 and IPv6": {harness.Dual, []string{vip, vip6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t)
			w.Family = tt.family
			meshOfTwo(t, w, tt.addresses)
		})
	}
}

// The same paths work with TPROXY, which keeps the original destination of inbound connections.
func TestTPROXY(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Family = harness.Dual
	w.Capture = []string{"-m", "TPROXY"}
	meshOfTwo(t, w, []string{vip, vip6}, func(p *harness.Pod) {
		p.Env = []string{"ISTIO_META_INTERCEPTION_MODE=TPROXY"}
		p.Capabilities = []uintptr{unix.CAP_NET_ADMIN}
	})
}

// meshOfTwo makes two pods that serve and call each other, and tests all paths between them.
func meshOfTwo(t *testing.T, w *harness.World, addresses []string, change ...func(*harness.Pod)) {
	names := []string{"server", "client"}
	var services [2][]netip.Addr
	for i, name := range names {
		list := ""
		for _, a := range addresses {
			at := netip.MustParseAddr(a)
			if i == 1 {
				at = at.Next()
			}
			services[i] = append(services[i], at)
			list += at.String() + " "
		}
		w.Service(name, list, name, ports...)
	}
	w.Manifest("strict", strict)
	w.Serve()
	pods := [2]*harness.Pod{w.Pod(names[0]), w.Pod(names[1])}
	for _, p := range pods {
		for _, f := range change {
			f(p)
		}
		app(p)
	}
	w.Known(2, 2)
	agents := [2]*harness.Agent{pods[0].Agent(), pods[1].Agent()}
	outsider := w.Machine("outsider")
	for i, a := range agents {
		a.Ready()
		to := agents[1-i]
		to.Ready()
		for _, address := range slices.Concat(services[1-i], to.Pod.Addresses) {
			if err := call(a.Pod, address, to.Pod.Name); err != nil {
				t.Errorf("%s calls %s: %v", a.Pod.Name, to.Pod.Name, err)
			}
		}
		for _, address := range to.Pod.Addresses {
			if err := call(outsider, address, to.Pod.Name); err == nil {
				t.Errorf("an outsider calls %s at %s, and is served", to.Pod.Name, address)
			}
		}
	}
}

// An app's DNS queries to any name server go to the agent, and connections to the resolved addresses go
// through the mesh.
func TestNames(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Family = harness.Dual
	w.Capture = []string{"--redirect-dns", "--capture-all-dns"}
	w.Manifest("strict", strict)
	client, _ := pair(w, func(c, _ *harness.Pod) {
		c.Env = []string{"ISTIO_META_DNS_CAPTURE=true"}
	})
	c := client.Pod
	for _, network := range []string{"udp", "tcp"} {
		for _, nameserver := range []string{"10.96.0.53:53", "[fd96::53]:53"} {
			resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return harness.Dialer(c.Namespace, harness.AppUser)(ctx, network, nameserver)
			}}
			got, err := resolver.LookupNetIP(t.Context(), "ip", "server.shop.svc.cluster.local.")
			got = unmapped(got)
			slices.SortFunc(got, netip.Addr.Compare)
			if want := []netip.Addr{netip.MustParseAddr(vip), netip.MustParseAddr(vip6)}; err != nil || !slices.Equal(got, want) {
				t.Errorf("by %s from %s: %v, %v; want %v", network, nameserver, got, err, want)
			}
			for _, to := range got {
				if err := call(c, to, "server"); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func unmapped(list []netip.Addr) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, a.Unmap())
	}
	return out
}
