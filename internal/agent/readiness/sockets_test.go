package readiness

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

const title = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

const (
	line4 = "   0: 0100007F:3A99 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1337        0 1063 1 00000000149b973f 100 0 0 10 0\n"
	line6 = "   1: B80D01200000000000000000010000000:3AAE 00000000000000000000000000000000:0000 02 00000000:00000000 00:00000000 00000000  1000        0 77 1 x\n"
)

func TestSocketsAreRead(t *testing.T) {
	ok6 := strings.Replace(line6, "B80D01200000000000000000010000000", "B80D0120000000000000000001000000", 1)
	var got []Socket
	for s, err := range Sockets(strings.NewReader(title + line4 + ok6)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s)
	}
	want := []Socket{
		{netip.MustParseAddrPort("127.0.0.1:15001"), netip.MustParseAddrPort("0.0.0.0:0"), listen, 1337, 1063},
		{netip.MustParseAddrPort("[2001:db8::1]:15022"), netip.MustParseAddrPort("[::]:0"), synSent, 1000, 77},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestALineThatTheKernelDoesNotWriteIsAnError(t *testing.T) {
	for name, line := range map[string]string{
		"too short":       "0: 0100007F:3A99\n",
		"address":         line6,
		"port":            strings.Replace(line4, ":3A99", ":XX", 1),
		"no port":         strings.Replace(line4, ":3A99", "", 1),
		"state":           strings.Replace(line4, " 0A ", " 0G ", 1),
		"user":            strings.Replace(line4, " 1337 ", " -1 ", 1),
		"inode":           strings.Replace(line4, " 1063 ", " x ", 1),
		"a line too long": strings.Repeat("x", 100_000),
	} {
		var last error
		for _, err := range Sockets(strings.NewReader(title + line)) {
			last = err
		}
		if last == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzSockets(f *testing.F) {
	f.Add([]byte(title + line4))
	f.Add([]byte(title + line6))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for s, err := range Sockets(bytes.NewReader(raw)) {
			if err == nil && (!s.Local.IsValid() || !s.Remote.IsValid()) {
				t.Errorf("%+v without an error", s)
			}
		}
	})
}

// bind listens as a user, with SO_REUSEPORT as the standby and Envoy do.
func bind(t *testing.T, n *ns.Namespace, uid int, address string) net.Listener {
	t.Helper()
	var ln net.Listener
	n.As(uid, uid, func() {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			})
		}}
		var err error
		if ln, err = lc.Listen(context.Background(), "tcp", address); err != nil {
			t.Error(err)
		}
	})
	if ln == nil {
		t.FailNow()
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// proc is /proc as a thread in the namespace sees it, with some process's descriptors.
func proc(t *testing.T, n *ns.Namespace, self string) string {
	t.Helper()
	dir := t.TempDir()
	n.Do(func() {
		for _, name := range []string{"tcp", "tcp6"} {
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
	if err := os.Symlink(self, filepath.Join(dir, "self")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOwnSocketsAreNotEnvoys(t *testing.T) {
	n := ns.New(t)
	bind(t, n, 1337, "0.0.0.0:15001")
	bind(t, n, 1337, "[::]:15006")
	bind(t, n, 1000, "0.0.0.0:15007") // another user's
	other := t.TempDir()              // a process that has none of them open
	if err := os.MkdirAll(filepath.Join(other, "self", "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		proc string
		want []uint16
	}{
		"all are this process's, as the standby's are": {"/proc", []uint16{15001, 15006, 15007, 15008}},
		"they are another process's, as Envoy's are":   {other, []uint16{15007, 15008}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []uint16
			var err error
			n.Do(func() { got, err = Listening(tt.proc, 1337, 15001, 15006, 15007, 15008) })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBothWaysToListListenersAgree(t *testing.T) {
	n := ns.New(t)
	bind(t, n, 1337, "0.0.0.0:15001")
	bind(t, n, 1000, "[::1]:15006")
	var diag []Socket
	var err error
	n.Do(func() { diag, err = diagListeners() })
	if err != nil {
		t.Fatal(err)
	}
	files, err := procListeners(proc(t, n, "/proc/self"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i].Remote = netip.AddrPort{} // listeners have none
	}
	if diff := cmp.Diff(files, diag, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" || len(diag) != 2 {
		t.Errorf("%d sockets (-proc +diag):\n%s", len(diag), diff)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if found, _, err := parseAnswers(raw); err != nil && found != nil {
			t.Errorf("%v and %v", found, err)
		}
	})
}

func TestParkedConnectionsAreOthersThatWait(t *testing.T) {
	n := ns.Pod(t) // nobody answers at the other end
	for _, uid := range []int{1000, 1000, 1337} {
		n.As(uid, uid, func() {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { unix.Close(fd) })
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{10, 9, 0, 7}}); err != unix.EINPROGRESS {
				t.Error(err)
			}
		})
	}
	got, err := Parked(proc(t, n, "/proc/self"), 1337)
	if err != nil || got != 2 {
		t.Errorf("%d parked, %v; want 2", got, err)
	}
}

func TestWithoutATableThereIsAnError(t *testing.T) {
	if _, err := procListeners(t.TempDir()); err == nil {
		t.Error("nothing was read, and nothing said")
	}
	if _, err := Parked(t.TempDir(), 1); err == nil {
		t.Error("nothing was read, and nothing said")
	}
}

// BenchmarkListening is one look with a number of connections beside.
func BenchmarkListening(b *testing.B) {
	for _, connections := range []int{0, 2000} {
		b.Run(strconv.Itoa(connections)+" connections", func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			for range connections / 2 {
				c, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
			}
			for b.Loop() {
				if _, err := Listening("/proc", uint32(os.Getuid()), 15001, 15006); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
