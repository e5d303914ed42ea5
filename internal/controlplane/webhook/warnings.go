package webhook

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What the API server shows of warnings (kubernetes apiserver,
// pkg/endpoints/filters/warning.go): it cuts those that are longer once all together are.
const (
	oneWarning  = 256
	allWarnings = 4096
	prefix      = "outrider: "
)

// fitting are warnings as they can be shown: each on one line and not longer than the API
// server lets it be, and as many as fit. If not all do, the last one says so.
func fitting(warnings []string) []string {
	var out []string
	left := allWarnings - oneWarning // room for the last word
	for i, w := range warnings {
		w = shortened(prefix+printable(w), oneWarning)
		left -= utf8.RuneCountInString(w)
		if left < 0 {
			return append(out, fmt.Sprintf(prefix+"%d more warnings: outrider inject --diff shows them all", len(warnings)-i))
		}
		out = append(out, w)
	}
	return out
}

// printable has no character that a header cannot hold.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// shortened ends at a word.
func shortened(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := []rune(s)[:most-2]
	text := string(runes)
	if i := strings.LastIndexByte(text, ' '); i > len(text)/2 {
		text = text[:i]
	}
	return text + " …"
}
