package envoy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

// shares connects Sockets to the socket of a fake Envoy.
func shares(t *testing.T) (*Sockets, *net.UnixConn) {
	t.Helper()
	h, err := NewHotRestart(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	parent, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: h.name("parent", h.base*scale), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { parent.Close() })
	return s, parent
}

var anAddress = netip.MustParseAddrPort("[::]:15001")

func TestRequestForASocket(t *testing.T) {
	const want = "\x00\x00\x00\x00\x00\x00\x00\x18\x0a\x16\x0a\x14\x0a\x10tcp://[::]:15001\x10\x03"
	if got := string(passListenSocket(anAddress, 3)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A late answer to an abandoned request is not taken for the answer to the next one.
func TestCopyAfterALateAnswer(t *testing.T) {
	s, parent := shares(t)
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error)
	go func() {
		_, err := s.Copy(ctx, 1, anAddress)
		given <- err
	}()
	request := make([]byte, 100)
	if _, err := parent.Read(request); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-given; err == nil {
		t.Error("a request that was given up has no error")
	}
	answer := func(fds ...int) {
		t.Helper()
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		child := &net.UnixAddr{Name: s.h.name("child", s.h.base*scale+1), Net: "unixgram"}
		if _, _, err := parent.WriteMsgUnix([]byte("12345678"), rights, child); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	answer(0) // late
	got := make(chan []int)
	go func() {
		fds, err := s.Copy(t.Context(), 2, anAddress)
		if err != nil {
			t.Error(err)
		}
		got <- fds
	}()
	for _, fds := range [][]int{{int(file.Fd())}, nil} { // the fake Envoy has only one worker
		if _, err := parent.Read(request); err != nil {
			t.Fatal(err)
		}
		answer(fds...)
	}
	fds := <-got
	if len(fds) != 1 {
		t.Fatalf("%d sockets, want 1", len(fds))
	}
	defer unix.Close(fds[0])
	if listens, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_ACCEPTCONN); listens != 1 {
		t.Errorf("it is no listening socket: %v", err)
	}
}

// A Copy that waits for its turn can be cancelled, although the exchange before it hangs because
// its Envoy has died.
func TestCopyGivesUpItsTurn(t *testing.T) {
	s, parent := shares(t)
	first, endFirst := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Copy(first, 1, anAddress)
		ended <- err
	}()
	if _, err := parent.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	second, endSecond := context.WithCancel(t.Context())
	endSecond()
	if _, err := s.Copy(second, 1, anAddress); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was given up", err)
	}
	endFirst()
	<-ended
}

// A file system without room for a page is noticed before Envoy writes to it.
func TestNoRoom(t *testing.T) {
	ns.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal("mounting: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	if err := room(dir); err != nil {
		t.Errorf("with a page: %v", err)
	}
	if err := os.WriteFile(dir+"/app", make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := room(dir); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("without one: %v, want that there is no space", err)
	}
}

// A new agent in the same directory leaves no socket of the previous one.
func TestNamesAreUsedAgain(t *testing.T) {
	s, _ := shares(t)
	again, err := NewHotRestart(filepath.Dir(s.h.path))
	if err != nil || again != s.h {
		t.Errorf("%+v, %v; want %+v", again, err, s.h)
	}
}
