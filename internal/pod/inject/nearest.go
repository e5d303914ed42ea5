package inject

import (
	"strings"

	"outrider.dev/startup"
)

// didYouMean is "; did you mean X?" for the name nearest to word, or nothing.
func didYouMean(word string, names []string) string {
	best, least := "", 1+len(lastPart(word))/3
	for _, n := range names {
		d := startup.Distance(lastPart(word), lastPart(n))
		if before(word) != before(n) {
			d++ // the same name elsewhere: less likely than a slip of the hand
		}
		if d > 0 && d < least {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

func lastPart(s string) string { return s[strings.LastIndex(s, "/")+1:] }

func before(s string) string { return s[:strings.LastIndex(s, "/")+1] }
