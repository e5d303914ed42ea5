package startup

import (
	"slices"
	"strings"
)

// didYouMean returns "; did you mean X?" with the candidate most similar to word, or an empty string if none is
// similar.
func didYouMean(word string, candidates []string) string {
	if n := nearest(word, candidates); n != "" {
		return "; did you mean " + n + "?"
	}
	return ""
}

// synonyms maps terms of other tools to the terms of this package.
var synonyms = map[string]string{
	"ready":                          string(Healthy),
	"running":                        string(Started),
	"succeeded":                      string(Completed),
	"service_started":                string(Started),
	"service_healthy":                string(Healthy),
	"service_completed_successfully": string(Completed),
	"native":                         "sidecar",
}

// nearest returns the candidate that a person most likely meant by word: a synonym, a candidate that differs in a
// few letters, or one that contains word or is contained in it. It is empty if there is none.
func nearest(word string, candidates []string) string {
	if s := synonyms[word]; slices.Contains(candidates, s) {
		return s
	}
	best, bestAt := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		if tooFar := max(len(word)-len(c), len(c)-len(word)) >= bestAt; tooFar {
			continue
		}
		if d := Distance(word, c); d < bestAt {
			best, bestAt = c, d
		}
	}
	if best != "" {
		return best
	}
	for _, c := range candidates {
		if shareAWord(word, c) {
			return c
		}
	}
	return ""
}

// shareAWord reports whether two names have a word in common, where hyphens separate words: istio-proxy and
// outrider-proxy.
func shareAWord(a, b string) bool {
	return slices.ContainsFunc(parts(a), func(p string) bool { return len(p) > 2 && slices.Contains(parts(b), p) })
}

func parts(name string) []string { return strings.Split(name, "-") }

// Distance returns the minimum number of edits that turn a into b. An edit adds, removes or changes a byte, or
// swaps two adjacent bytes (optimal string alignment).
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
