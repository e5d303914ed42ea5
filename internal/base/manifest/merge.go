package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// merge applies the difference between two printed texts, before and after, to the author's text. It is a
// three-way merge: where the author's text and the second printed text both differ from the first, the second
// is used. The function units splits a text into the parts to compare.
func merge(author, before, after []byte, units func([]byte) []unit) []byte {
	ours, base, theirs := units(author), units(before), units(after)
	inOurs, inTheirs := matches(base, ours), matches(base, theirs)
	var out []unit
	i, j := 0, 0 // positions in ours and theirs
	gap := 0     // position in base after the last unit that is in all three
	flush := func(at, toOurs, toTheirs int) {
		was, mine, wanted := base[gap:at], ours[i:toOurs], theirs[j:toTheirs]
		switch {
		case slices.Equal(was, wanted):
			out = append(out, mine...)
		case len(was) == len(mine) && len(was) == len(wanted):
			for k := range was {
				out = append(out, within(mine[k], was[k], wanted[k]))
			}
		default:
			out = append(out, wanted...)
		}
	}
	for at := range base {
		o, t := inOurs[at], inTheirs[at]
		if o < 0 || t < 0 {
			continue
		}
		flush(at, o, t)
		u := ours[o]
		if theirs[t].space != base[at].space {
			u.space = theirs[t].space
		}
		out = append(out, u)
		i, j, gap = o+1, t+1, at+1
	}
	flush(len(base), len(ours), len(theirs))
	var text bytes.Buffer
	for _, u := range out {
		text.WriteString(u.space + u.text)
	}
	merged := text.Bytes()
	if !bytes.HasSuffix(author, []byte("\n")) {
		merged = bytes.TrimSuffix(merged, []byte("\n"))
	}
	return lineEnds(merged, author)
}

// within applies the change of one line to the author's line, token by token.
func within(author, before, after unit) unit {
	if !strings.HasSuffix(before.text, "\n") { // the units are tokens already
		return after
	}
	return unit{author.space, string(merge([]byte(author.text), []byte(before.text), []byte(after.text), tokensOf))}
}

// A unit is a line with the blank lines before it, or a token with the white space before it. The last unit of a
// text has only the white space at the end.
type unit struct{ space, text string }

func linesOf(text []byte) []unit {
	var out []unit
	space := ""
	for l := range bytes.Lines(text) {
		line := strings.TrimRight(string(l), "\r\n") + "\n"
		if strings.TrimSpace(line) == "" {
			space += "\n"
			continue
		}
		out = append(out, unit{space, line})
		space = ""
	}
	return append(out, unit{space, ""})
}

// jsonToken matches white space followed by a string, a punctuation mark, or another scalar.
var jsonToken = regexp.MustCompile(`(\s*)("(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+|$)`)

func tokensOf(text []byte) []unit {
	var out []unit
	for _, m := range jsonToken.FindAllSubmatch(text, -1) {
		out = append(out, unit{string(m[1]), string(m[2])})
	}
	return out
}

// matches returns, for each unit of a, the index of the corresponding unit of b by a diff; -1 if there is none.
func matches(a, b []unit) []int {
	join := func(all []unit) []byte {
		var out strings.Builder
		for _, u := range all {
			out.WriteString(strings.TrimSuffix(u.text, "\n") + "\n")
		}
		return []byte(out.String())
	}
	out := make([]int, 0, len(a))
	j := 0
	same := func(to int) {
		for ; len(out) < to; j++ {
			out = append(out, j)
		}
	}
	_, hunks, _ := bytes.Cut(diff.Diff("a", join(a), "b", join(b)), []byte("\n+++ b\n"))
	for l := range strings.Lines(string(hunks)) {
		var from, count int
		switch l[0] {
		case '@':
			if _, err := fmt.Sscanf(l, "@@ -%d,%d", &from, &count); err == nil && count > 0 {
				from--
			}
			same(from)
		case ' ':
			same(len(out) + 1)
		case '-':
			out = append(out, -1)
		case '+':
			j++
		}
	}
	same(len(a))
	return out
}
