package main

import (
	"regexp"
	"strings"
)

// dialect matches sentences that are hard to understand: definitions without a noun ("X is what ...", "X are
// those of ..."), words that refer to a whole previous sentence, and fragments.
var dialect = regexp.MustCompile(strings.Join([]string{
	`\b(?:is|are|was|were|be) what\b`,
	`\b(?:is|are|was|were) (?:that|those) (?:of|that|which|who|whose|with|in|by)\b`,
	`\b(?:is|are) so (?:of|for|in|with|too)\b`,
	`\b(?:it|this|that) is so\b`,
	`\b[a-z]+ of before\b`,
	`\b[Ll]ikewise\b`,
	`\bby another way\b`,
	`\bsuch as (?:has|have|is|are)\b`,
	`^(?:What|Who|Whose) .*[^?]$`, // a comment that begins like this names its subject by a clause
}, "|"))

// privateNouns matches words that this project used for things with an established name.
const privateNouns = `\b(?:[Cc]rowd|[Hh]appening|[Ss]haken|[Bb]uried|[Ll]ikeness|[Ss]helf|[Hh]eir|[Cc]abinet)s?\b`

// stumbles lists the comments of Go files and the paragraphs of Markdown files that match dialect.
func stumbles(t *tree) (result, error) {
	var r result
	look := func(place, text string) {
		if m := dialect.FindString(text); m != "" {
			r.add(place + " " + m)
		}
	}
	for _, f := range t.files {
		switch {
		case f.below("build/house") || strings.Contains(f.path, "testdata/"):
		case f.syntax != nil:
			for _, group := range f.syntax.Comments {
				look(t.place(group), strings.Join(strings.Fields(group.Text()), " "))
			}
		case strings.HasSuffix(f.path, ".md"):
			line := 1
			for paragraph := range strings.SplitSeq(f.text, "\n\n") {
				if text := strings.Join(strings.Fields(paragraph), " "); !strings.HasPrefix(text, "Wh") {
					look(f.path+":"+itoa(line), text)
				}
				line += strings.Count(paragraph, "\n") + 2
			}
		}
	}
	return r, nil
}
