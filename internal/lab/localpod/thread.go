package localpod

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A space is a namespace of the kernel. It exists while its file is open.
type space struct {
	kind int // CLONE_NEWNET and so on
	file *os.File
}

// spaceNames maps the kinds of namespaces to their file names in /proc/PID/ns.
var spaceNames = map[int]string{
	unix.CLONE_NEWNET: "net", unix.CLONE_NEWIPC: "ipc", unix.CLONE_NEWUTS: "uts", unix.CLONE_NEWPID: "pid", unix.CLONE_NEWNS: "mnt",
}

// openSpace opens a namespace of a process, given by its ID or as "thread-self".
func openSpace(of string, kind int) (space, error) {
	f, err := os.Open("/proc/" + of + "/ns/" + spaceNames[kind])
	return space{kind, f}, err
}

func (s space) Close() {
	if s.file != nil {
		s.file.Close()
	}
}

// enter moves the thread into the namespace. It fails if the space is closed. This can happen, because an
// abandoned connection attempt may still run when its node is closed. The file's number may then refer to another
// namespace, so the number alone is not enough.
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

// inside runs f on a separate thread in these namespaces, and waits for it. Processes that f starts run there,
// and sockets that it creates stay there. A PID namespace applies only to processes that f starts, not to f
// itself.
func inside(f func() error, spaces ...space) error {
	return onThread(func() error {
		for _, s := range spaces {
			if s.kind == unix.CLONE_NEWNS {
				// A thread that shares its root directory with others cannot enter a mount namespace.
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

// onThread runs f on a thread that exits afterwards. It never uses the first thread of the process: that cannot
// exit alone, and other programs regard its namespaces as those of the process.
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
