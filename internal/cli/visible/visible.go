// Package visible makes text that others wrote safe to look at. A name or a command in a
// manifest may hold what moves a terminal's cursor, sets its title or turns the direction
// of writing, and so hide or forge what a person reads.
package visible

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text shows what cannot be seen as \x1b or \u202e; lines, tabs and colours stay.
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
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// colour is the length of the only sequence that a terminal may get from us: one that sets
// a colour or a weight (SGR, ECMA-48 8.3.117); 0 if s begins with none.
func colour(s string) int {
	rest, ok := strings.CutPrefix(s, "\x1b[")
	if !ok {
		return 0
	}
	rest = strings.TrimLeft(rest, "0123456789;")
	if !strings.HasPrefix(rest, "m") {
		return 0
	}
	return len(s) - len(rest) + 1
}

func hidden(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case 0xfffe, 0xffff: // markup may not have them
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// A Writer writes [Text] to W.
type Writer struct{ W io.Writer }

func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.W, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
