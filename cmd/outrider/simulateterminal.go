package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// columns is how wide a terminal is; [width] if w is none.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return width
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return width
	}
	return int(size.Col)
}
