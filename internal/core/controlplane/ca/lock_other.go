//go:build !unix

package ca

import (
	"errors"
	"fmt"
	"os"
)

// lock always fails. Only an authority in a folder and a file of used tokens need the lock, so they need a
// Unix system. Commands that read the authority in a cluster work on all systems.
func lock(f *os.File) error { return fmt.Errorf("locking %s: %w", f.Name(), errors.ErrUnsupported) }
