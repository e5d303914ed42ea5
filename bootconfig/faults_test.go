//go:build linux

package bootconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process with this variable runs inside the namespaces of TestRealFaults.
const insideEnv = "BOOTCONFIG_TEST_INSIDE"

// The faults are real: of the kernel's network and disk, in namespaces of a separate process, so that
// nothing outside changes and nothing is left behind.
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
	if n := strings.Count(string(out), "    --- PASS"); n < 10 {
		t.Errorf("%d cases passed: the test looks in the wrong place\n%s", n, out)
	}
	t.Logf("%s", out)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// A fault is a configuration server in which a fault can be switched on and off.
type fault struct {
	mu    sync.Mutex
	serve func(net.Conn) // handles each connection
	conns []net.Conn
}

// listen serves the centre at an address, or calls the fault's function if there is one.
func (f *fault) listen(t *testing.T, address string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			serve := f.serve
			f.conns = append(f.conns, conn)
			f.mu.Unlock()
			go serve(conn)
		}
	}()
	return ln
}

func (f *fault) set(serve func(net.Conn)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serve = serve
	for _, conn := range f.conns {
		conn.Close()
	}
	f.conns = nil
}

// fine answers requests with the document n.
func fine(n int) func(net.Conn) {
	return func(conn net.Conn) {
		defer conn.Close()
		buffer := make([]byte, 8192)
		for {
			if _, err := conn.Read(buffer); err != nil {
				return
			}
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nETag: \"%d\"\r\nContent-Length: %d\r\n\r\n%s", n, len(good(n)), good(n))
		}
	}
}

const centreAddress = "10.77.0.1:8080"

func TestInsideTheNamespaces(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		t.Skip("TestRealFaults runs it, in namespaces")
	}
	command(t, "mount", "--make-rprivate", "/")
	command(t, "ip", "link", "set", "lo", "up")
	// A cable with an open end, and without ARP, which would report it: packets sent there are lost.
	command(t, "ip", "link", "add", "hole", "type", "veth", "peer", "name", "far")
	command(t, "ip", "link", "set", "hole", "arp", "off", "up")
	command(t, "ip", "link", "set", "far", "up")
	command(t, "ip", "addr", "add", "10.66.0.1/24", "dev", "hole")
	command(t, "ip", "addr", "add", "10.77.0.1/32", "dev", "lo")

	hold := func(net.Conn) {}
	tests := map[string]struct {
		// begin starts the fault and returns a function that ends it; after that the centre has
		// document 2.
		begin func(t *testing.T, f *fault, ln net.Listener) (end func())
		want  string // part of the error
	}{
		"refused": {func(t *testing.T, f *fault, ln net.Listener) func() {
			ln.Close()
			f.set(fine(2))
			return func() { again := f.listen(t, centreAddress); t.Cleanup(func() { again.Close() }) }
		}, "connection refused"},
		"reset": {func(t *testing.T, f *fault, _ net.Listener) func() {
			f.set(func(conn net.Conn) {
				conn.Read(make([]byte, 1))
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{")
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			})
			return func() { f.set(fine(2)) }
		}, "connection reset"},
		"black hole": {func(t *testing.T, f *fault, _ net.Listener) func() {
			// The route now leads to the cable with the open end; open connections lose their packets
			// too.
			command(t, "ip", "addr", "del", "10.77.0.1/32", "dev", "lo")
			command(t, "ip", "route", "add", "10.77.0.1/32", "dev", "hole")
			f.set(fine(2))
			return func() {
				command(t, "ip", "route", "del", "10.77.0.1/32", "dev", "hole")
				command(t, "ip", "addr", "add", "10.77.0.1/32", "dev", "lo")
			}
		}, "deadline exceeded"},
		"accepts and is silent": {func(_ *testing.T, f *fault, _ net.Listener) func() {
			f.set(hold)
			return func() { f.set(fine(2)) }
		}, "deadline exceeded"},
		"slow": {func(_ *testing.T, f *fault, _ net.Listener) func() {
			f.set(func(conn net.Conn) { // one byte at a time, for longer than the deadline
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
				for range 1000 {
					if _, err := io.WriteString(conn, " "); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
			return func() { f.set(fine(2)) }
		}, "deadline exceeded"},
		"flapping": {func(_ *testing.T, f *fault, _ net.Listener) func() {
			n := 0
			f.set(func(conn net.Conn) {
				f.mu.Lock()
				n++
				fails := n%3 != 0 // two failures in a row, because net/http may retry on a second connection by itself
				f.mu.Unlock()
				defer conn.Close() // each request has its own connection
				if _, err := conn.Read(make([]byte, 8192)); err != nil || fails {
					return
				}
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(good(1)), good(1))
			})
			return func() { f.set(fine(2)) }
		}, "EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := &fault{serve: fine(1)}
			ln := f.listen(t, centreAddress)
			defer ln.Close()
			c := faulty(t, "http://"+centreAddress+"/settings", nil)
			recovers(t, c, tt.want, func() func() { return tt.begin(t, f, ln) })
			f.set(hold)
		})
	}
	t.Run("half open", halfOpen)
	t.Run("DNS is silent, then fails, then answers", dnsFaults)
	t.Run("the disk is full", func(t *testing.T) {
		dir := t.TempDir()
		command(t, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir)
		t.Cleanup(func() { command(t, "umount", dir) })
		fill := filepath.Join(dir, "fill")
		diskFault(t, dir, "no space left", func() {
			data := make([]byte, 4096)
			out, err := os.Create(fill)
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = out.Write(data)
			}
			out.Close()
		}, func() { os.Remove(fill) })
	})
	t.Run("the disk is read-only", func(t *testing.T) {
		dir := t.TempDir()
		command(t, "mount", "-t", "tmpfs", "tmpfs", dir)
		t.Cleanup(func() { command(t, "umount", dir) })
		diskFault(t, dir, "read-only file system",
			func() { command(t, "mount", "-o", "remount,ro", dir) },
			func() { command(t, "mount", "-o", "remount,rw", dir) })
	})
}

// faulty returns a Config whose refreshes the test makes itself, so that it waits for no pause.
func faulty(t *testing.T, address string, transport http.RoundTripper) *Config[settings] {
	t.Helper()
	o, err := Options[settings]{
		Provider: newHTTP(t, address, HTTPOptions{Transport: transport}), Validate: settings.Validate, Timeout: 500 * time.Millisecond,
	}.complete()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := &Config[settings]{o: o, ctx: ctx, end: cancel, fresh: make(chan struct{}), listeners: map[*listener[settings]]struct{}{}}
	c.current.Store(&Snapshot[settings]{Generation: 1})
	return c
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

// recovers starts with document 1, begins the fault, and checks that the value stays until the fault
// ends and document 2 arrives.
func recovers(t *testing.T, c *Config[settings], want string, begin func() (end func())) {
	t.Helper()
	refreshUntil(t, c, "document 1", func(err error) bool { return err == nil })
	end := begin()
	failed := 0
	refreshUntil(t, c, "a failure with "+want, func(err error) bool {
		if got := c.Get().N; got != 1 {
			t.Fatalf("the value is %d during the fault", got)
		}
		if err != nil && strings.Contains(err.Error(), want) {
			failed++
		}
		return failed == 2
	})
	if s := c.Snapshot(); s.Source != FromProvider || s.Confirmed.IsZero() {
		t.Errorf("during the fault: %+v", s)
	}
	end()
	refreshUntil(t, c, "document 2", func(error) bool { return c.Get().N == 2 })
	if s := c.Snapshot(); s.Err != nil || s.Failures != 0 {
		t.Errorf("after the fault: %+v", s)
	}
}

// halfOpen drops the packets of the open connection, so that neither end notices. The fetch on it fails
// at its deadline, and the next fetch must not reuse it.
func halfOpen(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft, of nftables: ", err)
	}
	f := &fault{serve: fine(1)}
	ln := f.listen(t, centreAddress)
	defer ln.Close()
	c := faulty(t, "http://"+centreAddress+"/settings", nil)
	refreshUntil(t, c, "document 1", func(err error) bool { return err == nil })
	f.mu.Lock()
	port := f.conns[len(f.conns)-1].RemoteAddr().(*net.TCPAddr).Port
	f.serve = fine(2)
	f.mu.Unlock()
	command(t, "nft", fmt.Sprintf("add table inet half; add chain inet half in { type filter hook input priority 0; }; add rule inet half in tcp sport %d drop; add rule inet half in tcp dport %d drop", port, port))
	t.Cleanup(func() { command(t, "nft", "delete table inet half") })
	if _, err := c.refreshOnce(); !errors.Is(err, context.DeadlineExceeded) || c.Get().N != 1 {
		t.Fatalf("on the dead connection: %v, value %d", err, c.Get().N)
	}
	if _, err := c.refreshOnce(); err != nil || c.Get().N != 2 {
		t.Errorf("the next fetch: %v, value %d", err, c.Get().N)
	}
}

// dnsFaults makes the process' own resolver read a resolv.conf with the test's server.
func dnsFaults(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "mount", "--bind", conf, "/etc/resolv.conf")
	t.Cleanup(func() { command(t, "umount", "/etc/resolv.conf") })
	server, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var mu sync.Mutex
	mode := "answers"
	set := func(m string) { mu.Lock(); mode = m; mu.Unlock() }
	go func() {
		buffer := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			answer := dnsAnswer(buffer[:n], mode)
			mu.Unlock()
			if answer != nil {
				server.WriteTo(answer, from)
			}
		}
	}()
	f := &fault{serve: fine(1)}
	ln := f.listen(t, centreAddress)
	defer ln.Close()
	transport := &http.Transport{
		DialContext:       (&net.Dialer{Resolver: &net.Resolver{PreferGo: true}}).DialContext,
		DisableKeepAlives: true, // so that each fetch resolves the name
	}
	c := faulty(t, "http://centre.test:8080/settings", transport)
	recovers(t, c, "centre.test", func() func() {
		set("silent")
		refreshUntil(t, c, "a failure", func(err error) bool { return err != nil })
		set("fails")
		return func() { f.set(fine(2)); set("answers") }
	})
}

// dnsAnswer answers a query for an IPv4 address with the centre's, and other queries with no record.
func dnsAnswer(q []byte, mode string) []byte {
	if mode == "silent" || len(q) < 17 {
		return nil
	}
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5 // the root label, type and class
	if end > len(q) {
		return nil
	}
	out := append([]byte{}, q[:end]...)
	out[2], out[3] = 0x81, 0x80
	copy(out[4:12], []byte{0, 1, 0, 0, 0, 0, 0, 0})
	if mode == "fails" {
		out[3] |= 2 // SERVFAIL
		return out
	}
	if q[end-3] == 1 { // type A
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 10, 77, 0, 1)
	}
	return out
}

// diskFault checks that changes come into use while the disk cannot be written, and that the last one
// is on disk after that.
func diskFault(t *testing.T, dir, want string, begin, end func()) {
	t.Helper()
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
	// The refresh of c hangs. The test makes the refreshes of another Config that shares its store.
	driven := &Config[settings]{o: c.o, ctx: c.ctx, end: c.end, fresh: make(chan struct{}), store: c.store, listeners: map[*listener[settings]]struct{}{}}
	driven.o.Provider = provider
	driven.current.Store(&Snapshot[settings]{Generation: 1})
	written := func() bool { return c.store.next.Load() == nil }
	refreshUntil(t, driven, "document 1 on disk", func(error) bool { return written() })
	begin()
	n = 2
	refreshUntil(t, driven, "a report of the disk", func(error) bool {
		reported.mu.Lock()
		defer reported.mu.Unlock()
		return strings.Contains(strings.Join(reported.all, "\n"), want)
	})
	if got := driven.Get().N; got != 2 {
		t.Errorf("the value is %d; a disk must not keep it from changing", got)
	}
	if got := valid(t, filepath.Join(dir, "last")); got != 1 {
		t.Errorf("document %d is on disk; want 1", got)
	}
	got := temps(t, dir)
	for range 500 { // a write may be in progress: each refresh retries
		if len(got) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
		got = temps(t, dir)
	}
	if len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
	end()
	refreshUntil(t, driven, "document 2 on disk", func(error) bool { return written() })
	if got := valid(t, filepath.Join(dir, "last")); got != 2 {
		t.Errorf("document %d is on disk; want 2", got)
	}
}
