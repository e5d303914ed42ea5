// Package ns creates network namespaces for tests and runs functions inside them.
//
// A namespace lives as long as its file descriptor: it is not bound in the file
// system, so a test that is killed leaves nothing behind.
package ns

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A Namespace is a network namespace of a test.
type Namespace struct {
	t  testing.TB
	fd int
}

// RequireRoot skips the test unless it runs as root, which is needed to create namespaces.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// New makes a namespace that is removed with the test. Its loopback is up.
func New(t testing.TB) *Namespace {
	t.Helper()
	n := Empty(t)
	n.Do(func() {
		if err := setUp("lo"); err != nil {
			t.Fatal(err)
		}
	})
	return n
}

// Empty makes a namespace in which nothing is configured.
func Empty(t testing.TB) *Namespace {
	t.Helper()
	RequireRoot(t)
	n := &Namespace{t: t, fd: -1}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		var err error
		n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(n.fd) })
	return n
}

// Do runs f on a thread inside the namespace and waits for it. Sockets that f opens always belong
// to the namespace, and processes that it starts run there.
func (n *Namespace) Do(f func()) {
	n.t.Helper()
	n.As(0, 0, f)
}

// As runs f like Do, with the file system IDs of a user. Sockets and files that f creates belong to that
// user, so that the packet filter's owner matches apply to them.
func (n *Namespace) As(uid, gid int, f func()) {
	n.t.Helper()
	err := onThread(func() error {
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		if gid != 0 {
			if err := unix.Setfsgid(gid); err != nil {
				return err
			}
		}
		if uid != 0 {
			if err := unix.Setfsuid(uid); err != nil {
				return err
			}
		}
		f()
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// Path returns a path of the namespace for the arguments of commands. It is valid while this process runs.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// onThread runs f on a separate thread that ends with f, so that changes of the thread affect no other
// goroutine. It never uses the first thread of the process, which cannot end, and whose namespace is
// the one that /proc/net shows.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(f) // uses another thread, because this goroutine is locked to the first
			return
		}
		returned := false
		defer func() {
			if !returned { // f called t.FailNow
				done <- nil
			}
		}()
		err := f()
		returned = true
		done <- err
	}()
	return <-done
}
