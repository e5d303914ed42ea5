package cli

import (
	"io"
	"os"

	"outrider.dev/internal/base/cli/visible"
)

// A Terminal contains the properties of the output of a command, which may be a terminal or not.
type Terminal struct {
	Colour  bool // it supports colours and NO_COLOR is not set
	Columns int
}

// defaultColumns is the width for output that is not a terminal.
const defaultColumns = 100

// TerminalOf returns the properties of w, also from the environment variables NO_COLOR and TERM.
func TerminalOf(w io.Writer) Terminal {
	t := Terminal{Columns: defaultColumns}
	f, ok := visible.Unwrap(w).(*os.File)
	if !ok {
		return t
	}
	t.Colour = isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && interprets(f)
	if n := columns(f); n > 0 {
		t.Columns = n
	}
	return t
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
