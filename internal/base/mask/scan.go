package mask

import (
	"bytes"
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed rules.txt
var forms string

// A span is a part of a text: the bytes text[from:to].
type span struct{ from, to int }

// A hint is a lower-case text that may indicate a secret: the beginning of a form (a line of rules.txt), or a
// word in the name of a secret.
type hint struct {
	text   string
	kind   kind
	form   func() *regexp.Regexp // the regular expression of the form; nil if the hint is a word in a name
	id     int                   // number of the form
	inside bool                  // a letter or digit may stand before the form
}

// hintTable contains the hints by their first two bytes: list maps the bytes to an index into lists, or 0 if
// there are none.
type hintTable struct {
	list  [1 << 16]uint16
	lists [][]hint
	forms int
}

// table returns the table of all hints. The regular expression of a form is compiled when its hint is first
// found.
var table = sync.OnceValue(func() *hintTable {
	t := &hintTable{lists: make([][]hint, 1)}
	add := func(h hint) {
		pair := int(h.text[0])<<8 | int(h.text[1])
		if t.list[pair] == 0 {
			t.list[pair] = uint16(len(t.lists))
			t.lists = append(t.lists, nil)
		}
		t.lists[t.list[pair]] = append(t.lists[t.list[pair]], h)
	}
	for k, names := range nameWords {
		for _, n := range strings.Fields(names) {
			add(hint{text: n, kind: kind(k)})
		}
	}
	for line := range strings.Lines(forms) {
		begins, pattern, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		form := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^(?:" + pattern + ")") })
		for _, text := range strings.Split(begins, ",") {
			begin, inside := strings.CutPrefix(text, "~")
			add(hint{text: begin, form: form, id: t.forms, inside: inside})
		}
		t.forms++
	}
	for c := range t.list { // texts in upper case have the same hints
		if lower := int(small(byte(c>>8)))<<8 | int(small(byte(c))); lower != c {
			t.list[c] = t.list[lower]
		}
	}
	return t
})

// small converts an ASCII letter to lower case.
func small(c byte) byte {
	if isUpper(c) {
		return c + 'a' - 'A'
	}
	return c
}

// at returns the hints whose first two bytes are at i.
func (t *hintTable) at(b []byte, i int) []hint {
	return t.lists[t.list[int(b[i])<<8|int(b[i+1])]]
}

// begins reports whether b begins with the hint, in lower or upper case.
func (h hint) begins(b []byte) bool {
	if len(b) < len(h.text) {
		return false
	}
	for i := range len(h.text) {
		if small(b[i]) != h.text[i] {
			return false
		}
	}
	return true
}

// reach is the maximum number of bytes of a form or of an uncertain value that are examined. It bounds the time
// for a text.
const reach = 4096

// scan returns the positions of the secrets in a text, which may overlap.
func scan(b []byte) []span {
	t := table()
	var all []span
	var last span                 // the last secret that was found; hints within it are skipped
	after := make([]int, t.forms) // for each form, the position before which it cannot match
	for i := 0; i+1 < len(b); i++ {
		hints := t.at(b, i)
		switch {
		case b[i] == '@':
			all = append(all, userinfo(b, i)...)
		case len(hints) > 0 && last.from <= i && i < last.to:
			i = last.to - 1
			continue
		}
		for _, h := range hints {
			var found []span
			switch {
			case !h.begins(b[i:]):
			case h.form == nil:
				found = named(b, i, h)
			case (h.inside || i == 0 || !isAlnum(b[i-1])) && i >= after[h.id]:
				if found = formed(b, i, h.form()); found == nil {
					after[h.id] = i + run(b[i:], isToken)
				}
			}
			if len(found) > 0 {
				all, last = append(all, found...), found[len(found)-1]
			}
		}
	}
	return all
}

// formed returns the positions of the secret parts of the text at i, if it matches a form: the form's groups,
// or the whole match if the form has no groups.
func formed(b []byte, i int, form *regexp.Regexp) (found []span) {
	m := form.FindSubmatchIndex(b[i:min(len(b), i+reach)])
	if len(m) == 2 {
		m = append(m, m...)
	}
	for ; len(m) > 2; m = m[:len(m)-2] {
		if s := (span{i + m[len(m)-2], i + m[len(m)-1]}); m[len(m)-2] >= 0 {
			if s.to == i+reach {
				s.to += run(b[s.to:], isToken)
			}
			if !reference.Match(b[s.from:min(s.to, s.from+reach)]) {
				found = append(found, s)
			}
		}
	}
	return found
}

// cover returns a copy of b in which each span is replaced by [Masked].
func cover(b []byte, spans []span) []byte {
	if len(spans) == 0 {
		return b
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	var out bytes.Buffer
	end := -1
	for _, s := range spans {
		if s.from > end {
			out.Write(b[max(end, 0):s.from])
			out.WriteString(Masked)
		}
		end = max(end, s.to)
	}
	out.Write(b[end:])
	return out.Bytes()
}

func isAlnum(c byte) bool { return '0' <= c && c <= '9' || isLower(rune(small(c))) }
func isToken(c byte) bool { return isAlnum(c) || c == '_' || c == '-' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
func isLower(c rune) bool { return 'a' <= c && c <= 'z' }
func isName(c byte) bool  { return isToken(c) || c == '.' }
func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// run returns the number of bytes at the beginning of b that satisfy a condition (of).
func run(b []byte, of func(byte) bool) int {
	if n := slices.IndexFunc(b, func(c byte) bool { return !of(c) }); n >= 0 {
		return n
	}
	return len(b)
}

// odd matches a word that may contain escape sequences of colours or non-ASCII letters.
var odd, colours = regexp.MustCompile(`(?:[0-9A-Za-z_.-]|\x1b\[[0-9;?]*[A-Za-z]|[^\x00-\x7f])+`), regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// alike replaces letters by the ASCII letters that they resemble, and removes invisible characters.
var alike = func() *strings.Replacer {
	var pairs []string
	const look = "аaеeоoрpсcуyхxіiѕsјjԁdԛqԝwкkтtмmвbнhАAВBЕEКKМMНHОOРPСCТTУYХXЅSІIЈJοoαaρpνvτtκkεeιiυuΑAΒBΕEΖZΗHΙIΚKΜMΝNΟOΡPΤTΥYΧXıiſs"
	for i, all := 0, []rune(look); i < len(all); i += 2 {
		pairs = append(pairs, string(all[i]), string(all[i+1]))
	}
	for c := '!'; c <= '~'; c++ { // full-width forms
		pairs = append(pairs, string(c+0xfee0), string(c))
	}
	for _, c := range "\u00ad\u200b\u200c\u200d\u2060\ufeff" {
		pairs = append(pairs, string(c), "")
	}
	return strings.NewReplacer(append(pairs, "\u00a0", " ")...)
}()

// plain rewrites secret names in ASCII letters and without colours, if they are not already. The rest stays
// unchanged.
func plain(b []byte) []byte {
	if !bytes.ContainsFunc(b, func(c rune) bool { return c == 0x1b || c >= 0x80 }) {
		return b
	}
	return odd.ReplaceAllFunc(b, func(w []byte) []byte {
		if s := alike.Replace(colours.ReplaceAllString(string(w), "")); len(s) != len(w) && secretField(s) != no {
			return []byte(s)
		}
		return w
	})
}
