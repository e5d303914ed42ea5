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

// A span is a part of a text: from is included, to is not.
type span struct{ from, to int }

// A hint is a lower-case text at which a form begins, or which is part of the name of a secret.
type hint struct {
	text   string
	kind   kind
	form   func() *regexp.Regexp // the regular expression of the form; nil: the hint is part of a name
	id     int                   // number of the form
	inside bool                  // a letter or digit may stand before the form
}

// hintTable finds hints by their first two bytes: list contains an index into lists, or 0 for none.
type hintTable struct {
	list  [1 << 16]uint16
	lists [][]hint
	forms int
}

// table is built once. A form is compiled when its hint is first found.
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
	for c := range t.list { // also find pairs in upper case
		if lower := int(small(byte(c>>8)))<<8 | int(small(byte(c))); lower != c {
			t.list[c] = t.list[lower]
		}
	}
	return t
})

// small returns the lower-case letter of a byte.
func small(c byte) byte {
	if isUpper(c) {
		return c + 'a' - 'A'
	}
	return c
}

// at returns the hints that may begin at i.
func (t *hintTable) at(b []byte, i int) []hint {
	return t.lists[t.list[int(b[i])<<8|int(b[i+1])]]
}

// begins reports whether a text begins with the hint.
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

// reach limits how far a form, or an uncertain value, extends. It bounds the time for a text.
const reach = 4096

// scan returns the positions of the secrets in a text.
func scan(b []byte) []span {
	t := table()
	var all []span
	var last span                 // the last value found; nothing inside it needs checking
	after := make([]int, t.forms) // by form, the position before which it was already ruled out
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

// formed returns the secret parts of a form that begins at i.
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

// cover returns a text with its spans masked.
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

// run returns the number of leading bytes for which of is true.
func run(b []byte, of func(byte) bool) int {
	if n := slices.IndexFunc(b, func(c byte) bool { return !of(c) }); n >= 0 {
		return n
	}
	return len(b)
}

// odd matches a word that may contain colour sequences.
var odd, colours = regexp.MustCompile(`(?:[0-9A-Za-z_.-]|\x1b\[[0-9;?]*[A-Za-z])+`), regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// plain removes the colours within and around secret names. The rest stays unchanged.
func plain(b []byte) []byte {
	if bytes.IndexByte(b, 0x1b) < 0 {
		return b
	}
	return odd.ReplaceAllFunc(b, func(w []byte) []byte {
		if s := colours.ReplaceAll(w, nil); len(s) != len(w) && secretField(string(s)) != no {
			return s
		}
		return w
	})
}
