// Package visible makes text of unknown authors safe to display. A name or a command in a manifest may
// contain control sequences that move a terminal's cursor, set its title or change the direction of
// writing, and so hide or forge what a person reads.
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

// mark begins a colour of ours in a text until a [Writer] turns it into the terminal's sequence. It is
// random, so that a name from a manifest cannot contain it and set colours itself.
var mark = "\x1b" + rand.Text()

// Colour begins a colour or weight, given by its codes (SGR, ECMA-48 8.3.117); code 0 ends all of them.
func Colour(codes string) string { return mark + codes + "m" }

// Paint gives a text a colour or weight.
func Paint(codes, text string) string { return Colour(codes) + text + Colour("0") }

// Text escapes control characters in the form \x1b. For C1 controls and characters that change the direction
// of writing it uses the form \u202e, which JSON reads as the same character. It keeps line breaks, tabs and
// painted colours.
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

// Plain is Text without colours, for use in markup.
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

// A Writer writes [Text] to W and turns marks into colours. It holds back an incomplete character or colour
// until the rest arrives, so it must be flushed at the end. Several goroutines may write, for example a log
// and the command.
type Writer struct {
	W    io.Writer
	mu   sync.Mutex
	part []byte // the beginning of a character or of a colour
}

func (w *Writer) show(text []byte) error {
	_, err := io.WriteString(w.W, strings.ReplaceAll(Text(string(text)), mark, "\x1b["))
	return err
}

// Write never fails because of the content of p.
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

// Flush writes what was held back.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := w.part
	w.part = nil
	return w.show(rest)
}

// Unwrap returns the writer behind w, for example to ask whether it is a terminal.
func Unwrap(w io.Writer) io.Writer {
	if v, ok := w.(*Writer); ok {
		return v.W
	}
	return w
}

// partial returns the length of the incomplete character or colour at the end of p.
func partial(p []byte) int {
	for n := 1; n < min(len(p)+1, len(mark)); n++ {
		end := p[len(p)-n:]
		if strings.HasPrefix(mark, string(end)) || utf8.RuneStart(end[0]) && !utf8.FullRune(end) {
			return n
		}
	}
	return 0
}
