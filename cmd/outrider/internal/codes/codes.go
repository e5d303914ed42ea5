// Package codes is the catalogue of all problems that Outrider finds: in manifests (lint), in a cluster
// (check) and in the history of a pod (diagnose). A code has the same meaning in all three.
package codes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	diagnosekinds "outrider.dev/internal/doctor/diagnose/kinds"
	"outrider.dev/internal/doctor/lint/kinds"
	"outrider.dev/internal/ops/check"
)

// All returns all codes in alphabetical order.
func All() []finding.Entry {
	all := map[finding.Code]*finding.Entry{}
	for _, source := range []struct {
		command string
		kinds   []finding.Kind
	}{{"lint", kinds.All()}, {"check", check.Kinds()}, {"diagnose", diagnosekinds.All()}} {
		for _, k := range source.kinds {
			c := all[k.Code]
			if c == nil {
				c = &finding.Entry{Kind: k}
				all[k.Code] = c
			} else if k.Explanation != c.Explanation {
				c.Explanation += "\n\n" + k.Explanation
			}
			c.By, c.Do = append(c.By, source.command), do(k.Code)
		}
	}
	out := make([]finding.Entry, 0, len(all))
	for _, c := range all { // any order: the entries are sorted afterwards
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b finding.Entry) int { return cmp.Compare(a.Code, b.Code) })
	return out
}

// Find returns a code by its name. If the name is an old one, it also returns a note. If there is no such code, the
// error names similar codes, or the tool that now reports the problem.
func Find(name string) (entry finding.Entry, note string, err error) {
	code, note := finding.Present(name)
	if code == "" && note != "" {
		return finding.Entry{}, "", errors.New(note)
	}
	var like []string
	for _, c := range All() {
		if c.Code == code {
			return c, note, nil
		}
		for word := range strings.SplitSeq(name, "-") {
			if len(word) > 3 && strings.Contains(string(c.Code), word) {
				like = append(like, string(c.Code))
				break
			}
		}
	}
	if len(like) > 0 {
		return finding.Entry{}, "", fmt.Errorf("%q is no code; there are %s", name, strings.Join(like[:min(len(like), 5)], ", "))
	}
	return finding.Entry{}, "", fmt.Errorf("%q is no code", name)
}

// Page returns the text of a code's page in the documentation.
func Page(c finding.Entry) string {
	by := make([]string, len(c.By))
	for i, command := range c.By {
		by[i] = "`outrider " + command + "`"
	}
	return fmt.Sprintf("# %s\n\n%s.\n\nFound by %s; usually %s.\n\n%s\n\n## Do\n\n%s\n\nAll codes are in [the list](README.md).\n",
		c.Code, sentence(c.Title), strings.Join(by, " and "), article(c.Severity), c.Explanation, c.Do)
}

// Index returns the text of the page that lists all codes.
func Index() string {
	var b strings.Builder
	b.WriteString("# All codes\n\nWhat `outrider lint` finds in manifests, `outrider check` in a cluster, and `outrider diagnose` in what has happened to a pod.\nA code is about the same thing for ever. `outrider explain CODE` prints a page. In commands, words in capitals are placeholders.\n\n| code | found by | what |\n| --- | --- | --- |\n")
	for _, c := range All() {
		fmt.Fprintf(&b, "| [%s](%s.md) | %s | %s |\n", c.Code, c.Code, strings.Join(c.By, ", "), c.Title)
	}
	return b.String()
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func article(s finding.Severity) string {
	if s == finding.Error {
		return "an error"
	}
	return "a " + string(s)
}
