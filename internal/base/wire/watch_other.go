//go:build !linux

package wire

import (
	"errors"
	"os"
)

// openEvents returns nil: without inotify, directories are polled.
func openEvents() *os.File { return nil }

func watchDir(int, string) error { return errors.ErrUnsupported }
