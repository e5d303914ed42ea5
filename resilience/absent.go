//go:build !windows

package resilience

import (
	"errors"
	"syscall"
)

// isAbsent reports whether a dial failed because nothing listens there or no route leads there.
func isAbsent(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}
