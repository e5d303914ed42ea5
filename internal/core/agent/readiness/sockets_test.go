package readiness

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

// bind listens as a user, with SO_REUSEPORT like the standby and Envoy.
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

func TestOwnSocketsAreNotEnvoys(t *testing.T) {
	n := ns.New(t)
	bind(t, n, 1337, "0.0.0.0:15001")
	bind(t, n, 1337, "[::]:15006")
	bind(t, n, 1000, "0.0.0.0:15007") // a socket of another user
	other := t.TempDir()              // the /proc of a process that has none of the sockets open
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

func TestParkedConnectionsAreOthersThatWait(t *testing.T) {
	n := ns.Pod(t) // the other end does not answer
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
	var got int
	var err error
	n.Do(func() { got, err = Parked(1337) })
	if err != nil || got != 2 {
		t.Errorf("%d parked, %v; want 2", got, err)
	}
}
