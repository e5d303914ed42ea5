//go:build linux

package bootconfig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// insideEnv is set in the process that TestRealFaults starts in namespaces of its own.
const insideEnv = "BOOTCONFIG_TEST_INSIDE"

// The test makes real faults of the network and of the disk. A separate process makes them in namespaces of its
// own, which end with it, so nothing outside them changes.
func TestRealFaults(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		t.Skip("this is the process inside; TestInsideTheNamespaces has the cases")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network and mount namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip, of iproute2: ", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInsideTheNamespaces$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "    --- PASS"); n != 2 {
		t.Errorf("%d cases passed, want 2\n%s", n, out)
	}
	t.Logf("%s", out)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

func TestInsideTheNamespaces(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		t.Skip("TestRealFaults runs it, in namespaces")
	}
	command(t, "mount", "--make-rprivate", "/")
	command(t, "ip", "link", "set", "lo", "up")
	t.Run("half open", halfOpen)
	t.Run("the disk is full", diskFull)
}

// refreshUntil refreshes until done returns true, and fails the test after many attempts.
func refreshUntil(t *testing.T, c *Config[settings], what string, done func(error) bool) {
	t.Helper()
	for range 100 {
		_, err := c.refreshOnce() // returns by its deadline, or the test's time limit ends it
		if done(err) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s did not come in 100 refreshes; the last error is %v", what, c.Snapshot().Err)
}

// halfOpen drops the packets of the open connection, so that neither end notices that it is broken. The fetch on
// this connection fails at its deadline, and the next fetch must use a new connection.
func halfOpen(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft, of nftables: ", err)
	}
	n, client := 1, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client = r.RemoteAddr
		w.Write(good(n))
	}))
	defer server.Close()
	o, err := Options[settings]{Provider: newHTTP(t, server.URL, HTTPOptions{}), Validate: settings.Validate, Timeout: 500 * time.Millisecond}.complete()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &Config[settings]{o: o, ctx: ctx, end: cancel, fresh: make(chan struct{}), listeners: map[*listener[settings]]struct{}{}}
	c.current.Store(&Snapshot[settings]{Generation: 1})
	refreshUntil(t, c, "document 1", func(err error) bool { return err == nil })
	_, port, _ := net.SplitHostPort(client)
	n = 2
	command(t, "nft", fmt.Sprintf("add table inet half; add chain inet half in { type filter hook input priority 0; }; add rule inet half in tcp sport %[1]s drop; add rule inet half in tcp dport %[1]s drop", port))
	t.Cleanup(func() { command(t, "nft", "delete table inet half") })
	if _, err := c.refreshOnce(); !errors.Is(err, context.DeadlineExceeded) || c.Get().N != 1 {
		t.Fatalf("on the dead connection: %v, value %d", err, c.Get().N)
	}
	if _, err := c.refreshOnce(); err != nil || c.Get().N != 2 {
		t.Errorf("the next fetch: %v, value %d", err, c.Get().N)
	}
}

// diskFull checks that changes come into use while the disk is full, and that the last one is written once there
// is space.
func diskFull(t *testing.T) {
	dir := t.TempDir()
	command(t, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir)
	t.Cleanup(func() { command(t, "umount", dir) })
	fill := filepath.Join(dir, "fill")
	n := 1
	var reported collected
	provider := script(func(context.Context, Request) (Document, error) { return Document{fmt.Sprint(n), good(n)}, nil })
	c, err := Open(t.Context(), Options[settings]{
		Provider: script(hang), LastGood: filepath.Join(dir, "last"), OnError: reported.add, Validate: settings.Validate,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The refresh goroutine of c hangs in its provider. The test itself refreshes another Config, which shares
	// the store of c.
	driven := &Config[settings]{o: c.o, ctx: c.ctx, end: c.end, fresh: make(chan struct{}), store: c.store, listeners: map[*listener[settings]]struct{}{}}
	driven.o.Provider = provider
	driven.current.Store(&Snapshot[settings]{Generation: 1})
	written := func() bool { return c.store.next.Load() == nil }
	refreshUntil(t, driven, "document 1 on disk", func(error) bool { return written() })
	os.WriteFile(fill, make([]byte, 1<<20), 0o600) // writes until the disk is full
	n = 2
	refreshUntil(t, driven, "a report of the disk", func(error) bool {
		reported.mu.Lock()
		defer reported.mu.Unlock()
		return strings.Contains(strings.Join(reported.all, "\n"), "no space left")
	})
	if got := driven.Get().N; got != 2 {
		t.Errorf("the value is %d; a disk must not keep it from changing", got)
	}
	if got := valid(t, filepath.Join(dir, "last")); got != 1 {
		t.Errorf("document %d is on disk; want 1", got)
	}
	got := temps(t, dir)
	for range 500 { // each refresh retries a failed write; one may be in progress
		if len(got) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
		got = temps(t, dir)
	}
	if len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
	os.Remove(fill)
	refreshUntil(t, driven, "document 2 on disk", func(error) bool { return written() })
	if got := valid(t, filepath.Join(dir, "last")); got != 2 {
		t.Errorf("document %d is on disk; want 2", got)
	}
}
