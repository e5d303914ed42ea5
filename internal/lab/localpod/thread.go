package localpod

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A space is a namespace, kept by its file.
type space struct {
	kind int // CLONE_NEWNET and so on
	file *os.File
}

// spaceNames are the names of namespaces in /proc/PID/ns.
var spaceNames = map[int]string{
	unix.CLONE_NEWNET: "net", unix.CLONE_NEWIPC: "ipc", unix.CLONE_NEWUTS: "uts", unix.CLONE_NEWPID: "pid", unix.CLONE_NEWNS: "mnt",
}

// openSpace opens a namespace of a process, or of "thread-self".
func openSpace(of string, kind int) (space, error) {
	f, err := os.Open("/proc/" + of + "/ns/" + spaceNames[kind])
	return space{kind, f}, err
}

func (s space) Close() {
	if s.file != nil {
		s.file.Close()
	}
}

// enter moves the thread into the namespace. It is an error of a closed one: a connection that nothing waits for any
// more may still be made when its node is closed, and the file's number may be another's then.
func (s space) enter() error {
	var entered error
	file, err := s.file.SyscallConn()
	if err == nil {
		err = file.Control(func(fd uintptr) { entered = unix.Setns(int(fd), s.kind) })
	}
	if err = errors.Join(err, entered); err != nil {
		return fmt.Errorf("entering the %s namespace: %w", spaceNames[s.kind], err)
	}
	return nil
}

// inside runs f on a thread of its own in these namespaces and waits for it. What f
// starts runs there, and sockets that it makes stay there. A process namespace
// counts for what f starts, not for f.
func inside(f func() error, spaces ...space) error {
	return onThread(func() error {
		for _, s := range spaces {
			if s.kind == unix.CLONE_NEWNS {
				// A thread that shares its root directory with others cannot leave.
				if err := unix.Unshare(unix.CLONE_FS); err != nil {
					return fmt.Errorf("parting from the other threads' root: %w", err)
				}
			}
			if err := s.enter(); err != nil {
				return err
			}
		}
		return f()
	})
}

var errLeft = errors.New("the function left its goroutine")

// onThread runs f on a thread that ends with it. It is never the process's first
// thread: that one cannot end, and others take its namespaces for ours.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		err := errLeft
		defer func() { done <- err }()
		err = f()
	}()
	return <-done
}
