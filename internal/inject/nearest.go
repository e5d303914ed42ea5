package inject

import "strings"

// didYouMean is "; did you mean X?" for the name nearest to word, or nothing.
func didYouMean(word string, names []string) string {
	best, least := "", 1+len(lastPart(word))/3
	for _, n := range names {
		d := distance(lastPart(word), lastPart(n))
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

// distance is how many letters must be added, removed or changed (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
