//go:build unix

package handoff

import (
	"os"
	"syscall"
)

// become replaces this process by a program. It keeps the name by which this one was called, which may be that of a
// plugin of kubectl.
func become(file string, args []string) error {
	return syscall.Exec(file, append([]string{os.Args[0]}, args...), os.Environ())
}
