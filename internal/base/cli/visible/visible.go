// Package visible makes text of unknown authors safe to display. A name or a command in a manifest may contain
// control sequences that move a terminal's cursor, set its title or change the direction of writing. Such a text
// could hide or forge what a person reads.
package visible

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// mark is the placeholder with which [Colour] begins a colour. A [Writer] replaces it by the beginning of the
// terminal's escape sequence. It is random, so that a name from a manifest cannot contain it.
var mark = "\x1b" + rand.Text()

// Colour returns the text that begins a colour or weight, given by its codes (SGR, ECMA-48 8.3.117). Code 0 ends
// all colours and weights.
func Colour(codes string) string { return mark + codes + "m" }

// Paint returns a text in a colour or weight.
func Paint(codes, text string) string { return Colour(codes) + text + Colour("0") }

// Text escapes control characters in the form \x1b. For C1 controls and characters that change the direction of
// writing it uses the form \u202e, which JSON reads as the same character. Line breaks, tabs and colours of
// [Colour] are not escaped.
func Text(s string) string {
	if !strings.ContainsFunc(s, hidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if strings.HasPrefix(s[i:], mark) {
			b.WriteString(mark)
			i += len(mark)
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

// Plain is like Text, but also escapes the colours. It is for markup such as SVG.
func Plain(s string) string { return Text(strings.ReplaceAll(s, mark, "\x1b[")) }

func hidden(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case 0xfffe, 0xffff: // not allowed in markup
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// A Writer escapes what is written to it like [Text], turns the colours of [Colour] into escape sequences, and
// writes the result to W. If a write ends within a character or a colour, that part waits for the next write, so
// call Flush at the end. Several goroutines may write.
type Writer struct {
	W    io.Writer
	mu   sync.Mutex
	part []byte // the beginning of a character or of a colour
}

func (w *Writer) show(text []byte) error {
	_, err := io.WriteString(w.W, strings.ReplaceAll(Text(string(text)), mark, "\x1b["))
	return err
}

// Write fails only if W fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(w.part, p...)
	whole := len(all) - partial(all)
	w.part = bytes.Clone(all[whole:])
	if err := w.show(all[:whole]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes an incomplete character or colour that was held back.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := w.part
	w.part = nil
	return w.show(rest)
}

// Unwrap returns W if w is a [*Writer], and w otherwise, for example to find out whether it is a terminal.
func Unwrap(w io.Writer) io.Writer {
	if v, ok := w.(*Writer); ok {
		return v.W
	}
	return w
}

// partial returns the length of the incomplete character or colour at the end of p; 0 if there is none.
func partial(p []byte) int {
	for n := 1; n < min(len(p)+1, len(mark)); n++ {
		end := p[len(p)-n:]
		if strings.HasPrefix(mark, string(end)) || utf8.RuneStart(end[0]) && !utf8.FullRune(end) {
			return n
		}
	}
	return 0
}
