package status

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/test/ns"
)

func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

func TestOnTheSocketOtherUsersGetReadinessOnly(t *testing.T) {
	ns.RequireRoot(t)
	dir, err := os.MkdirTemp("/tmp", "socket") // a directory that other users may enter
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "agent.sock")
	stale, err := net.Listen("unix", path) // the socket of an agent that was killed
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	start(t, func(o *Options) { o.Socket = path })
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "client") // where other users may run it
	if err := os.WriteFile(copied, exe, 0o755); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]string{0: "503 200 200", 1000: "503 403 403"} {
		cmd := exec.Command(copied)
		cmd.Env = append(os.Environ(), socketEnv+"="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != want || err != nil {
			t.Errorf("uid %d: %s, %v; want %s", uid, got, err, want)
		}
	}
}

func TestAFileInTheSocketsPlaceIsNotTakenAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Board: readiness.New(readiness.Options{}), Journal: NewJournal(JournalOptions{}), Ports: []uint16{0}, Socket: path}
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	if raw, _ := os.ReadFile(path); string(raw) != "mine" {
		t.Errorf("it is %q now", raw)
	}
	if _, err := Listen(Options{}); err == nil {
		t.Error("no board, and no error")
	}
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o.Socket, o.Ports = "", []uint16{0, uint16(taken.Addr().(*net.TCPAddr).Port)}
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "status port") {
		t.Errorf("error %v", err)
	}
}
