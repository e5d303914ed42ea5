//go:build !linux

package wire

import (
	"errors"
	"os"
)

// openEvents returns nil: there is no inotify, so directories are polled.
func openEvents() *os.File { return nil }

func watchDir(int, string) error { return errors.ErrUnsupported }
