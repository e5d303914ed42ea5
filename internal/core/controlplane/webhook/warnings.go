package webhook

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the API server for warnings, in characters (kubernetes apiserver,
// pkg/endpoints/filters/warning.go): it cuts longer ones off.
const (
	oneWarning  = 256
	allWarnings = 4096
	prefix      = "outrider: "
)

// fitting returns as many warnings as fit within the limits, each on one line. If some do not fit, the
// last warning says how many were left out.
func fitting(warnings []string) []string {
	var out []string
	left := allWarnings - oneWarning // reserves room for the last one
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

// printable replaces characters that a header cannot contain.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// shortened cuts a text between words.
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
