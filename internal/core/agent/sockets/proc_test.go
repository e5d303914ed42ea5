package sockets

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	title = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line4 = "   0: 0100007F:3A99 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1337        0 1063 1 00000000149b973f 100 0 0 10 0\n"
	line6 = "   1: B80D0120000000000000000001000000:3AAE 00000000000000000000000000000000:0000 02 0000000A:00000010 00:00000000 00000000  1000        0 77 1 x\n"
)

func TestReadTable(t *testing.T) {
	got, err := readTable(strings.NewReader(title+line4+line6), Any)
	if err != nil {
		t.Fatal(err)
	}
	want := []Socket{
		{Local: netip.MustParseAddrPort("127.0.0.1:15001"), Remote: netip.MustParseAddrPort("0.0.0.0:0"), State: Listening, UID: 1337, Inode: 1063},
		{Local: netip.MustParseAddrPort("[2001:db8::1]:15022"), Remote: netip.MustParseAddrPort("[::]:0"), State: SynSent, UID: 1000, Inode: 77, Unsent: 10, Unread: 16},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, line := range map[string]string{
		"too short":       "0: 0100007F:3A99\n",
		"address":         strings.Replace(line6, "B80D", "B80D0", 1),
		"half an address": strings.Replace(line6, "B80D0120", "", 1),
		"port":            strings.Replace(line4, ":3A99", ":XX", 1),
		"no port":         strings.Replace(line4, ":3A99", "", 1),
		"state":           strings.Replace(line4, " 0A ", " 0G ", 1),
		"queues":          strings.Replace(line6, "0000000A:", "0000000A", 1),
		"user":            strings.Replace(line4, " 1337 ", " -1 ", 1),
		"inode":           strings.Replace(line4, " 1063 ", " x ", 1),
		"a line too long": strings.Repeat("x", 100_000),
	} {
		if all, err := readTable(strings.NewReader(title+line), Any); err == nil {
			t.Errorf("%s: read as %v, want an error", name, all)
		}
	}
}

func FuzzReadTable(f *testing.F) {
	f.Add([]byte(title + line4))
	f.Add([]byte(title + line6))
	f.Fuzz(func(t *testing.T, raw []byte) {
		all, err := readTable(bytes.NewReader(raw), Any)
		for _, s := range all {
			if err == nil && (!s.Local.IsValid() || !s.Remote.IsValid()) {
				t.Errorf("%+v without an error", s)
			}
		}
	})
}

// Without netlink, List reads /proc/net: a seccomp profile may forbid netlink, and a sandboxed
// kernel may lack sock_diag.
func TestWithoutNetlinkTheTablesAreRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here := l.Addr().(*net.TCPAddr).AddrPort()
	withoutNetlink(t, func() {
		if _, err := diag(TCP, Of(Listening)); !errors.Is(err, unix.EPERM) {
			t.Errorf("sock_diag: %v, want %v: the filter does nothing", err, unix.EPERM)
		}
		all, err := List(TCP, Of(Listening))
		if err != nil || !slices.ContainsFunc(all, func(s Socket) bool { return s.Local == here && s.Inode != 0 }) ||
			slices.ContainsFunc(all, func(s Socket) bool { return s.State != Listening }) {
			t.Errorf("%v, %v: want listening sockets, %s among them", all, err, here)
		}
		if n, err := Others(1 << 30); err != nil || n == 0 {
			t.Errorf("%d sockets of others, %v", n, err)
		}
		if _, err := List(Protocol(1), Any); !errors.Is(err, unix.EPERM) {
			t.Errorf("a protocol without a table: %v, want %v in it", err, unix.EPERM)
		}
	})
}

// withoutNetlink calls f on a thread that may not create netlink sockets. The thread ends after
// f, because a seccomp filter cannot be removed.
func withoutNetlink(t *testing.T, f func()) {
	t.Helper()
	jump := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	load := func(offset uint32) unix.SockFilter { // offset in struct seccomp_data
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	filter := []unix.SockFilter{
		load(0), jump(unix.SYS_SOCKET, 3), // nr
		load(16), jump(unix.AF_NETLINK, 1), // args[0]
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := errors.Join(
			unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
			unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0))
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
