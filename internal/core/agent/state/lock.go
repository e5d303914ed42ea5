package state

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the write lock on f, which must be open for writing and not shared.
func lock(f *os.File) error {
	return fcntl(f, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// isLocked reports whether another process holds the write lock on f. It does not touch the
// lock, so a writer never notices its readers.
func isLocked(f *os.File) (bool, error) {
	l := unix.Flock_t{Type: unix.F_RDLCK}
	if err := fcntl(f, unix.F_OFD_GETLK, &l); err != nil {
		return false, err
	}
	return l.Type == unix.F_WRLCK, nil
}

// awaitUnlocked returns when no process holds the write lock on f any more. It blocks a thread
// meanwhile. The read lock that it takes hinders no other process: every record is a new file,
// so an old file is never locked again.
func awaitUnlocked(f *os.File) error {
	return fcntl(f, unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_RDLCK})
}

func fcntl(f *os.File, command int, l *unix.Flock_t) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for {
			if failed = unix.FcntlFlock(fd, command, l); failed != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}
