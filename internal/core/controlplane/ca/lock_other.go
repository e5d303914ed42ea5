//go:build !unix

package ca

import (
	"errors"
	"fmt"
	"os"
)

// lock always fails: an authority's folder, and a file of used tokens, need a Unix. What reads
// the authority of a cluster needs neither.
func lock(f *os.File) error { return fmt.Errorf("locking %s: %w", f.Name(), errors.ErrUnsupported) }
