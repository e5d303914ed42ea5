package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/capture/trace"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// ours lists the backends in which the pod has rules of Outrider.
func ours(t testing.TB, pod *ns.Namespace) []string {
	t.Helper()
	var out []string
	pod.Do(func() {
		if strings.Contains(command(t, "nft", "list", "tables"), "inet outrider") {
			out = append(out, "nftables")
		}
	})
	for _, variant := range []string{"iptables-nft", "iptables-legacy"} {
		if strings.Contains(saved(t, pod, variant), "OUTRIDER") {
			out = append(out, variant)
		}
	}
	return out
}

// Each backend can replace the rules of each other backend. Afterwards only the new rules exist, and clean removes
// them and nothing else.
func TestEveryBackendAfterEveryOther(t *testing.T) {
	ns.RequireRoot(t)
	t.Parallel()
	intents := map[string]capture.Intent{
		"the same flags": everything(nil),
		"other flags": everything(func(in *capture.Intent) {
			in.Mode, in.ExcludeInboundPorts.List, in.DNS = capture.TProxyMode, []uint16{9999}, capture.DNSAll
		}),
	}
	for _, first := range variants {
		for _, second := range variants {
			for name, intent := range intents {
				t.Run(fmt.Sprintf("%s after %s, %s", second.name, first.name, name), func(t *testing.T) {
					t.Parallel()
					pod := newTopology(t).pod
					addOthers(t, pod)
					settled(t, pod, "eth0", "virt0")
					before := others(t, pod)
					capturing(t, pod, first, everything(nil))
					capturing(t, pod, second, intent)
					if got := ours(t, pod); len(got) != 1 || got[0] != second.name {
						t.Errorf("rules of ours are in %q, want %q alone", got, second.name)
					}
					auto := variant{"auto", "auto", ""}
					apply(t, pod, auto, func(ctx context.Context, b []setup.Backend) error {
						_, err := setup.Verify(ctx, b, &intent)
						return err
					})
					apply(t, pod, auto, setup.Clean)
					if got := ours(t, pod); len(got) != 0 {
						t.Errorf("after clean, rules of ours are in %q", got)
					}
					if after := others(t, pod); after != before {
						t.Errorf("rules of other programs before:\n%s\nafter:\n%s", before, after)
					}
				})
			}
		}
	}
}

// addOthers writes rules as other programs do, with each of the tools nft, iptables-nft and iptables-legacy.
func addOthers(t *testing.T, pod *ns.Namespace) {
	pod.Do(func() {
		command(t, "nft", "add table inet other; add chain inet other c { type filter hook output priority 0; }; add rule inet other c tcp dport 1 drop; add table ip outrider; add chain ip outrider c")
		command(t, "iptables-nft", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "2", "-j", "REDIRECT", "--to-ports", "3")
		command(t, "iptables-legacy", "-A", "INPUT", "-p", "tcp", "--dport", "4", "-j", "DROP")
		command(t, "ip", "rule", "add", "fwmark", "5", "lookup", "55")
		command(t, "ip", "addr", "add", "127.0.0.99/8", "dev", "lo")
	})
}

// settled waits until the kernel has added the link-local IPv6 addresses of the links and the routes to them, which
// takes a second or two after the links are set up.
func settled(t *testing.T, pod *ns.Namespace, links ...string) {
	t.Helper()
	var routes string
	process.Eventually(t, fmt.Sprintf("%q have addresses of their own", links), func() bool {
		pod.Do(func() { routes = command(t, "ip", "-6", "route", "show", "table", "local") })
		return !slices.ContainsFunc(links, func(link string) bool {
			own := regexp.MustCompile(`(?m)^local fe80::[0-9a-f:]+ dev ` + link + ` `)
			return !own.MatchString(routes) || !strings.Contains(routes, "anycast fe80:: dev "+link+" ")
		})
	})
}

// others returns the rules that do not belong to Outrider, without empty tables, which the iptables programs leave
// behind.
func others(t *testing.T, pod *ns.Namespace) string {
	t.Helper()
	out := saved(t, pod, "iptables-nft") + "\n" + saved(t, pod, "iptables-legacy")
	pod.Do(func() {
		for _, table := range []string{"inet other", "ip outrider"} {
			out += volatile.ReplaceAllString(command(t, "nft", "list table "+table), "")
		}
		for _, args := range []string{"-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all", "-br addr show lo"} {
			out += command(t, "ip", strings.Fields(args)...)
		}
	})
	return out
}

// Many runs of capture, with the same flags and with changing flags, do not break connections that are made meanwhile.
// Each run also proves its rules.
func TestRunsUnderTrafficLoseNothing(t *testing.T) {
	ns.RequireRoot(t)
	t.Parallel()
	runs := tier.Times(10, 100)
	for _, v := range variants {
		for _, change := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, flags change: %t", v.name, change), func(t *testing.T) {
				t.Parallel()
				top := newTopology(t)
				capturing(t, top.pod, v, everything(nil))
				for _, port := range []uint16{15001, 15006} {
					serve(t, top.pod, proxyUser, trace.Listener{Proto: capture.TCP, Port: port}, "proxy")
				}
				c := newLoad(t, top)
				for i := range runs {
					capturing(t, top.pod, v, everything(func(in *capture.Intent) {
						if change && i%2 == 0 {
							in.ExcludeOutboundPorts = []uint16{9999}
						}
					}))
					served := c.served.Load()
					process.Eventually(t, "one more connection is served", func() bool { return c.served.Load() > served })
				}
				c.end()
				if n := c.failed.Load(); n > 0 {
					t.Errorf("%d connections failed in %d runs, the first: %v", n, runs, c.first.Load())
				}
				t.Logf("%d connections served in %d runs", c.served.Load(), runs)
			})
		}
	}
}

// A load opens new connections of all kinds (see ways), as fast as it can.
type load struct {
	callers        sync.WaitGroup
	stop           atomic.Bool
	served, failed atomic.Int64
	first          atomic.Value // the first failure
}

func newLoad(t *testing.T, top *topology) *load {
	c := &load{}
	t.Cleanup(c.end)
	for _, w := range ways {
		c.callers.Go(func() { w.from(top).As(w.uid, w.uid, func() { c.call(w.dst) }) })
	}
	return c
}

func (c *load) call(dst string) {
	for !c.stop.Load() {
		conn, err := net.DialTimeout("tcp", dst, enough)
		if err == nil {
			conn.SetDeadline(time.Now().Add(enough))
			_, err = conn.Read(make([]byte, 64))
			conn.(*net.TCPConn).SetLinger(0) // close with a reset, so that no port stays in TIME_WAIT
			conn.Close()
		}
		if err == nil {
			c.served.Add(1)
			continue
		}
		c.failed.Add(1)
		c.first.CompareAndSwap(nil, dst+": "+err.Error())
	}
}

func (c *load) end() {
	c.stop.Store(true)
	c.callers.Wait()
}

// Connections that were established before the rules were written continue, in both directions and modes: their next
// packet is neither redirected nor reset.
func TestOlderConnectionsGoOn(t *testing.T) {
	modes := []capture.Mode{capture.RedirectMode, capture.TProxyMode}
	eachVariant(t, modes, func(t *testing.T, top *topology, v variant, mode capture.Mode) {
		serve(t, top.pod, 1000, trace.Listener{Proto: capture.TCP, Port: 8080}, "app")
		serve(t, top.peer, 1000, trace.Listener{Proto: capture.TCP, Port: 80}, "app")
		var older []net.Conn
		for _, w := range ways {
			conn, err := w.call(top, enough).dial()
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			defer conn.Close()
			greeting(conn)
			older = append(older, conn)
		}
		capturing(t, top.pod, v, everything(func(in *capture.Intent) { in.Mode = mode }))
		for range 3 {
			for i, conn := range older {
				if err := alive(conn); err != nil {
					t.Errorf("%s: %v", ways[i].name, err)
				}
			}
		}
	})
}

// With TPROXY, complete connections reach the proxy with the caller's address, even if the kernel answers with SYN
// cookies, and the proxy can call the app from the caller's address.
func TestTransparentConnections(t *testing.T) {
	eachVariant(t, []string{"tcp_syncookies=1", "tcp_syncookies=2"}, func(t *testing.T, top *topology, v variant, cookies string) {
		top.pod.Do(func() { command(t, "sysctl", "-qw", "net.ipv4."+cookies) })
		capturing(t, top.pod, v, everything(func(in *capture.Intent) { in.Mode = capture.TProxyMode }))
		serve(t, top.pod, 1000, trace.Listener{Proto: capture.TCP, Port: 8080}, "app")
		relay(t, top.pod, 15006)
		for _, w := range ways[2:] {
			conn, err := w.call(top, enough).dial()
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			defer conn.Close()
			if got := greeting(conn); got != "relayed for "+w.source() {
				t.Errorf("%s: %q, want it relayed for %s", w.name, got, w.source())
			}
			if got := greeting(conn); got != "app" {
				t.Errorf("%s: behind the proxy is %q, want the app", w.name, got)
			}
			if err := alive(conn); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
		}
	})
}

func (w way) source() string {
	if strings.Contains(w.name, "ipv6") {
		return "fd09::1"
	}
	return "10.9.0.1"
}

// relay starts a transparent proxy on a port, which calls the original destination from the caller's address.
func relay(t *testing.T, pod *ns.Namespace, port uint16) {
	t.Helper()
	var l net.Listener
	var err error
	pod.As(proxyUser, proxyUser, func() { l, err = listenTCP(trace.Listener{Port: port, Transparent: true}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, l) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go pass(pod, c)
		}
	}()
}

// pass forwards an accepted connection to the app. It calls the app from the caller's address, with the mark that
// Envoy's original_src filter sets.
func pass(pod *ns.Namespace, in net.Conn) {
	defer in.Close()
	caller := netip.MustParseAddrPort(in.RemoteAddr().String())
	called := netip.MustParseAddrPort(in.LocalAddr().String())
	out, err := call{
		from: pod, uid: proxyUser, gid: proxyUser, src: caller.Addr().Unmap(), notLocal: true, mark: 1337,
		dst: netip.AddrPortFrom(called.Addr().Unmap(), called.Port()), limit: enough,
	}.dial()
	if err != nil {
		fmt.Fprintf(in, "calling the app: %v\n", err)
		return
	}
	defer out.Close()
	fmt.Fprintf(in, "relayed for %s\n", caller.Addr().Unmap())
	go func() {
		io.Copy(out, in)
		out.Close()
	}()
	io.Copy(in, out)
}

// In transparent mode no connection reaches the app while the proxy is absent.
func TestTransparentModeNeedsTheProxy(t *testing.T) {
	modes := []capture.ParkMode{capture.ParkOn, capture.ParkOff}
	eachVariant(t, modes, func(t *testing.T, top *topology, v variant, park capture.ParkMode) {
		capturing(t, top.pod, v, everything(func(in *capture.Intent) {
			in.Mode, in.Park, in.ParkLimit = capture.TProxyMode, park, 2*time.Second
		}))
		serve(t, top.pod, 1000, trace.Listener{Proto: capture.TCP, Port: 8080}, "app")
		for _, w := range ways[2:] {
			for i := range 3 { // connect within the limit, at its end, and after it
				conn, err := w.call(top, time.Duration(i)*2*time.Second+short).dial()
				if err == nil {
					conn.Close()
					t.Errorf("%s: try %d found a listener", w.name, i)
				}
				if park == capture.ParkOff && v == nftables && !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s: parking is off, want refused, got %v", w.name, err)
				}
			}
		}
	})
}
