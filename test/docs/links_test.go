package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s:]*?)(?:#([^)\s]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// For each link from a page to another page, the linked file exists and contains the linked heading.
func TestLinksLeadSomewhere(t *testing.T) {
	n := 0
	eachPage(t, documents, func(page, text string) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			n++
			file := filepath.Join("../..", page)
			if m[1] != "" {
				file = filepath.Join(filepath.Dir(file), m[1])
			}
			there, err := os.ReadFile(file)
			if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s: %s: %v", page, m[0], err)
				continue
			}
			if m[2] != "" && strings.HasSuffix(file, ".md") && !slices.Contains(anchors(string(there)), m[2]) {
				t.Errorf("%s: %s: no such heading", page, m[0])
			}
		}
	})
	if n < 50 {
		t.Errorf("%d links found: the test looks in the wrong place", n)
	}
}

// anchors returns the anchors that GitHub generates for headings.
func anchors(text string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		words := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(words, " ", "-"))
	}
	return out
}
