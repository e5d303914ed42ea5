package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/podfile"
)

// A source is a file with the places of what is in it.
type source struct {
	name    string
	text    string
	lines   []int // where each begins
	objects []object
	near    finding.Position // the character that was looked for last, and its offset: a file may be one line
	nearAt  int
}

// An object, those of a list included, and where it stands.
type object struct {
	node     *yaml.Node // its lines are those of the file
	document int        // 1 is the first of the file
	index    int        // in the document
	from, to int        // where the document's text begins and ends
}

// newSource reads the places. A document that this YAML reader does not take, though the
// one of package podspec does, has no objects: findings in it have no line.
func newSource(name, text string) *source {
	s := &source{name: name, text: text, lines: lineStarts(text)}
	document, end := 0, 0
	for segment := range manifest.Split([]byte(text)) {
		from := end + len(segment.Lead)
		end = from + len(segment.Body)
		if segment.Empty() {
			continue
		}
		document++
		d, err := manifest.Read(segment.Body)
		if err != nil {
			continue
		}
		for i, o := range manifest.Objects(d.Root()) {
			s.objects = append(s.objects, object{o, document, i, from, end})
		}
		at := s.position(from)
		shift(d.Root(), at.Line-1, at.Column-1)
	}
	return s
}

// shift moves the places of a document's nodes to those of the file. Only the first line
// can begin behind others.
func shift(n *yaml.Node, lines, columns int) {
	if n.Line == 1 {
		n.Column += columns
	}
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines, columns)
	}
}

// root is the index of a pod's object; -1 if it has no place.
func (s *source) root(o podfile.Object) int {
	at, found := slices.BinarySearchFunc(s.objects, o, func(at object, o podfile.Object) int {
		return cmp.Or(at.document-o.Document, at.index-o.Index)
	})
	if !found {
		return -1
	}
	return at
}

// find returns the key (nil for an item of a list) and the value at a path, or what is
// nearest to it.
func find(root *yaml.Node, p path) (key, value *yaml.Node, all bool) {
	value = root
	for _, step := range p {
		n := manifest.Target(value)
		switch s := step.(type) {
		case string:
			i := manifest.Entry(n, s)
			if i < 0 {
				return key, value, false
			}
			key, value = n.Content[i], n.Content[i+1]
		case int:
			if n.Kind != yaml.SequenceNode || s < 0 || s >= len(n.Content) {
				return key, value, false
			}
			key, value = nil, n.Content[s]
		}
	}
	return key, value, true
}

// place returns the place of the evidence, or else of its field.
func (s *source) place(root *yaml.Node, p path, evidence string) finding.Place {
	out := finding.Place{File: s.name}
	if root == nil {
		return out
	}
	key, value, all := find(root, p)
	at, end := value, ""
	list := all && value.Kind == yaml.SequenceNode && value.Style&yaml.FlowStyle != 0 && evidence != ""
	if list {
		end = evidence
	} else if key != nil && (!all || value.Kind != yaml.ScalarNode || value.Value == "" || evidence == "" || evidence == key.Value) {
		at = key
		end = key.Value
	}
	line, column := at.Line, at.Column
	if at == value && value.Kind == yaml.ScalarNode {
		end = value.Value
		if l, c, ok := s.evidence(value, evidence); ok {
			line, column, end = l, c, evidence
		}
	}
	out.Line, out.Column = line, column
	text := s.lineText(line)
	here := min(s.offset(line, column)-s.offset(line, 1), len(text))
	wide := utf8.RuneCountInString(end)
	behind := strings.TrimRight(text[here:min(len(text), here+wide*utf8.UTFMax)], " \r\n")
	out.Width = max(min(wide, utf8.RuneCountInString(behind)), 1)
	if len(text) > longLine {
		from := max(here-longLine/4, 0)
		for !utf8.RuneStart(text[from]) {
			from--
		}
		out.Skipped = column - 1 - utf8.RuneCountInString(text[from:here])
		text = strings.ToValidUTF8(text[from:min(len(text), here+longLine)], "")
	}
	out.Text = text
	return out
}

// longLine is the length in bytes from which a line is shown in part: a file may be one line.
const longLine = 4 << 10

// evidence looks for the beginning of a text, which may have been put on one line, in the
// lines of a scalar.
func (s *source) evidence(n *yaml.Node, text string) (line, column int, ok bool) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return 0, 0, false
	}
	for i := 0; i <= strings.Count(n.Value, "\n")+1; i++ {
		l := s.lineText(n.Line + i)
		at := 0
		if i == 0 {
			at = min(s.offset(n.Line, n.Column)-s.offset(n.Line, 1), len(l))
		}
		in := l[at:]
		if i == 0 && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
			in = in[:min(len(in), escapedMost*len(n.Value)+len(`""`))]
		}
		for _, head := range []string{text, strings.Join(words[:min(2, len(words))], " ")} {
			if j := strings.Index(in, head); j >= 0 {
				line := n.Line + i
				return line, s.column(line, s.offset(line, 1)+at+j), true
			}
		}
	}
	return 0, 0, false
}

// escapedMost is how many bytes a quoted scalar has at most for one of its value: \u0007.
const escapedMost = 6

// lineStarts are the offsets of the lines.
func lineStarts(text string) []int {
	out := []int{0}
	for line := range strings.Lines(text) {
		if at := out[len(out)-1] + len(line); strings.HasSuffix(line, "\n") {
			out = append(out, at)
		}
	}
	return out
}

// lineText is a line without its end; empty if there is none.
func (s *source) lineText(line int) string {
	if line < 1 || line > len(s.lines) {
		return ""
	}
	text := s.text[s.lines[line-1]:]
	if line < len(s.lines) {
		text = text[:s.lines[line]-s.lines[line-1]]
	}
	return strings.TrimRight(text, "\r\n")
}

// offset is that of a character in the text.
func (s *source) offset(line, column int) int {
	if line < 1 || line > len(s.lines) {
		return len(s.text)
	}
	at, here := s.lines[line-1], 1
	if s.near.Line == line && s.near.Column <= column {
		at, here = s.nearAt, s.near.Column
	}
	for ; here < column && at < len(s.text); here++ {
		_, n := utf8.DecodeRuneInString(s.text[at:])
		at += n
	}
	if here > 1 {
		s.near, s.nearAt = finding.Position{Line: line, Column: here}, at
	}
	return at
}

// column is that of an offset in a line.
func (s *source) column(line, offset int) int {
	at, here := s.lines[line-1], 1
	if s.near.Line == line && s.nearAt <= offset {
		at, here = s.nearAt, s.near.Column
	}
	return here + utf8.RuneCountInString(s.text[at:offset])
}

// position is the other way round.
func (s *source) position(offset int) finding.Position {
	line, begins := slices.BinarySearch(s.lines, offset)
	if !begins {
		line--
	}
	return finding.Position{Line: line + 1, Column: s.column(line+1, min(offset, len(s.text)))}
}

// A path leads to a field: names (string) and indexes (int).
type path []any

// parsePath reads a path as podspec writes it: names have no dots.
func parsePath(field string) path {
	var out path
	for step := range strings.SplitSeq(field, ".") {
		name, rest, _ := strings.Cut(step, "[")
		if name != "" {
			out = append(out, name)
		}
		for rest != "" {
			index, more, _ := strings.Cut(rest, "]")
			n := 0
			if _, err := fmt.Sscanf(index, "%d", &n); err != nil {
				return out
			}
			out = append(out, n)
			rest = strings.TrimPrefix(more, "[")
		}
	}
	return out
}

// plus is p with more steps. It never shares memory with another.
func (p path) plus(steps ...any) path {
	return append(append(make(path, 0, len(p)+len(steps)), p...), steps...)
}

// keys are the steps of a path without indexes.
func (p path) keys() []string {
	var out []string
	for _, step := range p {
		out = append(out, fmt.Sprint(step))
	}
	return out
}

// String is the path as kubectl's jsonpath takes it.
func (p path) String() string {
	var b strings.Builder
	for _, step := range p {
		switch s := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", s)
		case string:
			if strings.ContainsAny(s, "./[]' ") {
				fmt.Fprintf(&b, "['%s']", s)
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s)
		}
	}
	return b.String()
}
