//go:build unix

package ca

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock waits until no other process has locked the file; closing the file unlocks it.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return nil
}
