package standby

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/process"
)

// copies is a function of the type [Copies], for a proxy that runs in this process.
func (p *proxy) copies(_ context.Context, _ int, addresses ...netip.AddrPort) (fds []int, err error) {
	p.mu.Lock() // the test may end and kill the proxy meanwhile
	defer p.mu.Unlock()
	for _, l := range p.listeners {
		if !slices.Contains(addresses, addrPort(l.Addr())) {
			continue
		}
		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			return fds, err
		}
		err = control(raw, func(fd int) error {
			dup, err := unix.Dup(fd)
			fds = append(fds, dup)
			return err
		})
		if err != nil {
			return fds, err
		}
	}
	return fds, nil
}

// shared starts a Standby for a test. Each time that the Standby makes copies, it copies the sockets
// of the proxy to which *p points then.
func shared(t *testing.T, p **proxy) *Standby {
	return listen(t, func(o *Options) {
		o.Sockets = func(ctx context.Context, n int, addresses ...netip.AddrPort) ([]int, error) {
			return (*p).copies(ctx, n, addresses...)
		}
	})
}

// ready calls s.Ready and waits until the copies are made.
func ready(t *testing.T, s *Standby) {
	t.Helper()
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	<-s.sharing.done
}

// Connections that a proxy has not accepted when it ends are served by the next proxy: those of both
// families, and those that the standby had relayed.
func TestQueueOutlivesTheProxy(t *testing.T) {
	var p *proxy
	s := shared(t, &p)
	targets := []string{"10.96.0.10:80", "[fd96::10]:443"}
	for life := range 3 {
		before := s.Counts().Relayed
		relayed := dial(t, targets[0])
		process.Eventually(t, "it is held", func() bool { return s.Counts().Held == 1 })
		p = frozenProxy(t, 2, ip4, ip6)
		ready(t, s)
		process.Eventually(t, "it is relayed", func() bool { return s.Counts().Relayed == before+1 })
		want := []string{targets[0]}
		queued := []net.Conn{relayed}
		for i := range 20 {
			queued = append(queued, dial(t, targets[i%2]))
			want = append(want, targets[i%2])
		}
		p.kill()
		s.Gone()
		p = startProxy(t, 1+life, ip4, ip6)
		ready(t, s)
		for i, c := range queued {
			if got := line(c); got != want[i] {
				t.Errorf("life %d, connection %d: %q, want %q", life, i, got, want[i])
			}
			c.Close()
		}
		before = s.Counts().Relayed
		late := dial(t, targets[0])
		if got, n := line(late), s.Counts().Relayed-before; got != targets[0] || n != 0 {
			t.Errorf("life %d, late: %q, %d relayed; want %q by the proxy itself", life, got, n, targets[0])
		}
		late.Close()
		p.kill()
		s.Gone()
	}
}

// A living proxy replaces its listening sockets. The copies of the old ones still take
// connections, and none of these is lost.
func TestProxyReplacesItsSockets(t *testing.T) {
	var p *proxy
	s := shared(t, &p)
	p = startProxy(t, 2, ip4, ip6)
	ready(t, s)
	old := p
	p = startProxy(t, 1, ip4, ip6)
	old.kill()
	var waiting []net.Conn
	for range 20 {
		waiting = append(waiting, dial(t, target))
	}
	s.Check()
	for i, c := range waiting {
		if got := line(c); got != target {
			t.Errorf("connection %d: %q, want %q", i, got, target)
		}
	}
	s.Check()
	before := s.Counts().Relayed
	for range 10 {
		if got := line(dial(t, target)); got != target {
			t.Errorf("later: %q, want %q", got, target)
		}
	}
	if n := s.Counts().Relayed - before; n != 0 {
		t.Errorf("%d of 10 later connections bypassed the proxy", n)
	}
}

// Leave resets no connection: the proxy accepts those in its queue, and later ones are refused
// before they get there.
func TestLeave(t *testing.T) {
	var p *proxy
	s := shared(t, &p)
	s.lastQueue = time.Minute
	p = frozenProxy(t, 2, ip4, ip6)
	ready(t, s)
	queued := []net.Conn{dial(t, target), dial(t, target)}
	left := make(chan struct{})
	go func() {
		s.Leave()
		close(left)
	}()
	process.Eventually(t, "a new connection is refused", func() bool {
		c, err := net.DialTimeout("tcp", target, 100*time.Millisecond) // time limit: the loop tries again
		if err == nil {
			queued = append(queued, c)
		}
		return errors.Is(err, unix.ECONNREFUSED)
	})
	select {
	case <-left:
		t.Error("the port was left with connections in the queue")
	default:
	}
	p.accept()
	<-left
	for _, l := range p.listeners {
		l.Close()
	}
	for i, c := range queued {
		c.SetDeadline(time.Now().Add(time.Minute))
		if got := line(c); got != target {
			t.Errorf("connection %d of %d: %q, want %q", i, len(queued), got, target)
		}
	}
	if _, err := net.DialTimeout("tcp", target, time.Minute); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("once the port is left: %v, want that it is refused", err)
	}
}

// Hold makes new connections wait while the proxy lives, and reports whether it has accepted all
// earlier ones.
func TestHold(t *testing.T) {
	var p *proxy
	s := shared(t, &p)
	p = startProxy(t, 2, ip4, ip6)
	if s.Hold() {
		t.Error("before Ready there is nothing to hold back")
	}
	ready(t, s)
	kept := dial(t, target)
	if got := line(kept); got != target {
		t.Fatalf("%q, want %q", got, target)
	}
	for range 3 {
		if !s.Hold() {
			t.Error("the proxy has accepted all, and Hold does not report it")
		}
		waiting := dial(t, target)
		process.Eventually(t, "it is held", func() bool { return s.Counts().Held == 1 })
		ready(t, s)
		if got := line(waiting); got != target {
			t.Errorf("a held connection: %q, want %q", got, target)
		}
	}
	if _, err := kept.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	kept.CloseWrite()
	if got := line(kept); got != "x1 bytes" {
		t.Errorf("a connection from before: %q", got)
	}
	p.kill()
	s.Gone()
	p = frozenProxy(t, 1, ip4, ip6)
	ready(t, s)
	queued := dial(t, target)
	s.lastQueue = 0
	if s.Hold() {
		t.Error("a connection is in the proxy's queue, and Hold does not report it")
	}
	p.accept()
	if got := line(queued); got != target {
		t.Errorf("%q, want %q", got, target)
	}
}
