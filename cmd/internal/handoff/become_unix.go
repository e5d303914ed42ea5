//go:build unix

package handoff

import (
	"os"
	"syscall"
)

// become replaces this process by a program. The program gets the name by which this process was called as argument
// 0, because that may be the name of a kubectl plugin.
func become(file string, args []string) error {
	return syscall.Exec(file, append([]string{os.Args[0]}, args...), os.Environ())
}
