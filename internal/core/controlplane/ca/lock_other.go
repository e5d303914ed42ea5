//go:build !unix

package ca

import (
	"errors"
	"fmt"
	"os"
)

// lock always fails: an authority's folder and a file of used tokens need a Unix system. Commands that
// read the authority in a cluster need neither.
func lock(f *os.File) error { return fmt.Errorf("locking %s: %w", f.Name(), errors.ErrUnsupported) }
