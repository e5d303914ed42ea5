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

// A span is a part of a text: from, and before to.
type span struct{ from, to int }

// A hint is a text, in small letters, at which a form begins, or which stands in a name of something secret.
type hint struct {
	text   string
	kind   kind
	form   func() *regexp.Regexp // nil: it stands in a name
	id     int                   // of the form
	inside bool                  // a letter or digit may stand before the form
}

// hints by their first two bytes: the numbers of the lists that begin with them, 0 for none.
type hintTable struct {
	list  [1 << 16]uint16
	lists [][]hint
	forms int
}

// table is built once; a form is compiled when its hint is first met.
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
	for c := range t.list { // of two small letters also where they are not
		if lower := int(small(byte(c>>8)))<<8 | int(small(byte(c))); lower != c {
			t.list[c] = t.list[lower]
		}
	}
	return t
})

// small is the small letter of a byte.
func small(c byte) byte {
	if isUpper(c) {
		return c + 'a' - 'A'
	}
	return c
}

// at are the hints of which one may begin at i.
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

// reach is how far a form, and what may turn out to be no secret, is looked for. It bounds the time that a text takes.
const reach = 4096

// scan returns where the secrets of a text are.
func scan(b []byte) []span {
	t := table()
	var all []span
	var last span                 // of a value: what stands in it need not be looked at
	after := make([]int, t.forms) // where a form may begin again that was not found
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

// formed returns what of a form at i is secret.
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

// run is how many bytes at the beginning of a text are of a kind.
func run(b []byte, of func(byte) bool) int {
	if n := slices.IndexFunc(b, func(c byte) bool { return !of(c) }); n >= 0 {
		return n
	}
	return len(b)
}

// odd is a word with colours, or with other letters than those of ASCII.
var odd, colours = regexp.MustCompile(`(?:[0-9A-Za-z_.-]|\x1b\[[0-9;?]*[A-Za-z]|[^\x00-\x7f])+`), regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// alike writes letters that look like others as these, and leaves out what is not seen.
var alike = func() *strings.Replacer {
	var pairs []string
	const look = "аaеeоoрpсcуyхxіiѕsјjԁdԛqԝwкkтtмmвbнhАAВBЕEКKМMНHОOРPСCТTУYХXЅSІIЈJοoαaρpνvτtκkεeιiυuΑAΒBΕEΖZΗHΙIΚKΜMΝNΟOΡPΤTΥYΧXıiſs"
	for i, all := 0, []rune(look); i < len(all); i += 2 {
		pairs = append(pairs, string(all[i]), string(all[i+1]))
	}
	for c := '!'; c <= '~'; c++ { // of full width
		pairs = append(pairs, string(c+0xfee0), string(c))
	}
	for _, c := range "\u00ad\u200b\u200c\u200d\u2060\ufeff" {
		pairs = append(pairs, string(c), "")
	}
	return strings.NewReplacer(append(pairs, "\u00a0", " ")...)
}()

// plain writes names that are secret in letters of ASCII, and without colours, where they are not. The rest stays as it is.
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
