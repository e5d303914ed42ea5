//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// interprets reports whether a terminal interprets escape sequences.
func interprets(*os.File) bool { return true }

// columns returns the width of a terminal; 0 for anything else.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
