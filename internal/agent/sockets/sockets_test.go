package sockets

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

// proc is /proc/net as a thread in the namespace sees it.
func proc(t *testing.T, n *ns.Namespace) string {
	t.Helper()
	dir := t.TempDir()
	n.Do(func() {
		for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
			raw, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				t.Error(err)
			}
			os.MkdirAll(filepath.Join(dir, "net"), 0o755)
			if err := os.WriteFile(filepath.Join(dir, "net", name), raw, 0o644); err != nil {
				t.Error(err)
			}
		}
	})
	return dir
}

// open makes a socket as a user.
func open(t *testing.T, n *ns.Namespace, uid int, network, address string) (port uint16) {
	t.Helper()
	n.As(uid, uid, func() {
		switch network[:3] {
		case "udp":
			c, err := net.ListenPacket(network, address)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			port = uint16(c.LocalAddr().(*net.UDPAddr).Port)
		default:
			l, err := net.Listen(network, address)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { l.Close() })
			port = uint16(l.Addr().(*net.TCPAddr).Port)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return port
}

// connect makes a connection as a user to a listener that never accepts.
func connect(t *testing.T, n *ns.Namespace, uid int, to string) *net.TCPConn {
	t.Helper()
	var c net.Conn
	n.As(uid, uid, func() {
		var err error
		if c, err = net.Dial("tcp", to); err != nil {
			t.Error(err)
		}
	})
	if c == nil {
		t.FailNow()
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func TestBothWaysAgree(t *testing.T) {
	n := ns.New(t)
	open(t, n, 1337, "tcp4", "0.0.0.0:15001")
	open(t, n, 1000, "tcp6", "[::1]:15006")
	open(t, n, 1000, "udp4", "127.0.0.1:53")
	open(t, n, 1337, "udp6", "[::]:53")
	connect(t, n, 1000, "127.0.0.1:15001")
	for name, tt := range map[string]struct {
		protocol Protocol
		states   States
		want     int
	}{
		"listeners":                 {TCP, Of(Listening), 2},
		"both ends of a connection": {TCP, Of(Established), 2},
		"all of TCP":                {TCP, Any, 4},
		"nothing":                   {TCP, Of(SynSent), 0},
		"all of UDP":                {UDP, Any, 2},
		"two states, one of them without a socket": {TCP, Of(SynSent, Listening), 2},
	} {
		t.Run(name, func(t *testing.T) {
			var diag []Socket
			var err error
			n.Do(func() { diag, err = Diag(tt.protocol, tt.states) })
			if err != nil {
				t.Fatal(err)
			}
			files, err := Proc(proc(t, n), tt.protocol, tt.states)
			if err != nil {
				t.Fatal(err)
			}
			for i := range diag {
				diag[i].V6Only = false // the files do not tell
			}
			for _, list := range [][]Socket{diag, files} {
				slices.SortFunc(list, func(a, b Socket) int {
					return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
				})
			}
			if diff := gocmp.Diff(files, diag, same); diff != "" || len(diag) != tt.want {
				t.Errorf("%d sockets, want %d (-proc +diag):\n%s", len(diag), tt.want, diff)
			}
		})
	}
}

func TestOnlyDiagTellsTheDeviceAndIPv6Alone(t *testing.T) {
	n := ns.New(t)
	open(t, n, 1337, "tcp6", "[::]:1")
	open(t, n, 1337, "tcp", ":2")
	n.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { unix.Close(fd) })
		err = errors.Join(unix.BindToDevice(fd, "lo"), unix.Bind(fd, &unix.SockaddrInet4{Port: 3}), unix.Listen(fd, 1))
		if err != nil {
			t.Error(err)
		}
	})
	var got []Socket
	var err error
	n.Do(func() { got, err = Diag(TCP, Of(Listening)) })
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint16]Socket{1: {V6Only: true}, 2: {}, 3: {Device: 1}}
	for _, s := range got {
		if w := want[s.Local.Port()]; s.V6Only != w.V6Only || s.Device != w.Device {
			t.Errorf("%+v, want %+v", s, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d listeners, want %d", len(got), len(want))
	}
}

func TestFind(t *testing.T) {
	for _, address := range []string{"127.0.0.1:15001", "[::1]:15001"} {
		t.Run(address, func(t *testing.T) {
			n := ns.New(t)
			to := netip.MustParseAddrPort(address)
			open(t, n, 1337, "tcp", address)
			c := connect(t, n, 1000, address)
			from := c.LocalAddr().(*net.TCPAddr).AddrPort()
			find := func(local, remote netip.AddrPort) (s Socket, err error) {
				n.Do(func() { s, err = Find(local, remote) })
				return s, err
			}
			if s, err := find(from, to); err != nil || s.State != Established || s.UID != 1000 || s.Inode == 0 || s.Local != from || s.Remote != to {
				t.Errorf("the caller's: %+v, %v", s, err)
			}
			if s, err := find(to, netip.AddrPortFrom(from.Addr(), 1)); err != nil || s.State != Listening || s.UID != 1337 {
				t.Errorf("no connection to a listener: %+v, %v", s, err)
			}
			if s, err := find(netip.AddrPortFrom(from.Addr(), 1), to); !errors.Is(err, unix.ENOENT) {
				t.Errorf("no connection: %+v, %v; want ENOENT", s, err)
			}
			c.Close() // the other end is never accepted, and so stays
			if s, err := find(from, to); err != nil || s.Inode != 0 {
				t.Errorf("closed: %+v, %v; want no inode", s, err)
			}
		})
	}
}

func TestOthers(t *testing.T) {
	n := ns.New(t)
	others := func() int {
		var got int
		var err error
		n.Do(func() { got, err = Others(1337) })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	open(t, n, 1337, "tcp", "127.0.0.1:15001")
	open(t, n, 1337, "udp", "127.0.0.1:15053")
	if got := others(); got != 0 {
		t.Errorf("%d sockets of others where all are its own", got)
	}
	c := connect(t, n, 1000, "127.0.0.1:15001")
	open(t, n, 1000, "udp6", "[::1]:53")
	open(t, n, 1000, "udp4", "127.0.0.1:53")
	open(t, n, 1000, "tcp6", "[::1]:80")
	if got := others(); got != 4 {
		t.Errorf("%d sockets of others, want 4", got)
	}
	c.Close() // what is left of it no process has open
	if got := others(); got != 3 {
		t.Errorf("%d sockets of others after one closed, want 3", got)
	}
}

func FuzzAnswer(f *testing.F) {
	answer := make([]byte, answerLen)
	answer[0] = unix.AF_INET6
	f.Add(append(answer, 5, 0, attributeV6Only, 0, 1, 0, 0, 0))
	f.Add(answer)
	f.Add(answer[:answerLen-1])
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := parseAnswer(raw); err == nil && (len(raw) < answerLen || !s.Local.IsValid() || !s.Remote.IsValid()) {
			t.Errorf("%+v from %d bytes", s, len(raw))
		}
	})
}

// BenchmarkList is one look, both ways, with a number of connections beside.
func BenchmarkList(b *testing.B) {
	for _, connections := range []int{0, 2000} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		for range connections / 2 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
		}
		for _, way := range []struct {
			name string
			list func(Protocol, States) ([]Socket, error)
		}{
			{"sock_diag", Diag},
			{"proc", func(p Protocol, s States) ([]Socket, error) { return Proc("/proc", p, s) }},
		} {
			for what, ask := range map[string]func() error{
				"listeners": func() error { _, err := way.list(TCP, Of(Listening)); return err },
				"everything": func() error {
					_, err := way.list(TCP, Any&^Of(TimeWait))
					_, again := way.list(UDP, Any)
					return errors.Join(err, again)
				},
			} {
				b.Run(way.name+"/"+what+"/"+strconv.Itoa(connections)+" connections", func(b *testing.B) {
					for b.Loop() {
						if err := ask(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
