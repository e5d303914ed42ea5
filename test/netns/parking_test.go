package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/capture/trace"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// everything returns an intent that captures both directions, with parking. The function change may modify the
// intent.
func everything(change func(*capture.Intent)) capture.Intent {
	in := capture.Defaults()
	in.Families = capture.DualStack
	in.OutboundRanges.All, in.InboundPorts.All = true, true
	if change != nil {
		change(&in)
	}
	return in
}

// A way is a kind of connection that can be parked: into the pod or out of it, with IPv4 or IPv6.
type way struct {
	name string
	from func(*topology) *ns.Namespace
	uid  int
	dst  string
	port uint16 // the port to which the connection is redirected
}

func (w way) String() string { return w.name }

func (w way) call(top *topology, limit time.Duration) call {
	return call{from: w.from(top), uid: w.uid, gid: w.uid, dst: netip.MustParseAddrPort(w.dst), limit: limit}
}

var (
	fromPod  = func(top *topology) *ns.Namespace { return top.pod }
	fromPeer = func(top *topology) *ns.Namespace { return top.peer }

	ways = []way{
		{name: "outbound ipv4", from: fromPod, uid: 1000, dst: "10.96.0.10:80", port: 15001},
		{name: "outbound ipv6", from: fromPod, uid: 1000, dst: "[fd96::10]:80", port: 15001},
		{name: "inbound ipv4", from: fromPeer, dst: "10.9.0.2:8080", port: 15006},
		{name: "inbound ipv6", from: fromPeer, dst: "[fd09::2]:8080", port: 15006},
	}
)

// eachWay runs a test for every backend and way, each in a separate pod. For one way it also runs the test with a
// long list of parked ports, for which the rules use other sets in the kernel.
func eachWay(t *testing.T, change func(*capture.Intent), test func(t *testing.T, top *topology, w way)) {
	many := ways[1]
	many.name += ", many ports"
	eachVariant(t, append(slices.Clip(ways), many), func(t *testing.T, top *topology, v variant, w way) {
		in := everything(change)
		if w.name == many.name {
			for port := range uint16(20) {
				in.ParkPorts.List = append(in.ParkPorts.List, 20000+2*port)
			}
		}
		capturing(t, top.pod, v, in)
		test(t, top, w)
	})
}

// A connection waits for the first listener, and for a listener that restarts. It is refused if there has been no
// listener for longer than the limit. The time counts anew after a connection has found a listener.
func TestParkingAcrossRestarts(t *testing.T) {
	limit := func(in *capture.Intent) { in.ParkLimit = 3 * time.Second }
	eachWay(t, limit, func(t *testing.T, top *topology, w way) {
		name := fmt.Sprintf("pod:%d", w.port)
		listener := trace.Listener{Proto: capture.TCP, Port: w.port}
		parked := w.call(top, enough)
		for _, process := range []string{"first", "second"} {
			answer := make(chan string, 1)
			go func() { answer <- ending(parked) }()
			// Usually the SYN is parked by now. If it is sent only after the listener is opened, the call
			// must succeed too.
			time.Sleep(short)
			stop := serve(t, top.pod, proxyUser, listener, name)
			if got := <-answer; got != name {
				t.Errorf("%s process: %q, want %q", process, got, name)
			}
			if got := ending(parked); got != name {
				t.Errorf("%s process, with a listener: %q, want %q", process, got, name)
			}
			stop()
		}
		start := time.Now()
		if got := ending(parked); got != "refused" {
			t.Errorf("without a listener: %q, want refused", got)
		}
		if d := time.Since(start); d < 3*time.Second {
			t.Errorf("refused after %s, want at least the limit of 3s", d)
		}
		if _, again, err := parked.attempt(); !errors.Is(err, unix.ECONNREFUSED) || again != 0 {
			t.Errorf("later: %v, with %d SYNs sent again; want refused at once", err, again)
		}
		stop := serve(t, top.pod, proxyUser, listener, name)
		if got := ending(parked); got != name {
			t.Errorf("listening again: %q, want %q", got, name)
		}
		stop()
		start = time.Now()
		if got := ending(w.call(top, short)); got != waits && time.Since(start) < 3*time.Second {
			t.Errorf("gone again: %q, want to wait", got)
		}
	})
}

// If the proxy's user sends a release, parking ends. A release from another user has no effect.
func TestReleaseEndsParking(t *testing.T) {
	eachWay(t, nil, func(t *testing.T, top *topology, w way) {
		want := func(when, end string, limit time.Duration) {
			t.Helper()
			if got := ending(w.call(top, limit)); got != end {
				t.Errorf("%s: %q, want %q", when, got, end)
			}
		}
		want("before", waits, short)
		var refused *capture.NotReleasedError
		if err := release(top.pod, 1000, w.port); !errors.As(err, &refused) || refused.Port != w.port {
			t.Errorf("a release by the app: %v", err)
		}
		want("after a release by the app", waits, short)
		another := releasing(t, top.pod)
		if err := release(top.pod, proxyUser, w.port); err != nil {
			t.Error(err)
		}
		unix.Close(another)
		want("after a release by the proxy", "refused", enough)
		stop := serve(t, top.pod, proxyUser, trace.Listener{Proto: capture.TCP, Port: w.port}, "back")
		want("with a listener", "back", enough)
		stop()
		want("after the listener's end", waits, short)
	})
}

func release(pod *ns.Namespace, user int, port uint16) (err error) {
	pod.As(user, user, func() { err = capture.Release(port) })
	return err
}

// releasing opens a socket like a release that is still running, and returns the socket's descriptor.
func releasing(t *testing.T, pod *ns.Namespace) (fd int) {
	t.Helper()
	pod.Do(func() {
		var err error
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, &unix.SockaddrInet4{Port: contract.ProbePort}))
		if err != nil {
			t.Error(err)
		}
	})
	return fd
}

// A client may reuse its port while the server's end of its last connection is in TIME_WAIT. The rules then find this
// socket of the proxy, although it is not a listener, and do not park the new connection.
func TestParkingWithTimeWait(t *testing.T) {
	eachVariant(t, []string{""}, func(t *testing.T, top *topology, v variant, _ string) {
		capturing(t, top.pod, v, everything(nil))
		top.pod.Do(func() {
			l, err := listenTCP(trace.Listener{Port: 15001})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { end(t, l) })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					c.Close() // the server closes first, so that its end is in TIME_WAIT
				}
			}()
		})
		for i := range 5 {
			again, err := samePort(top.pod)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			if again != 0 {
				t.Errorf("connection %d: its first SYN was parked, it was sent %d times more", i, again)
			}
		}
	})
}

// samePort connects from port 41000, and closes the connection after the server has closed it. The first result is
// the number of retransmissions.
func samePort(pod *ns.Namespace) (again int, out error) {
	pod.As(1000, 1000, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) // CLOEXEC: child processes that parallel tests start must not inherit it
		if err != nil {
			out = err
			return
		}
		defer unix.Close(fd)
		limit := unix.Timeval{Sec: 60}
		out = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
			unix.Bind(fd, &unix.SockaddrInet4{Port: 41000}),
		)
		for begin := time.Now(); time.Since(begin) < process.Patience; {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{10, 96, 0, 10}})
			// Go's runtime sends signals to its threads. If a signal interrupts connect, call connect again, which
			// continues the attempt.
			if !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EINTR) {
				break
			}
			time.Sleep(10 * time.Millisecond) // the client's end of the last connection is not closed yet
		}
		out = errors.Join(out, err)
		again = resent(fd)
		if out == nil {
			_, out = unix.Read(fd, make([]byte, 1))
			for out == unix.EINTR {
				_, out = unix.Read(fd, make([]byte, 1))
			}
		}
	})
	return again, out
}

// The counters of the rules show the number of parked SYNs.
func TestParkedIsCounted(t *testing.T) {
	eachVariant(t, []string{""}, func(t *testing.T, top *topology, v variant, _ string) {
		capturing(t, top.pod, v, everything(nil))
		parked := 0
		for _, w := range ways {
			conn, again, err := w.call(top, short).attempt()
			if timeout := net.Error(nil); conn != nil || !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Fatalf("%v, want to wait", err)
			}
			parked += 1 + again // again is above 0 on a busy machine, where the kernel retransmits the SYN after a second
		}
		report := capturing(t, top.pod, v, everything(nil))
		if !report.Unchanged {
			t.Error("the same capture again wrote rules again")
		}
		if parked < len(ways) || int(report.Parked) != parked {
			t.Errorf("%d attempts parked, want %d", report.Parked, parked)
		}
	})
}

// Parking alone works with another mesh's capture and leaves its rules unchanged.
func TestParkOnlyWithAnotherMesh(t *testing.T) {
	eachVariant(t, []string{"iptables-nft", "iptables-legacy"}, func(t *testing.T, top *topology, v variant, mesh string) {
		top.pod.Do(func() {
			for _, args := range []string{
				"-t nat -A OUTPUT -p tcp -m owner ! --uid-owner 2102 ! -d 127.0.0.1/32 -j REDIRECT --to-ports 4140",
				"-t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 4143",
			} {
				command(t, mesh, strings.Fields(args)...)
			}
		})
		before := saved(t, top.pod, mesh)
		capturing(t, top.pod, v, everything(func(in *capture.Intent) { in.ParkOnly = true }))
		both := []struct {
			way  way
			port uint16
		}{{ways[0], 4140}, {ways[2], 4143}}
		for _, w := range both {
			if got := ending(w.way.call(top, short)); got != waits {
				t.Errorf("before the proxy listens on %d: %q, want to wait", w.port, got)
			}
			stop := serve(t, top.pod, 2102, trace.Listener{Proto: capture.TCP, Port: w.port}, "linkerd")
			if got := ending(w.way.call(top, enough)); got != "linkerd" {
				t.Errorf("with the proxy on %d: %q, want linkerd", w.port, got)
			}
			stop()
			if got := ending(w.way.call(top, short)); got != waits {
				t.Errorf("without the proxy on %d: %q, want to wait", w.port, got)
			}
		}
		// The app's gate sends the release as the app's user, because no process of Outrider runs as the user of the
		// other mesh's proxy. It repeats the release, because a packet may be lost.
		released := func(w way) (got string) {
			for range 5 {
				top.pod.As(1000, 1000, func() {
					if !capture.ReleaseMesh() {
						t.Error("no rule accepts the release by the app")
					}
				})
				if got = ending(w.call(top, enough)); got == "refused" {
					break
				}
				t.Logf("released, and %q", got)
			}
			return got
		}
		for _, w := range both {
			if got := released(w.way); got != "refused" {
				t.Errorf("released, %d: %q; want refused", w.port, got)
			}
		}
		apply(t, top.pod, v, setup.Clean)
		if after := saved(t, top.pod, mesh); after != before {
			t.Errorf("the other mesh's rules before:\n%s\nafter:\n%s", before, after)
		}
	})
}
