// Package visible makes text that others wrote safe to look at. A name or a command in a
// manifest may hold what moves a terminal's cursor, sets its title or turns the direction
// of writing, and so hide or forge what a person reads.
package visible

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Text shows control characters as \x1b, and those of C1 and of the direction of writing as
// \u202e, which is the same character in JSON. Lines, tabs and our colours stay.
func Text(s string) string { return escaped(s, true) }

// Plain is Text without colours, as markup needs it.
func Plain(s string) string { return escaped(s, false) }

func escaped(s string, colours bool) string {
	if !strings.ContainsFunc(s, hidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if n := colour(s[i:]); colours && n > 0 {
			b.WriteString(s[i : i+n])
			i += n
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x20:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// colour is the length of the only sequences that a terminal may get from us: they set a
// weight or a colour of the text (SGR, ECMA-48 8.3.117); 0 if s begins with none. Others of
// their kind hide text, and are not among them.
func colour(s string) int {
	code, _, closed := strings.Cut(s[:min(len(s), longestColour)], "m")
	code, ok := strings.CutPrefix(code, "\x1b[")
	if !ok || !closed {
		return 0
	}
	for part := range strings.SplitSeq(code, ";") {
		if !slices.Contains(colours, part) {
			return 0
		}
	}
	return len("\x1b[") + len(code) + len("m")
}

// colours are: none, bold, faint, and red to cyan. A colour may be bold too.
var colours = []string{"0", "1", "2", "31", "32", "33", "34", "35", "36"}

const longestColour = len("\x1b[31;1m")

func hidden(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case 0xfffe, 0xffff: // markup may not have them
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// A Writer writes [Text] to W. A character or colour that comes in parts waits for the rest,
// so it is to be flushed at the end. Several goroutines may write: a log and the command.
type Writer struct {
	W    io.Writer
	mu   sync.Mutex
	part []byte // the beginning of a character or of a colour
}

// Write never fails because of what p is.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(w.part, p...)
	whole := len(all) - partial(all)
	w.part = bytes.Clone(all[whole:])
	if _, err := io.WriteString(w.W, Text(string(all[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the rest as it is.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := w.part
	w.part = nil
	_, err := io.WriteString(w.W, Text(string(rest)))
	return err
}

// Unwrap returns the writer behind w, for what asks about its terminal.
func Unwrap(w io.Writer) io.Writer {
	if v, ok := w.(*Writer); ok {
		return v.W
	}
	return w
}

// partial is the length of what is at the end of p and may become whole.
func partial(p []byte) int {
	for n := 1; n < min(len(p)+1, longestColour); n++ {
		end := p[len(p)-n:]
		if end[0] == 0x1b || utf8.RuneStart(end[0]) && !utf8.FullRune(end) {
			return n
		}
	}
	return 0
}
