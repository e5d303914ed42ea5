package wire

import (
	"os"

	"golang.org/x/sys/unix"
)

// mask selects the events that change a directory's files. A write counts when the file is closed.
const mask = unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// openEvents returns an inotify instance, or nil if no instance is left.
func openEvents() *os.File {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "inotify")
}

func watchDir(fd int, dir string) error {
	_, err := unix.InotifyAddWatch(fd, dir, mask)
	return err
}
