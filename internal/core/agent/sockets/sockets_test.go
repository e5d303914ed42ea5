package sockets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// open makes a listening or bound socket as a user.
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

// connect connects, as a user, to a listener that never accepts.
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

func TestList(t *testing.T) {
	n := ns.New(t)
	open(t, n, 1337, "tcp4", "0.0.0.0:15001")
	open(t, n, 1000, "tcp6", "[::1]:15006")
	open(t, n, 1000, "udp4", "127.0.0.1:53")
	open(t, n, 1337, "udp6", "[::]:53")
	c := connect(t, n, 1000, "127.0.0.1:15001")
	caller := "1000 " + c.LocalAddr().String() + " 127.0.0.1:15001 established"
	accepted := "1337 127.0.0.1:15001 " + c.LocalAddr().String() + " established, not open"
	outbound, inbound := "1337 0.0.0.0:15001 0.0.0.0:0 listening", "1000 [::1]:15006 [::]:0 listening"
	for name, tt := range map[string]struct {
		protocol Protocol
		states   States
		want     []string
	}{
		"listeners":                 {TCP, Of(Listening), []string{outbound, inbound}},
		"both ends of a connection": {TCP, Of(Established), []string{accepted, caller}},
		"all of TCP":                {TCP, Any, []string{accepted, caller, outbound, inbound}},
		"nothing":                   {TCP, Of(SynSent), nil},
		"all of UDP":                {UDP, Any, []string{"1000 127.0.0.1:53 0.0.0.0:0 state 7", "1337 [::]:53 [::]:0 state 7"}},
		"two states, one of them without a socket": {TCP, Of(SynSent, Listening), []string{outbound, inbound}},
	} {
		t.Run(name, func(t *testing.T) {
			var list []Socket
			var err error
			n.Do(func() { list, err = List(tt.protocol, tt.states) })
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range list {
				got = append(got, text(s))
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("sockets (-want +got):\n%s", diff)
			}
		})
	}
}

// text describes a socket in one line.
func text(s Socket) string {
	state := map[State]string{Established: "established", Listening: "listening"}[s.State]
	if state == "" {
		state = fmt.Sprint("state ", s.State)
	}
	if s.Inode == 0 {
		state += ", not open"
	}
	return fmt.Sprint(s.UID, " ", s.Local, " ", s.Remote, " ", state)
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
			c.Close() // the other end stays, because it is never accepted
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
		t.Errorf("%d sockets of other users, want 0", got)
	}
	c := connect(t, n, 1000, "127.0.0.1:15001")
	open(t, n, 1000, "udp6", "[::1]:53")
	open(t, n, 1000, "udp4", "127.0.0.1:53")
	open(t, n, 1000, "tcp6", "[::1]:80")
	if got := others(); got != 4 {
		t.Errorf("%d sockets of other users, want 4", got)
	}
	c.Close() // the rest of the connection is open in no process
	if got := others(); got != 3 {
		t.Errorf("%d sockets of other users after one was closed, want 3", got)
	}
}

// The processes of a container tell its sockets from those of an application that has the same user.
func TestElsewhere(t *testing.T) {
	n := ns.New(t)
	open(t, n, 1337, "tcp", "127.0.0.1:15001") // the proxy's
	open(t, n, 1337, "udp", "127.0.0.1:8080")  // an application's, of the same user
	open(t, n, 65532, "udp", "127.0.0.1:9090") // another proxy's
	open(t, n, 1000, "udp", "127.0.0.1:53")    // another application's
	inodes := map[uint16]uint32{}
	for _, p := range []Protocol{TCP, UDP} {
		var all []Socket
		n.Do(func() { all, _ = List(p, Any) })
		for _, s := range all {
			inodes[s.Local.Port()] = s.Inode
		}
	}
	const here = "0::/\n"
	for name, c := range map[string]struct {
		cgroup string   // of the second process
		user   string   // of the second process
		open   []uint16 // ports of its sockets
		sealed bool     // it must not be looked into
		apart  []uint32
		want   int
	}{
		"the proxy alone":                    {here, "1337", []uint16{15001}, false, nil, 3},
		"another proxy left apart":           {here, "1337", []uint16{15001}, false, []uint32{65532}, 2},
		"a process of another container":     {"0::/../app\n", "1337", []uint16{8080, 15001}, false, []uint32{1000, 65532}, 2},
		"a process of another user":          {here, "1000", []uint16{15001, 53}, false, []uint32{65532}, 1},
		"all are the container's":            {here, "1337", []uint16{15001, 8080}, false, []uint32{1000, 65532}, 0},
		"a process with secrets of its user": {here, "1337", nil, true, []uint32{1000, 65532}, 0},
	} {
		proc := t.TempDir()
		write := func(pid, name, text string) {
			if err := errors.Join(os.MkdirAll(filepath.Join(proc, pid), 0o755), os.WriteFile(filepath.Join(proc, pid, name), []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		write("self", "cgroup", here)
		write("7", "cgroup", c.cgroup)
		write("7", "status", "Name:\tx\nUid:\t0\t"+c.user+"\t0\t0\n")
		if !c.sealed {
			if err := os.Mkdir(filepath.Join(proc, "7", "fd"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for i, port := range c.open {
			if err := os.Symlink(fmt.Sprintf("socket:[%d]", inodes[port]), filepath.Join(proc, "7", "fd", strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		var got int
		var err error
		n.Do(func() { got, err = elsewhere(proc, c.apart) })
		if err != nil || got != c.want {
			t.Errorf("%s: %d sockets, %v; want %d", name, got, err, c.want)
		}
	}
}

// Each connection counts, also one that is over before anyone looks.
func TestCalls(t *testing.T) {
	n := ns.New(t)
	calls := func() (got uint64) {
		var err error
		n.Do(func() { got, err = Calls() })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	open(t, n, 1337, "tcp", "127.0.0.1:15001")
	before := calls()
	for range 3 {
		connect(t, n, 1000, "127.0.0.1:15001").Close()
	}
	if got := calls() - before; got != 3 {
		t.Errorf("%d calls, want 3", got)
	}
	for name, table := range map[string]string{
		"empty":        "",
		"no numbers":   "Tcp: ActiveOpens\n",
		"short":        "Tcp: MaxConn ActiveOpens\nTcp: 1\n",
		"not a number": "Tcp: ActiveOpens\nTcp: x\n",
		"of others":    "Udp: ActiveOpens\nUdp: 1\n",
	} {
		if n, err := opened(table); err == nil {
			t.Errorf("%s: %d, want an error", name, n)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	answer := make([]byte, answerLen)
	answer[0] = unix.AF_INET6
	f.Add(answer)
	f.Add(answer[:answerLen-1])
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := parseAnswer(raw); err == nil && (len(raw) < answerLen || !s.Local.IsValid() || !s.Remote.IsValid()) {
			t.Errorf("%+v from %d bytes", s, len(raw))
		}
	})
}

// Pending counts the bytes that a user's connections within one machine still have to pass on.
func TestPending(t *testing.T) {
	n := ns.New(t)
	none := func(Socket) bool { return false }
	pending := func(user uint32, apart func(Socket) bool) (bytes uint64) {
		var err error
		n.Do(func() { bytes, err = Pending(user, apart) })
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	var l net.Listener
	n.As(1337, 1337, func() { l, _ = net.Listen("tcp4", "127.0.0.1:15001") })
	if l == nil {
		t.Fatal("no listener")
	}
	t.Cleanup(func() { l.Close() })
	if got := pending(1337, none); got != 0 {
		t.Errorf("a listener: %d; want 0", got)
	}
	c := connect(t, n, 1000, "127.0.0.1:15001")
	if got := pending(1337, none); got != 1 {
		t.Errorf("a connection that is not accepted: %d; want 1", got)
	}
	var s net.Conn
	var err error
	n.As(1337, 1337, func() { s, err = l.Accept() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := c.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if got := pending(1337, none); got != 1000 {
		t.Errorf("1000 bytes that are not read: %d", got)
	}
	if got := pending(1000, none); got != 0 {
		t.Errorf("their sender's: %d; want 0, since they are delivered", got)
	}
	if got := pending(1337, func(s Socket) bool { return s.Local.Port() == 15001 }); got != 0 {
		t.Errorf("without the port: %d; want 0", got)
	}
	c.Close() // the written bytes stay in the kernel
	if got := pending(1337, none); got < 1000 {
		t.Errorf("after the sender has closed: %d; want 1000 and the end", got)
	}
	if _, err := io.ReadFull(s, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got := pending(1337, none); got != 0 {
		t.Errorf("all read: %d; want 0", got)
	}

	// Bytes that an application sent before it closed its socket count until they are delivered.
	c = connect(t, n, 1000, "127.0.0.1:15001")
	n.As(1337, 1337, func() { s, err = l.Accept() })
	if err != nil {
		t.Fatal(err)
	}
	nft := func(rule string) {
		t.Helper()
		n.Do(func() {
			if out, err := exec.Command("nft", rule).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	nft("table inet late { chain out { type filter hook output priority 0; tcp dport 15001 drop; }; }")
	if _, err := c.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got := pending(1337, none); got < 1000 {
		t.Errorf("under way to the user: %d; want 1000 and the end", got)
	}
	nft("delete table inet late")
	if _, err := io.ReadFull(s, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	process.EventuallyEqual(t, "what is pending in the end", uint64(0), func() uint64 { return pending(1337, none) })
}

// Of the listeners of one user, only those that given processes do not have count.
func TestListeners(t *testing.T) {
	pod := ns.New(t)
	user, here := uint32(os.Getuid()), os.Getpid()
	count := func(want int, user uint32, pids ...int) {
		t.Helper()
		pod.Do(func() {
			if n, err := Listeners(user, pids...); n != want || err != nil {
				t.Errorf("user %d without processes %v: %d, %v; want %d", user, pids, n, err, want)
			}
		})
	}
	count(0, user)
	count(0, user+1, here)
	var l net.Listener
	pod.Do(func() { l, _ = net.Listen("tcp", "[::]:0") })
	if l == nil {
		t.Fatal("the test does not listen")
	}
	defer l.Close()
	count(1, user)
	count(1, user, 1)
	count(1, user+1, here)
	count(0, user, here)
	count(0, user, 1, here)
	pod.Do(func() {
		if _, err := Listeners(user, 1<<30); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a process that has ended: %v", err)
		}
	})
}
