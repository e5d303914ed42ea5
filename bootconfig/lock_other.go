//go:build !unix || solaris || illumos || aix

package bootconfig

import (
	"os"
	"time"
)

const renamesOpenFiles = false

// lock has no lock of the system: a file counts as locked for an hour after it was written.
func lock(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	return time.Since(info.ModTime()) > time.Hour, nil
}

// syncFolder does nothing where folders cannot be synced.
func syncFolder(string) error { return nil }
