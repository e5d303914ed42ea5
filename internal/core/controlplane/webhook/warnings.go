package webhook

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The API server's limits for warnings (kubernetes apiserver,
// pkg/endpoints/filters/warning.go), in characters: it cuts longer ones.
const (
	oneWarning  = 256
	allWarnings = 4096
	prefix      = "outrider: "
)

// fitting returns warnings within the limits, each on one line, and as many as fit. If not all
// do, the last one has the number of the others.
func fitting(warnings []string) []string {
	var out []string
	left := allWarnings - oneWarning // room for the last one
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

// printable replaces characters that a header cannot hold.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// shortened cuts at a word.
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
