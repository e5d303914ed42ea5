package standby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

func TestEarlyConnectionsAreHandedOver(t *testing.T) {
	tests := map[string][]family{ // families of the proxy's sockets
		"both families": {ip4, ip6},
		"IPv4 only":     {ip4},
	}
	to := []string{"10.96.0.10:80", "[fd96::10]:443"}
	for name, families := range tests {
		t.Run(name, func(t *testing.T) {
			s := listen(t, nil)
			for life := range 3 {
				var early []net.Conn
				for _, to := range to {
					early = append(early, dial(t, to))
				}
				process.Eventually(t, "both are held", func() bool { return s.Counts().Held == len(early) })
				if err := s.Ready(); !errors.Is(err, ErrNotListening) {
					t.Fatalf("Ready without a proxy: %v, want ErrNotListening", err)
				}
				p := startProxy(t, 2, families...)
				if err := s.Ready(); err != nil {
					t.Fatal(err)
				}
				for i, c := range early {
					if got := line(c); got != to[i] {
						t.Errorf("life %d: the proxy has the destination %q, want %q", life, got, to[i])
					}
					c.Close()
				}
				before := s.Counts().Relayed
				for range 20 {
					c := dial(t, to[0])
					if got := line(c); got != to[0] {
						t.Errorf("life %d, late: %q, want %q", life, got, to[0])
					}
					c.Close()
				}
				if n := s.Counts().Relayed - before; n != 0 {
					t.Errorf("life %d: %d of 20 later connections bypassed the proxy", life, n)
				}
				c := dial(t, to[1])
				if got := line(c); got != to[1] {
					t.Errorf("life %d, late by the other family: %q, want %q", life, got, to[1])
				}
				c.Close()
				p.kill()
				s.Gone()
			}
			process.Eventually(t, "nothing is relayed", func() bool { return s.Counts().Relaying == 0 })
		})
	}
}

// On a kernel without the steering program, the standby relays its share of the connections.
func TestWithoutSteering(t *testing.T) {
	var log strings.Builder
	s := listen(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	s.attach = func(*socket, uint32, uint32) error { return unix.ENOPROTOOPT }
	for range 3 {
		early := dial(t, target)
		p := startProxy(t, 2, ip4, ip6)
		if err := s.Ready(); err != nil {
			t.Fatal(err)
		}
		for _, c := range []net.Conn{early, dial(t, target), dial(t, target), dial(t, target), dial(t, target)} {
			if got := line(c); got != target {
				t.Errorf("%q, want %q", got, target)
			}
			c.Close()
		}
		p.kill()
		s.Gone()
	}
	s.Close()
	s.Wait()
	if n := strings.Count(log.String(), "does not steer"); n != 3 {
		t.Errorf("%d warnings, want one in each life of the proxy:\n%s", n, log.String())
	}
}

// While the proxy dies and restarts, with changing numbers of workers, every new connection is
// accepted.
func TestNoConnectionIsRefused(t *testing.T) {
	s := listen(t, nil)
	p := startProxy(t, 2, ip4, ip6)
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	var c callers
	c.gather(8)
	for i := range 10 {
		time.Sleep(100 * time.Millisecond)
		p.kill()
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		s.Gone()
		p = startProxy(t, 1+i%4, ip4, ip6)
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
	}
	c.leave()
	if c.refused.Load() > 0 {
		t.Errorf("%s; want none refused", &c)
	}
	t.Logf("10 deaths of the proxy: %s; %+v", &c, s.Counts())
}

// The index of a socket in its group is its position in the order of listen(2). The kernel's
// documentation does not promise that: this test fails if it changes.
func TestOrderOfListening(t *testing.T) {
	s := listen(t, nil)
	p := startProxy(t, 3, ip4)
	for index := range uint32(4) {
		if err := s.sockets[0].steer(index, 1); err != nil {
			t.Fatal(err)
		}
		before := [4]int64{int64(s.Counts().Held), p.accepted[0].Load(), p.accepted[1].Load(), p.accepted[2].Load()}
		for range 10 {
			dial(t, target)
		}
		process.Eventually(t, fmt.Sprintf("index %d takes all", index), func() bool {
			now := [4]int64{int64(s.Counts().Held), p.accepted[0].Load(), p.accepted[1].Load(), p.accepted[2].Load()}
			return now[index] == before[index]+10
		})
	}
}

// The proxy reopens its listener with another number of sockets, without any event. A connection
// that comes to the standby makes it steer again.
func TestWorkersChangeUnannounced(t *testing.T) {
	s := listen(t, nil)
	p := startProxy(t, 4, ip4, ip6)
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	p.kill()
	startProxy(t, 1, ip4, ip6)
	s.steering.Lock()
	s.steered = time.Time{} // as if a second had passed
	s.steering.Unlock()
	for range 100 {
		if got := line(dial(t, target)); got != target {
			t.Errorf("%q, want %q", got, target)
		}
	}
	before := s.Counts().Relayed
	for range 50 {
		line(dial(t, target))
	}
	if n := s.Counts().Relayed - before; n > 0 {
		t.Errorf("%d of 50 connections still stray", n)
	}
}

// Connections without an answer from the proxy do not delay the others.
func TestSilentConnectionsAreRelayed(t *testing.T) {
	const n = 4 * inFlight
	s := listen(t, nil)
	for range n {
		dial(t, target)
	}
	process.Eventually(t, "all are held", func() bool { return s.Counts().Held == n })
	var silent []net.Conn
	relayed, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: twin})
	if err != nil {
		t.Fatal(err)
	}
	defer relayed.Close()
	relayed.SetDeadline(time.Now().Add(time.Minute))
	worker, err := open(t.Context(), ip4, port, false)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	for range n {
		c, err := relayed.Accept()
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	for _, c := range silent {
		c.Close()
	}
}

func TestPastTheBound(t *testing.T) {
	s := listen(t, func(o *Options) { o.Max = 5 })
	for range 5 {
		dial(t, target)
	}
	process.Eventually(t, "five are held", func() bool { return s.Counts().Held == 5 })
	for range 3 {
		c, err := net.Dial("tcp", target)
		if err == nil {
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("past the bound: %v, want connection reset", err)
		}
	}
	if got := s.Counts(); got.Held != 5 || got.Refused != 3 {
		t.Errorf("%+v, want 5 held and 3 refused", got)
	}
}

// Relayed connections count towards Max, too: here, connections of a family for which the proxy does not listen.
func TestPastTheBoundWhileRelaying(t *testing.T) {
	const to = "[fd96::10]:443"
	s := listen(t, func(o *Options) { o.Max = 3 })
	startProxy(t, 1, ip4)
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := line(dial(t, to)); got != to {
			t.Fatalf("the proxy has the destination %q, want %q", got, to)
		}
	}
	c, err := net.Dial("tcp", to)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if got := s.Counts(); !errors.Is(err, unix.ECONNRESET) || got.Relaying != 3 || got.Refused != 1 {
		t.Errorf("past the bound: %v, %+v; want connection reset, 3 relayed and 1 refused", err, got)
	}
}

func TestCapturePortItselfIsClosed(t *testing.T) {
	s := listen(t, nil)
	for i, to := range []string{"127.0.0.1:15001", "[::1]:15001", "10.9.0.2:15001", "10.96.0.10:15001"} {
		c := dial(t, to)
		if i < 3 {
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%s: %v, want it closed", to, err)
			}
		}
	}
	process.Eventually(t, "three are closed, and the one to another machine is held", func() bool {
		got := s.Counts()
		return got.Looped == 3 && got.Held == 1
	})
}

func TestCallersThatLeave(t *testing.T) {
	s := listen(t, nil)
	for name, leave := range map[string]func(*net.TCPConn){
		"closes": func(c *net.TCPConn) { c.Close() },
		"resets": func(c *net.TCPConn) { reset(c) },
		"sends and closes": func(c *net.TCPConn) {
			io.WriteString(c, "GET /\n")
			c.Close()
		},
	} {
		for _, to := range []string{target, "[fd96::10]:80"} {
			before := s.Counts().Left
			c := dial(t, to)
			process.Eventually(t, "held", func() bool { return s.Counts().Held == 1 })
			leave(c)
			process.Eventually(t, name+" to "+to, func() bool { return s.Counts().Left == before+1 && s.Counts().Held == 0 })
		}
	}
	c := dial(t, target)
	io.WriteString(c, "hello")
	c.CloseWrite()
	process.Eventually(t, "held", func() bool { return s.Counts().Held == 1 })
	before, later := s.Counts().Left, dial(t, target)
	process.Eventually(t, "held", func() bool { return s.Counts().Held == 2 })
	later.Close()
	process.Eventually(t, "a later one that left is dropped", func() bool { return s.Counts().Left > before })
	if s.Counts().Held != 1 {
		t.Fatal("a connection whose caller only finished sending was dropped")
	}
	startProxy(t, 1, ip4, ip6)
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if want := target + "\nhello5 bytes\n"; err != nil || string(all) != want {
		t.Errorf("%q, %v; want %q: an answer after the end of the question", all, err, want)
	}
}

// A relayed connection ends with a FIN or a reset, whichever its other side used. It outlives Close, but not
// the context of Listen.
func TestEnds(t *testing.T) {
	s := listen(t, nil)
	a, b, c := dial(t, target), dial(t, target), dial(t, target)
	process.Eventually(t, "held", func() bool { return s.Counts().Held == 3 })
	p := startProxy(t, 1, ip4, ip6)
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	for _, conn := range []net.Conn{a, b, c} {
		line(conn)
	}
	reset(a)
	process.Eventually(t, "the reset arrives", func() bool { return s.Counts().Relaying == 2 })
	s.Close()
	io.WriteString(b, "still there\n")
	if got := line(b); got != "still there" {
		t.Errorf("after Close: %q", got)
	}
	p.kill()
	if got := line(b); got != "EOF" && !strings.Contains(got, "reset") {
		t.Errorf("the proxy has died: %q", got)
	}
	b.Close()
	c.Close()
	s.Wait()
	if err := s.Ready(); !errors.Is(err, ErrClosed) {
		t.Errorf("Ready after Close: %v, want ErrClosed", err)
	}
}

func TestContextEndsAll(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	listen(t, func(o *Options) { o.Port = 15002 }) // makes the test's network; this standby is not used
	s, err := Listen(ctx, Options{Port: port, Relay: netip.MustParseAddrPort("127.0.0.1:15007")})
	if err != nil {
		t.Fatal(err)
	}
	relayed := dial(t, target)
	p := startProxy(t, 1, ip4, ip6)
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	line(relayed)
	p.kill()
	s.Gone()
	held := dial(t, target)
	process.Eventually(t, "held", func() bool { return s.Counts().Held == 1 })
	cancel()
	s.Wait()
	if _, err := held.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("held: %v, want connection reset", err)
	}
	if _, err := net.Dial("tcp", target); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("afterwards: %v, want connection refused", err)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	loopback := netip.MustParseAddrPort("127.0.0.1:15007")
	for name, tt := range map[string]struct {
		o    Options
		want string
	}{
		"no port":               {Options{Relay: loopback}, "no port"},
		"no relay":              {Options{Port: 1}, "relay"},
		"relay not on loopback": {Options{Port: 1, Relay: netip.MustParseAddrPort("10.0.0.1:1")}, "loopback"},
	} {
		if _, err := Listen(t.Context(), tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
	}
}

// If another socket has the port and does not share it, Listen's error names the port.
func TestPortTaken(t *testing.T) {
	ns.RequireRoot(t)
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", ":15009")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = Listen(t.Context(), Options{Port: 15009, Relay: netip.MustParseAddrPort("127.0.0.1:15007")})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "15009") {
		t.Errorf("%v, want address in use and the port", err)
	}
}
