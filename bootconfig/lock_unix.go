//go:build unix && !solaris && !illumos && !aix

package bootconfig

import (
	"errors"
	"os"
	"syscall"
)

const renamesOpenFiles = true

// lock locks a file until it is closed or the process ends. It returns false if the file is already locked
// through another open file.
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
