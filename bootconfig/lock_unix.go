//go:build unix && !solaris && !illumos && !aix

package bootconfig

import (
	"errors"
	"os"
	"syscall"
)

const renamesOpenFiles = true

// lock takes the lock of a file, which ends when the file is closed or the process ends, or
// returns false if another open file has it.
func lock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
