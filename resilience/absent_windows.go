package resilience

import (
	"errors"
	"syscall"
)

// WSAENETUNREACH, WSAECONNREFUSED and WSAEHOSTUNREACH. On Windows, syscall.ECONNREFUSED and the like have other
// values.
const netUnreachable, connRefused, hostUnreachable = 10051, 10061, 10065

// isAbsent reports whether a dial failed because nothing listens there or no route leads there.
func isAbsent(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && (errno == connRefused || errno == hostUnreachable || errno == netUnreachable)
}
