package standby

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// TestMain runs all tests of this package in a new network namespace.
func TestMain(m *testing.M) {
	const inside = "STANDBY_TEST_INSIDE"
	if os.Geteuid() != 0 || os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests in a network namespace:", err)
		os.Exit(1)
	}
}

// network redirects connections to a capture port by their destination: connections to 10.96.0.10
// and fd96::10 go to port 15001, connections to 10.96.0.11 to port 15006.
const network = `
ip link set lo up
ip route add 10.96.0.0/16 dev lo
ip -6 route add fd96::/64 dev lo
ip addr add 10.9.0.2/32 dev lo
nft add table inet t
nft add chain inet t out '{ type nat hook output priority -100; }'
nft add rule inet t out ip daddr 10.96.0.10 tcp dport != 0 redirect to :15001
nft add rule inet t out ip6 daddr fd96::10 tcp dport != 0 redirect to :15001
nft add rule inet t out ip daddr 10.96.0.11 tcp dport != 0 redirect to :15006
`

var setUpNetwork = sync.OnceValue(func() error {
	out, err := exec.Command("sh", "-ec", network).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

const (
	port   = 15001
	twin   = 15007
	target = "10.96.0.10:80"
)

// listen starts a Standby for a test; change edits its options.
func listen(t testing.TB, change func(*Options)) *Standby {
	t.Helper()
	ns.RequireRoot(t)
	if err := setUpNetwork(); err != nil {
		t.Fatal(err)
	}
	o := Options{Port: port, Relay: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), twin)}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := Listen(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		s.Wait()
	})
	return s
}

// A proxy plays Envoy: it has workers that listen on the capture port, and a listener for
// relayed connections. It answers with the connection's original destination, and then echoes.
type proxy struct {
	t         testing.TB
	listeners []net.Listener
	accepted  []atomic.Int64 // by worker
	relayed   atomic.Int64
	mu        sync.Mutex
	conns     []net.Conn
	killed    bool
}

// startProxy starts a proxy with the given number of workers for each family.
func startProxy(t testing.TB, workers int, families ...family) *proxy {
	t.Helper()
	p := frozenProxy(t, workers, families...)
	p.accept()
	return p
}

// frozenProxy starts a proxy that accepts no connections yet.
func frozenProxy(t testing.TB, workers int, families ...family) *proxy {
	t.Helper()
	var p *proxy
	process.Retry(t, func() error { // the previous proxy's sockets may not be closed yet
		p = &proxy{t: t, accepted: make([]atomic.Int64, workers)}
		err := p.listen(workers, families)
		if err != nil {
			p.kill()
		}
		return err
	})
	t.Cleanup(p.kill)
	return p
}

// listen opens the listener for relayed connections, and then the workers' for each family.
func (p *proxy) listen(workers int, families []family) error {
	shared := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	second, err := shared.Listen(context.Background(), "tcp4", fmt.Sprintf("127.0.0.1:%d", twin))
	if err != nil {
		return err
	}
	p.listeners = append(p.listeners, second)
	for _, f := range families {
		for range workers {
			sock, err := open(context.Background(), f, port, false)
			if err != nil {
				return err
			}
			p.listeners = append(p.listeners, sock.listener)
		}
	}
	return nil
}

func (p *proxy) accept() {
	for i, l := range p.listeners {
		if i == 0 {
			go p.serve(l, func(c net.Conn) (netip.AddrPort, io.Reader) {
				p.relayed.Add(1)
				r := bufio.NewReader(c)
				return destinationIn(r), r
			})
			continue
		}
		go p.serve(l, func(c net.Conn) (netip.AddrPort, io.Reader) {
			p.accepted[(i-1)%len(p.accepted)].Add(1)
			to, _ := originalDestination(c.(*net.TCPConn))
			return to, c
		})
	}
}

func (p *proxy) serve(l net.Listener, destination func(net.Conn) (netip.AddrPort, io.Reader)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns = append(p.conns, c)
		if p.killed {
			c.Close()
		}
		p.mu.Unlock()
		go func() {
			defer c.Close()
			to, r := destination(c)
			fmt.Fprintln(c, to)
			n, _ := io.Copy(c, r)
			fmt.Fprintf(c, "%d bytes\n", n)
		}()
	}
}

// kill ends the proxy as SIGKILL would.
func (p *proxy) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.listeners {
		l.Close()
	}
	for _, c := range p.conns {
		c.Close()
	}
	p.listeners, p.conns, p.killed = nil, nil, true
}

func TestHeader(t *testing.T) {
	got := header(netip.MustParseAddrPort("10.0.0.1:258"), netip.MustParseAddrPort("10.0.0.2:80"))
	want := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x01\x0a\x00\x00\x02\x01\x02\x00\x50"
	if string(got) != want {
		t.Errorf("header\n%q, want\n%q", got, want)
	}
	to := netip.MustParseAddrPort("[fd00::1]:443")
	got = header(netip.MustParseAddrPort("[fd00::2]:1"), to)
	if back := destinationIn(bytes.NewReader(got)); len(got) != 52 || got[13] != 0x21 || back != to {
		t.Errorf("header %q of IPv6", got)
	}
}

// destinationIn reads a PROXY protocol header, and no byte after it, and returns the destination.
func destinationIn(r io.Reader) netip.AddrPort {
	fixed := make([]byte, len(signature)+4)
	io.ReadFull(r, fixed)
	rest := make([]byte, binary.BigEndian.Uint16(fixed[len(fixed)-2:]))
	io.ReadFull(r, rest)
	if len(rest) < 4 {
		return netip.AddrPort{}
	}
	addresses, ports := rest[:len(rest)-4], rest[len(rest)-4:]
	to, _ := netip.AddrFromSlice(addresses[len(addresses)/2:])
	return netip.AddrPortFrom(to, binary.BigEndian.Uint16(ports[2:]))
}

// dial connects to an address, or ends the test.
func dial(t testing.TB, to string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", to, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// line reads one line, or returns the error as text.
func line(c net.Conn) string {
	var b strings.Builder
	one := make([]byte, 1)
	for {
		if _, err := c.Read(one); err != nil {
			return b.String() + err.Error()
		}
		if one[0] == '\n' {
			return b.String()
		}
		b.WriteByte(one[0])
	}
}

// callers connect repeatedly until they are stopped.
type callers struct {
	wg                  sync.WaitGroup
	stop                atomic.Bool
	made, refused, lost atomic.Int64 // lost: were in the queue of a proxy that was killed
	first               atomic.Value // first error of a refused connection
}

func (c *callers) gather(n int) {
	for range n {
		c.wg.Go(func() {
			for !c.stop.Load() {
				c.call()
			}
		})
	}
}

func (c *callers) leave() {
	c.stop.Store(true)
	c.wg.Wait()
}

func (c *callers) call() {
	conn, err := net.DialTimeout("tcp", target, time.Minute)
	c.made.Add(1)
	switch {
	case errors.Is(err, unix.ECONNRESET):
		c.lost.Add(1)
		return
	case err != nil:
		c.refused.Add(1)
		c.first.CompareAndSwap(nil, err.Error())
		return
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	if line(conn) != target {
		c.lost.Add(1)
	}
	reset(conn.(*net.TCPConn))
}

func (c *callers) String() string {
	return fmt.Sprintf("%d connections, %d refused, %d lost, first error: %v", c.made.Load(), c.refused.Load(), c.lost.Load(), c.first.Load())
}
