//go:build !unix || solaris || illumos || aix

package bootconfig

import (
	"os"
	"time"
)

const renamesOpenFiles = false

// lock imitates a lock, because the system has none: a file counts as locked for an hour after it was
// written.
func lock(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	return time.Since(info.ModTime()) > time.Hour, nil
}

// syncFolder does nothing, because folders cannot be synced here.
func syncFolder(string) error { return nil }
