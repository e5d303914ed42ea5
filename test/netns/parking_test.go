package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/capture"
	"outrider.dev/internal/capture/setup"
	"outrider.dev/test/ns"
)

// everything captures both directions, parking on; change says what is different.
func everything(change func(*capture.Intent)) capture.Intent {
	in := capture.Defaults()
	in.Families = capture.DualStack
	in.OutboundRanges.All, in.InboundPorts.All = true, true
	if change != nil {
		change(&in)
	}
	return in
}

func capturing(t testing.TB, pod *ns.Namespace, backend, variant string, in capture.Intent) setup.Report {
	t.Helper()
	var report setup.Report
	var err error
	pod.Do(func() {
		var backends []setup.Backend
		if backends, err = setup.Backends(backend, variant); err == nil {
			report, err = setup.Capture(context.Background(), setup.Options{Intent: in, Backends: backends})
		}
	})
	if err != nil {
		t.Fatalf("capture by %s: %v", backend, err)
	}
	return report
}

// A way is a connection that parking is about: into the pod or out of it.
type way struct {
	name string
	from func(*topology) *ns.Namespace
	uid  int
	dst  string
	port uint16 // where it is redirected to
}

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

// eachWay runs a test for every backend and way, each in a pod of its own.
func eachWay(t *testing.T, change func(*capture.Intent), test func(t *testing.T, top *topology, w way)) {
	ns.RequireRoot(t)
	for _, v := range variants {
		for _, w := range ways {
			t.Run(v.name+" "+w.name, func(t *testing.T) {
				t.Parallel()
				top := newTopology(t)
				capturing(t, top.pod, v.backend, v.variant, everything(change))
				test(t, top, w)
			})
		}
	}
}

// A connection waits for the first listener, for the next one after its death, and is
// refused when none has come for the limit; a listener that is seen again starts anew.
func TestParkingAcrossDeathAndRebirth(t *testing.T) {
	limit := func(in *capture.Intent) { in.ParkLimit = 3 * time.Second }
	eachWay(t, limit, func(t *testing.T, top *topology, w way) {
		name := fmt.Sprintf("pod:%d", w.port)
		listener := capture.Listener{Proto: capture.TCP, Port: w.port}
		patient := w.call(top, 20*time.Second)
		for _, life := range []string{"first", "second"} {
			answer := make(chan string, 1)
			go func() { answer <- ending(patient) }()
			// Usually the SYN is parked by now; if not, the listener was first, which is to work too.
			time.Sleep(patience)
			s := serve(t, top.pod, proxyUser, listener, name)
			if got := <-answer; got != name {
				t.Errorf("%s life: %q, want %q", life, got, name)
			}
			if got := ending(patient); got != name {
				t.Errorf("%s life, with a listener: %q, want %q", life, got, name)
			}
			s.close()
		}
		start := time.Now()
		if got := ending(patient); got != "refused" {
			t.Errorf("without a listener: %q, want refused", got)
		}
		if d := time.Since(start); d < 3*time.Second {
			t.Errorf("refused after %s, want at least the limit of 3s", d)
		}
		if _, again, err := patient.attempt(); !errors.Is(err, unix.ECONNREFUSED) || again != 0 {
			t.Errorf("later: %v, with %d SYNs sent again; want refused at once", err, again)
		}
		s := serve(t, top.pod, proxyUser, listener, name)
		if got := ending(patient); got != name {
			t.Errorf("listening again: %q, want %q", got, name)
		}
		s.close()
		if got := ending(w.call(top, patience)); got != waits {
			t.Errorf("gone again: %q, want to wait", got)
		}
	})
}

// A release from the proxy ends the parking; one from any other process has no effect.
func TestReleaseEndsParking(t *testing.T) {
	eachWay(t, nil, func(t *testing.T, top *topology, w way) {
		want := func(when, end string, limit time.Duration) {
			t.Helper()
			if got := ending(w.call(top, limit)); got != end {
				t.Errorf("%s: %q, want %q", when, got, end)
			}
		}
		want("before", waits, patience)
		say(t, top.pod, 1000, w.port)
		want("after the app has said it", waits, patience)
		say(t, top.pod, proxyUser, w.port)
		want("after the proxy has said it", "refused", enough)
		s := serve(t, top.pod, proxyUser, capture.Listener{Proto: capture.TCP, Port: w.port}, "back")
		want("with a listener", "back", enough)
		s.close()
		want("after the listener's death", waits, patience)
	})
}

func say(t *testing.T, pod *ns.Namespace, user int, port uint16) {
	t.Helper()
	pod.As(user, user, func() {
		if err := capture.Release(port); err != nil {
			t.Error(err)
		}
	})
}

// A client that uses its port again, while the server's end of the last connection is
// in TIME_WAIT, is served at once: a socket is there, if not one that listens.
func TestParkingWithTimeWait(t *testing.T) {
	ns.RequireRoot(t)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			top := newTopology(t)
			capturing(t, top.pod, v.backend, v.variant, everything(nil))
			top.pod.Do(func() {
				config := net.ListenConfig{}
				config.SetMultipathTCP(false)
				l, err := config.Listen(context.Background(), "tcp", ":15001")
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { l.Close() })
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						c.Close() // the server closes first: TIME_WAIT is on its side
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
}

// samePort connects from port 41000, and closes after the server. It says how often the
// kernel sent something again.
func samePort(pod *ns.Namespace) (again int, out error) {
	pod.As(1000, 1000, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			out = err
			return
		}
		defer unix.Close(fd)
		limit := unix.Timeval{Sec: 10}
		out = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
			unix.Bind(fd, &unix.SockaddrInet4{Port: 41000}),
		)
		for range 1000 {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{10, 96, 0, 10}})
			// Go's runtime sends signals to its threads; a second call waits on.
			if !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EINTR) {
				break
			}
			time.Sleep(10 * time.Millisecond) // our own end of the last connection is not closed yet
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

// The counters say how many attempts were parked, to whoever may read them.
func TestParkedIsCounted(t *testing.T) {
	ns.RequireRoot(t)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			top := newTopology(t)
			capturing(t, top.pod, v.backend, v.variant, everything(nil))
			for _, w := range ways {
				if got := ending(w.call(top, patience)); got != waits {
					t.Fatalf("%q, want to wait", got)
				}
			}
			report := capturing(t, top.pod, v.backend, v.variant, everything(nil))
			if !report.Unchanged {
				t.Error("the same capture again wrote rules again")
			}
			if report.Parked != 4 {
				t.Errorf("%d attempts parked, want 4", report.Parked)
			}
		})
	}
}

// Parking alone works with another mesh's capture and leaves its rules unchanged.
func TestParkOnlyWithAnotherMesh(t *testing.T) {
	ns.RequireRoot(t)
	for _, v := range variants {
		for _, mesh := range []string{"iptables-nft", "iptables-legacy"} {
			t.Run(v.name+" with "+mesh, func(t *testing.T) {
				t.Parallel()
				top := newTopology(t)
				top.pod.Do(func() {
					for _, args := range []string{
						"-t nat -A OUTPUT -p tcp -m owner ! --uid-owner 2102 ! -d 127.0.0.1/32 -j REDIRECT --to-ports 4140",
						"-t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 4143",
					} {
						command(t, mesh, strings.Fields(args)...)
					}
				})
				before := saved(t, top.pod, mesh)
				capturing(t, top.pod, v.backend, v.variant, everything(func(in *capture.Intent) { in.ParkOnly = true }))
				for _, w := range []struct {
					call call
					port uint16
				}{
					{call{from: top.pod, uid: 1000, gid: 1000, dst: netip.MustParseAddrPort("10.96.0.10:80")}, 4140},
					{call{from: top.peer, dst: netip.MustParseAddrPort("10.9.0.2:8080")}, 4143},
				} {
					w.call.limit = patience
					if got := ending(w.call); got != waits {
						t.Errorf("before the proxy listens on %d: %q, want to wait", w.port, got)
					}
					s := serve(t, top.pod, 2102, capture.Listener{Proto: capture.TCP, Port: w.port}, "linkerd")
					w.call.limit = enough
					if got := ending(w.call); got != "linkerd" {
						t.Errorf("with the proxy on %d: %q, want linkerd", w.port, got)
					}
					s.close()
				}
				apply(t, top.pod, v.backend, v.variant, func(ctx context.Context, b []setup.Backend) error { return setup.Clean(ctx, b) })
				if after := saved(t, top.pod, mesh); after != before {
					t.Errorf("the other mesh's rules before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	}
}
