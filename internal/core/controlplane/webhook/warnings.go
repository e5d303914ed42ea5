package webhook

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the API server for warnings, in characters (kubernetes apiserver,
// pkg/endpoints/filters/warning.go). It truncates longer warnings.
const (
	oneWarning  = 256
	allWarnings = 4096
	prefix      = "outrider: "
)

// fitting returns the first warnings that fit within the limits, each on one line. If some do not fit, the
// last entry contains their number.
func fitting(warnings []string) []string {
	var out []string
	left := allWarnings - oneWarning // leaves space for the last entry
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

// printable replaces white space and control characters, which a header cannot contain, by single spaces.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "?")
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// shortened cuts a text between words if it has more characters than the maximum.
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
