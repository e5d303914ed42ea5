//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// interprets reports whether a terminal interprets escape sequences.
func interprets(*os.File) bool { return true }

// columns is the width of a terminal; 0 of anything else.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
