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

// A source is a file with the positions of its objects.
type source struct {
	name    string
	text    string
	lines   []int // offset of each line
	objects []object
	near    finding.Position // the last position that was looked up, and its offset; a file may be one long line
	nearAt  int
}

// An object is a Kubernetes object, alone or in a list, with its position.
type object struct {
	node     *yaml.Node // its line numbers count from the file's start
	document int        // number of the document in the file, from 1
	index    int        // index in the document
	from, to int        // offsets of the beginning and the end of the document's text
}

// newSource finds the positions of objects. A document may be valid for package podspec but not for this YAML
// reader; then it has no objects here, and its findings have no line.
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

// shift converts the positions of nodes from their document to the file. Only the first line of a document can
// begin behind other text.
func shift(n *yaml.Node, lines, columns int) {
	if n.Line == 1 {
		n.Column += columns
	}
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines, columns)
	}
}

// root returns the index of a pod's object, or -1 if its position is not known.
func (s *source) root(o podfile.Object) int {
	at, found := slices.BinarySearchFunc(s.objects, o, func(at object, o podfile.Object) int {
		return cmp.Or(at.document-o.Document, at.index-o.Index)
	})
	if !found {
		return -1
	}
	return at
}

// find returns the key (nil for a list item) and the value at a path, or the nearest existing ones.
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

// place returns the position of the evidence, or else that of its field.
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

// longLine is the length in bytes from which only a part of a line is shown: a file may be one line.
const longLine = 4 << 10

// evidence finds the beginning of a text in the lines of a scalar. The text may have been joined to one line.
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

// escapedMost is the largest number of bytes that a quoted scalar needs for one byte of its value: \u0007.
const escapedMost = 6

// lineStarts returns the offset of each line.
func lineStarts(text string) []int {
	out := []int{0}
	for line := range strings.Lines(text) {
		if at := out[len(out)-1] + len(line); strings.HasSuffix(line, "\n") {
			out = append(out, at)
		}
	}
	return out
}

// lineText returns a line without its ending, or an empty string if the line does not exist.
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

// offset converts a line and a column to an offset.
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

// column returns the column of an offset within its line.
func (s *source) column(line, offset int) int {
	at, here := s.lines[line-1], 1
	if s.near.Line == line && s.nearAt <= offset {
		at, here = s.nearAt, s.near.Column
	}
	return here + utf8.RuneCountInString(s.text[at:offset])
}

// position converts an offset to a line and a column.
func (s *source) position(offset int) finding.Position {
	line, begins := slices.BinarySearch(s.lines, offset)
	if !begins {
		line--
	}
	return finding.Position{Line: line + 1, Column: s.column(line+1, min(offset, len(s.text)))}
}

// A path leads to a field, by names (string) and indexes (int).
type path []any

// parsePath parses a path in the form of podspec, in which names contain no dots.
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

// plus returns p with more steps, in newly allocated memory.
func (p path) plus(steps ...any) path {
	return append(append(make(path, 0, len(p)+len(steps)), p...), steps...)
}

// keys returns the names in the path, without the indexes.
func (p path) keys() []string {
	var out []string
	for _, step := range p {
		out = append(out, fmt.Sprint(step))
	}
	return out
}

// String formats the path as a kubectl jsonpath.
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
