package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// A topology holds the network namespaces that package scenario describes: a pod between the outside (peer) and a
// guest.
type topology struct {
	pod, peer, guest *ns.Namespace
}

func newTopology(t testing.TB) *topology {
	t.Helper()
	top := &topology{pod: ns.New(t), peer: ns.New(t), guest: ns.New(t)}
	ns.Connect(top.pod, "eth0", prefixes("10.9.0.2/24", "fd09::2/64"), top.peer, "eth0", prefixes("10.9.0.1/24", "fd09::1/64"))
	ns.Connect(top.pod, "virt0", prefixes("10.10.0.2/24", "fd10::2/64"), top.guest, "eth0", prefixes("10.10.0.1/24", "fd10::1/64"))
	top.pod.IP("route", "add", "default", "via", "10.9.0.1")
	top.pod.IP("route", "add", "default", "via", "fd09::1")
	top.guest.IP("route", "add", "default", "via", "10.10.0.2")
	top.guest.IP("route", "add", "default", "via", "fd10::2")
	for _, service := range []string{"10.96.0.10/32", "172.16.0.10/32", "fd96::10/128"} {
		top.peer.IP("addr", "add", service, "dev", "lo", "nodad")
	}
	top.peer.IP("route", "add", "10.10.0.0/24", "via", "10.9.0.2")
	top.peer.IP("route", "add", "fd10::/64", "via", "fd09::2")
	top.pod.Do(func() {
		for key, value := range map[string]string{
			"ipv4/ip_forward":          "1",
			"ipv6/conf/all/forwarding": "1",
			// Connection tracking forgets a refused connection at once, instead of after 10 seconds. Otherwise a
			// later call with the same ports would follow the rules under which the first was refused.
			"netfilter/nf_conntrack_tcp_timeout_close": "0",
		} {
			if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
				t.Error(err)
			}
		}
	})
	return top
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// serve starts a server in a namespace, on every address, as a user. It runs until stop is called or the test ends. It
// sends its name, and then echoes.
func serve(t testing.TB, n *ns.Namespace, user int, l trace.Listener, name string) (stop func()) {
	t.Helper()
	n.As(user, user, func() {
		if l.Proto == capture.UDP {
			stop = serveUDP(t, l.Port, name)
			return
		}
		if listener, err := listenTCP(l); err != nil {
			t.Error(err)
		} else {
			stop = func() { end(t, listener) }
			go accept(listener, name)
		}
	})
	if stop == nil {
		t.FailNow()
	}
	t.Cleanup(stop)
	return stop
}

// listenTCP listens on every address in the namespace of the calling thread.
func listenTCP(l trace.Listener) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return transparent(c, l.Transparent) }}
	config.SetMultipathTCP(false)
	return config.Listen(context.Background(), "tcp", "[::]:"+strconv.Itoa(int(l.Port)))
}

// end makes l refuse connections from now on, and closes it. Closing alone is not enough: a process that a parallel
// test starts has a copy of every descriptor until it calls exec. Until then the socket would accept connections, and
// then reset them.
func end(t testing.TB, l net.Listener) {
	socket, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	socket.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_RD) })
	if err != nil && !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("ending the listener at %s: %v", l.Addr(), err)
	}
	l.Close()
}

// serveUDP listens on every address with a separate socket, as name servers do, so that an answer comes from the
// address that was called.
func serveUDP(t testing.TB, port uint16, name string) (stop func()) {
	var conns []net.PacketConn
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Error(err)
	}
	hosts := []netip.Addr{netip.MustParseAddr("127.0.0.53")}
	for _, a := range addrs {
		if p := netip.MustParsePrefix(a.String()); !p.Addr().IsLinkLocalUnicast() {
			hosts = append(hosts, p.Addr())
		}
	}
	for _, host := range hosts {
		address := netip.AddrPortFrom(host, port).String()
		var conn net.PacketConn
		// Retry, because another process may still have a copy of an earlier server's socket: see end.
		process.Eventually(t, address+" is free", func() bool {
			conn, err = net.ListenPacket("udp", address)
			return !errors.Is(err, unix.EADDRINUSE)
		})
		if err != nil {
			t.Error(err)
			continue
		}
		conns = append(conns, conn)
		go answer(conn, name)
	}
	return func() {
		for _, c := range conns {
			c.Close()
		}
	}
}

func transparent(c syscall.RawConn, on bool) error {
	if !on {
		return nil
	}
	var err error
	if cerr := c.Control(func(fd uintptr) {
		// Set both options, because a dual-stack socket needs the IPv4 option too. On other sockets the option of
		// the other family fails.
		err4 := unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
		err6 := unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1)
		if err4 != nil && err6 != nil {
			err = err4
		}
	}); cerr != nil {
		return cerr
	}
	return err
}

func accept(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Fprintln(c, name)
			io.Copy(c, c)
		}()
	}
}

func answer(conn net.PacketConn, name string) {
	buf := make([]byte, 1500)
	for {
		_, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		conn.WriteTo([]byte(name+"\n"), from)
	}
}

// A call describes a connection to make.
type call struct {
	from     *ns.Namespace
	uid, gid int
	proto    uint32
	src      netip.Addr // source address, if valid
	port     uint16     // source port; 0: the kernel chooses
	dst      netip.AddrPort
	mark     int
	notLocal bool // src is not an address of the namespace, so the socket needs IP_TRANSPARENT
	limit    time.Duration
}

// dial makes the connection.
func (c call) dial() (net.Conn, error) {
	conn, _, err := c.attempt()
	return conn, err
}

// attempt makes a connection. The second result is the number of retransmitted SYNs, which is 0 unless the first SYN
// was parked, even on a slow machine.
func (c call) attempt() (conn net.Conn, again int, err error) {
	network := "tcp"
	if c.proto == capture.UDP {
		network = "udp"
	}
	seen := -1 // a copy of the socket's descriptor, to read the counter after a failure too
	d := net.Dialer{Timeout: c.limit, Control: func(_, _ string, raw syscall.RawConn) error {
		if err := transparent(raw, c.notLocal); err != nil {
			return err
		}
		var err error
		if cerr := raw.Control(func(fd uintptr) {
			if c.port == contract.ProbePort { // the last connection from it may be in TIME_WAIT
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			}
			if c.mark != 0 && err == nil {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, c.mark)
			}
			if c.proto != capture.UDP && err == nil {
				seen, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			}
		}); cerr != nil {
			return cerr
		}
		return err
	}}
	if c.src.IsValid() || c.port != 0 {
		d.LocalAddr = &net.TCPAddr{IP: c.src.AsSlice(), Port: int(c.port)}
		if c.proto == capture.UDP {
			d.LocalAddr = &net.UDPAddr{IP: c.src.AsSlice(), Port: int(c.port)}
		}
	}
	c.from.As(c.uid, c.gid, func() { conn, err = d.Dial(network, c.dst.String()) })
	if seen >= 0 {
		again = resent(seen)
		unix.Close(seen)
	}
	return conn, again, err
}

// resent returns the number of retransmissions of a TCP socket, or -1 if that is unknown.
func resent(fd int) int {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return -1
	}
	return int(info.Total_retrans)
}

// talk makes the connection and returns the name of the server that answers.
func (c call) talk() (string, error) {
	conn, err := c.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(max(c.limit, 100*time.Millisecond)))
	if c.proto == capture.UDP {
		if _, err := conn.Write([]byte("?")); err != nil {
			return "", err
		}
	}
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	return strings.TrimSpace(string(buf[:n])), err
}
