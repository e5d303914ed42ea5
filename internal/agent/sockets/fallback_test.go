package sockets

import (
	"errors"
	"net"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutNetlink calls f on a thread that may make no netlink socket, as under a seccomp
// profile. The thread ends with it: nothing takes a filter off again.
func withoutNetlink(t *testing.T, f func()) {
	t.Helper()
	const (
		number   = 0  // struct seccomp_data: nr
		argument = 16 // and the first argument's lower half
	)
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	answer := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	filter := []unix.SockFilter{
		load(number), unless(unix.SYS_SOCKET, 3),
		load(argument), unless(unix.AF_NETLINK, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)),
		answer(unix.SECCOMP_RET_ALLOW),
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

func TestWithoutSockDiagTheTablesAreRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here := l.Addr().(*net.TCPAddr).AddrPort()
	withoutNetlink(t, func() {
		if _, err := Diag(TCP, Of(Listening)); !errors.Is(err, unix.EPERM) {
			t.Errorf("sock_diag: %v, want %v: the test shows nothing", err, unix.EPERM)
		}
		all, err := List(TCP, Of(Listening))
		if err != nil || !slices.ContainsFunc(all, func(s Socket) bool { return s.Local == here && s.State == Listening && s.Inode != 0 }) {
			t.Errorf("%s is not listed: %v, %v", here, all, err)
		}
		if _, err := List(Protocol(1), Any); !errors.Is(err, unix.EPERM) {
			t.Errorf("of a protocol that neither way knows: %v, want why the first way failed too", err)
		}
		if n, err := Others(1 << 30); err != nil || n == 0 {
			t.Errorf("%d sockets of others, %v", n, err)
		}
	})
	if _, err := Diag(TCP, Of(Listening)); err != nil {
		t.Errorf("the filter reaches further than its thread: %v", err)
	}
}
