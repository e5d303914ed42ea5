package netns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/capture/trace"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
	"outrider.dev/test/scenario"
	"outrider.dev/test/tier"
)

// Time limits after which a connection counts as waiting: [short] for a connection that is expected to wait, and
// [enough] for other connections. An answer takes a millisecond on one machine, but longer if the machine is busy.
const (
	short  = 300 * time.Millisecond
	enough = process.Patience
)

// A variant is a backend with one of its variants, for example iptables-legacy.
type variant struct{ name, backend, variant string }

var (
	nftables = variant{"nftables", capture.NFTables, ""}
	variants = []variant{nftables, {"iptables-nft", capture.IPTables, "nft"}, {"iptables-legacy", capture.IPTables, "legacy"}}
)

// eachVariant runs a test for each variant and case, each in a separate topology.
func eachVariant[C any](t *testing.T, cases []C, test func(t *testing.T, top *topology, v variant, c C)) {
	ns.RequireRoot(t)
	t.Parallel()
	for _, v := range variants {
		for _, c := range cases {
			t.Run(strings.TrimSpace(fmt.Sprint(v.name, " ", c)), func(t *testing.T) {
				t.Parallel()
				test(t, newTopology(t), v, c)
			})
		}
	}
}

// Every scenario has the same result in the kernel as in the model, with every backend. An ordinary run tries a
// quarter of the scenarios with each backend.
func TestScenarios(t *testing.T) {
	ns.RequireRoot(t)
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			pool := make(chan *topology, 3)
			for range cap(pool) {
				pool <- newTopology(t)
			}
			left, tried := 0, 0
			t.Run("all", func(t *testing.T) {
				for _, s := range scenario.All {
					if s.Conn.ConnMark != 0 || s.Conn.Reply || s.Conn.Invalid {
						left++ // a packet within a connection cannot be made here; TestTransparentConnections tests complete connections
						continue
					}
					if !tier.Sample(v.name+" "+s.Name, 4) {
						continue
					}
					tried++
					t.Run(s.Name, func(t *testing.T) {
						t.Parallel()
						top := <-pool
						t.Cleanup(func() { pool <- top })
						play(t, top, s, v)
					})
				}
			})
			t.Logf("%d of %d scenarios; %d others are packets in the middle of a connection, for the model alone", tried, len(scenario.All)-left, left)
		})
	}
}

// play makes the connection of s, and compares its result with the expected one.
func play(t *testing.T, top *topology, s scenario.Scenario, v variant) {
	intent, err := s.Intent()
	if err != nil {
		t.Fatal(err)
	}
	listen(t, top, s)
	var older net.Conn
	if s.Conn.Established {
		older = establish(t, top, s)
		defer older.Close()
	}
	defer apply(t, top.pod, v, setup.Clean)
	capturing(t, top.pod, v, intent)
	rs, _ := capture.Build(intent, v.backend)
	for _, key := range s.Pod.Remembered {
		remember(t, top.pod, rs, key, s.Conn.Dst)
	}
	want := s.For(v.backend)
	w := endingOf(s.Conn, want)
	if older != nil {
		if err := alive(older); err != nil {
			t.Errorf("%s\nflags %q\nan older connection: %v", s.Conn, s.Flags, err)
		}
		return
	}
	c := callOf(top, s.Conn)
	if w != waits {
		c.limit = enough
	}
	if got := ending(c); got != w {
		t.Errorf("%s\nflags %q\nends as %q, want %q", s.Conn, s.Flags, got, w)
	}
}

// apply calls f with the backends of a variant, on a thread inside the pod.
func apply(t testing.TB, pod *ns.Namespace, v variant, f func(context.Context, []setup.Backend) error) {
	t.Helper()
	var err error
	pod.Do(func() {
		var backends []setup.Backend
		if backends, err = setup.Backends(v.backend, v.variant); err == nil {
			err = f(context.Background(), backends)
		}
	})
	if err != nil {
		t.Fatalf("%s: %v", v.name, err)
	}
}

func capturing(t testing.TB, pod *ns.Namespace, v variant, in capture.Intent) (report setup.Report) {
	t.Helper()
	apply(t, pod, v, func(ctx context.Context, b []setup.Backend) (err error) {
		report, err = setup.Capture(ctx, setup.Options{Intent: in, Backends: b})
		return err
	})
	return report
}

// listen starts the listeners of s: those in the pod, and those of the peer and the guest.
func listen(t *testing.T, top *topology, s scenario.Scenario) {
	for _, l := range s.Pod.Listeners {
		serve(t, top.pod, podUser(l.Port), l, fmt.Sprintf("pod:%d", l.Port))
	}
	port := s.Conn.Dst.Port()
	outside := map[string]*ns.Namespace{"peer": top.peer, "guest": top.guest}
	for name, n := range outside {
		for _, proto := range []uint32{capture.TCP, capture.UDP} {
			serve(t, n, 0, trace.Listener{Proto: proto, Port: port}, fmt.Sprintf("%s:%d", name, port))
		}
	}
}

// podUser returns the user that listens on a port of the pod: Istio's ports belong to the proxy.
func podUser(port uint16) int {
	if port >= 15000 && port < 15100 {
		return proxyUser
	}
	return 1000
}

// proxyUser is the user and group ID of the proxy.
const proxyUser = contract.ProxyUser

// callOf returns the call that makes a scenario's connection.
func callOf(top *topology, c trace.Conn) call {
	out := call{from: top.pod, uid: int(c.UID), gid: int(c.GID), proto: c.Proto, dst: c.Dst, mark: int(c.Mark), port: sourcePort(), limit: short}
	if c.Src.Port() == contract.ProbePort {
		out.port = contract.ProbePort // by which the rules know the agent's proofs
	}
	switch c.In {
	case "eth0":
		out.from = top.peer
	case "virt0":
		out.from = top.guest
	default:
		out.src = c.Src.Addr()
		out.notLocal = out.src == netip.MustParseAddr("10.9.0.1") || out.src == netip.MustParseAddr("fd09::1")
		if out.src == netip.MustParseAddr("::6") {
			out.notLocal = true // because the address is on lo only if rules have added it
		}
	}
	return out
}

// sourcePorts counts the calls of scenarios.
var sourcePorts atomic.Uint32

// sourcePort returns a different port for each call. If the kernel chose the port, it could choose the port of an
// earlier scenario in the same namespace, whose connection the kernel still tracks. The call would then follow the
// rules of that scenario.
func sourcePort() uint16 {
	const first, past = 20000, 32768 // the kernel chooses ports from 32768 on
	return uint16(first + sourcePorts.Add(1)%(past-first))
}

// waits is the result of a connection that gets no answer.
const waits = "waits"

// ending makes a call and returns its result: the name of the server, or a word such as "refused".
func ending(c call) string {
	name, err := c.talk()
	var timeout net.Error
	switch {
	case err == nil:
		return name
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return waits
	}
	return err.Error()
}

// endingOf returns the expected result in the form of ending.
func endingOf(c trace.Conn, want scenario.Want) string {
	switch want.Fate {
	case trace.Refused:
		return "refused"
	case trace.Parked, trace.Dropped:
		return waits
	case trace.Redirected, trace.Taken:
		return fmt.Sprintf("pod:%d", want.Port)
	}
	return ownerOf(c.Dst.Addr()) + fmt.Sprintf(":%d", c.Dst.Port())
}

// ownerOf returns the name of the namespace that has this address.
func ownerOf(a netip.Addr) string {
	switch {
	case a.IsLoopback(), slices.Contains([]string{"10.9.0.2", "fd09::2", "10.10.0.2", "fd10::2"}, a.String()):
		return "pod"
	case slices.Contains([]string{"10.10.0.1", "fd10::1"}, a.String()):
		return "guest"
	}
	return "peer"
}

// establish makes the connection of s before the rules are written. If s has no listener for the connection,
// establish opens one and closes it again.
func establish(t *testing.T, top *topology, s scenario.Scenario) net.Conn {
	t.Helper()
	if l := (trace.Listener{Proto: s.Conn.Proto, Port: s.Conn.Dst.Port()}); ownerOf(s.Conn.Dst.Addr()) == "pod" && !listens(s.Pod, l) {
		defer serve(t, top.pod, 0, l, fmt.Sprintf("pod:%d", l.Port))()
	}
	c := callOf(top, s.Conn)
	c.limit = enough
	conn, err := c.dial()
	if err != nil {
		t.Fatalf("before the rules: %v", err)
	}
	if s.Conn.Proto == capture.TCP {
		greeting(conn)
	}
	return conn
}

func listens(p trace.Pod, want trace.Listener) bool {
	return slices.ContainsFunc(p.Listeners, func(l trace.Listener) bool { return l.Proto == want.Proto && l.Port == want.Port })
}

// greeting returns the name that the server of a TCP connection sends. When it returns, the server has accepted the
// connection, which is then not reset when the listener is closed.
func greeting(conn net.Conn) string {
	conn.SetDeadline(time.Now().Add(enough))
	name, err := bufio.NewReaderSize(onebyte{conn}, 1).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(name)
}

// A onebyte is a reader that reads a single byte at a time, so that bytes after the greeting are not buffered.
type onebyte struct{ io.Reader }

func (o onebyte) Read(p []byte) (int, error) { return o.Reader.Read(p[:1]) }

// alive returns an error unless bytes still arrive in both directions of a connection.
func alive(conn net.Conn) error {
	conn.SetDeadline(time.Now().Add(enough))
	if _, err := conn.Write([]byte("ping\n")); err != nil {
		return err
	}
	answer, buf := "", make([]byte, 100)
	for !strings.HasSuffix(answer, "\n") {
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		answer += string(buf[:n])
	}
	return nil
}

// remember adds an element to a set in the kernel, as the rules do for a packet whose port has no listener. name is
// the name of the set; the names of sets by port end with the port. If the set does not exist, remember does nothing:
// iptables has no set for --park-ports '*'.
func remember(t *testing.T, pod *ns.Namespace, rs capture.Ruleset, name string, dst netip.AddrPort) {
	t.Helper()
	family, zero := "ipv4", "+0.0.0.0"
	if dst.Addr().Is6() {
		family, zero = "ipv6", "+::"
	}
	prefix, port, _ := strings.Cut(name, "-")
	byFamily, byPort := rs.Set(name), rs.Set(prefix)
	pod.Do(func() {
		switch {
		case rs.Backend == capture.IPTables && byFamily != nil:
			if err := os.WriteFile("/proc/thread-self/net/xt_recent/"+name, []byte(zero), 0); err != nil {
				t.Error(err)
			}
		case byFamily != nil:
			command(t, "nft", "add", "element", "inet", "outrider", name, "{", family, "}")
		case byPort != nil:
			command(t, "nft", "add", "element", "inet", "outrider", prefix, "{", family, ".", port, "}")
		}
	})
}
