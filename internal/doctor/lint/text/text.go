// Package text finds the positions of objects and their fields in the text of a file, and changes that text.
package text

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/podfile"
)

// A File is text with manifests.
type File struct {
	Name    string
	Objects []*Object
	text    string
	lines   []int            // offset of each line
	near    finding.Position // the last position that was looked up, where the next search begins: a file may be one long line
	nearAt  int              // offset of near
}

// An Object is a Kubernetes object of a file, alone or in a list. Its Node is nil if its position is not known.
type Object struct {
	*File
	Node     *yaml.Node // its positions are relative to the file
	document int        // number of the document in the file, from 1
	index    int        // index in the document
	from, to int        // offsets of the beginning and the end of the document's text
}

// Read finds the positions of objects. If a document is valid for package podspec but not for this YAML reader, it
// has no objects here, and its findings have no line.
func Read(name string, data []byte) *File {
	s := &File{Name: name, text: string(data), lines: lineStarts(string(data))}
	document, end := 0, 0
	for segment := range manifest.Split(data) {
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
			s.Objects = append(s.Objects, &Object{s, o, document, i, from, end})
		}
		at := s.position(from)
		shift(d.Root(), at.Line-1, at.Column-1)
	}
	return s
}

// shift converts the positions of nodes, which are relative to their document, to positions in the file. Columns
// change only in the first line of a document, because only that line can begin after other text.
func shift(n *yaml.Node, lines, columns int) {
	if n.Line == 1 {
		n.Column += columns
	}
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines, columns)
	}
}

// Of returns the object that contains a pod. It has no Node if Read did not find it.
func (s *File) Of(pod podfile.Object) *Object {
	at, found := slices.BinarySearchFunc(s.Objects, pod, func(at *Object, pod podfile.Object) int {
		return cmp.Or(at.document-pod.Document, at.index-pod.Index)
	})
	if !found {
		return &Object{File: s}
	}
	return s.Objects[at]
}

// find returns the key and the value at a path; the key is nil for an item of a list. If the path does not exist, it
// returns the key and the value of the longest part that exists, and false.
func find(root *yaml.Node, path []any) (key, value *yaml.Node, all bool) {
	value = root
	for _, step := range path {
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

// Place returns the position of the evidence in the field at a path, or else the position of the field. The steps of
// the path are names (string) and indexes (int).
func (s *Object) Place(path []any, evidence string) finding.Place {
	out := finding.Place{File: s.Name}
	if s.Node == nil {
		return out
	}
	key, value, all := find(s.Node, path)
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

// longLine is the length of a line, in bytes, above which only a part of it is shown. A file may be one long line.
const longLine = 4 << 10

// evidence finds the position at which a text begins in a scalar. The text may be the joined form of several lines;
// so its first two words are enough.
func (s *File) evidence(n *yaml.Node, text string) (line, column int, ok bool) {
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
func (s *File) lineText(line int) string {
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
func (s *File) offset(line, column int) int {
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
func (s *File) column(line, offset int) int {
	at, here := s.lines[line-1], 1
	if s.near.Line == line && s.nearAt <= offset {
		at, here = s.nearAt, s.near.Column
	}
	return here + utf8.RuneCountInString(s.text[at:offset])
}

// position converts an offset to a line and a column.
func (s *File) position(offset int) finding.Position {
	line, begins := slices.BinarySearch(s.lines, offset)
	if !begins {
		line--
	}
	return finding.Position{Line: line + 1, Column: s.column(line+1, min(offset, len(s.text)))}
}

// Patch returns the edits of the file that change the object by the difference between two trees of package manifest,
// which may be parts of the object. It fails if the result, parsed again, is not exactly the wanted object.
func (o *Object) Patch(before, after any) (*finding.Patch, error) {
	if o.Node == nil {
		return nil, manifest.ErrCannotEdit
	}
	s := o.File
	from, to, d := s.part(o.Node)
	alone, index := d != nil, 0
	if !alone {
		from, to, index = o.from, o.to, o.index
		var err error
		if d, err = manifest.Read([]byte(s.text[from:to])); err != nil {
			return nil, err
		}
	}
	if _, err := d.SmallChange(manifest.Objects(d.Root())[index], before, after); err != nil {
		return nil, err
	}
	text, exact, err := d.Text()
	if err != nil || !exact {
		return nil, manifest.ErrCannotEdit
	}
	if dashes := s.text[from:to]; alone { // an item of a list begins after its dash
		n := len(dashes) - len(strings.TrimLeft(dashes, " -"))
		text = append([]byte(dashes[:n]), bytes.TrimLeft(text, " ")...)
	}
	return &finding.Patch{File: s.Name, Edits: s.changes(from, to, string(text))}, nil
}

// part returns the text of one item of a list, because it is faster to parse and print than a list of thousands of
// items. The document is nil if the item cannot be separated: it shares lines or anchors with others.
func (s *File) part(n *yaml.Node) (from, to int, d *manifest.Document) {
	first, start := s.offset(n.Line, 1), s.offset(n.Line, n.Column)
	if n.Column == 1 || n.Style&yaml.FlowStyle != 0 || strings.Trim(s.text[first:start], " -") != "" {
		return 0, 0, nil
	}
	end := n.Line + 1
	for ; end <= len(s.lines); end++ {
		text := s.lineText(end)
		inner := strings.TrimLeft(text, " ")
		if inner != "" && inner[0] != '#' && len(text)-len(inner) < n.Column-1 {
			break
		}
	}
	to = len(s.text)
	if end <= len(s.lines) {
		to = s.lines[end-1]
	}
	d, err := manifest.Read([]byte(strings.Repeat(" ", start-first) + s.text[start:to]))
	if err != nil || len(manifest.Objects(d.Root())) != 1 {
		return 0, 0, nil
	}
	var whole, alone any
	if n.Decode(&whole) != nil || d.Root().Decode(&alone) != nil || !reflect.DeepEqual(whole, alone) {
		return 0, 0, nil
	}
	return first, to, d
}

// changes returns the edit that replaces s.text[from:to] by text. It replaces whole lines, but no lines at the
// beginning and the end that stay equal.
func (s *File) changes(from, to int, text string) []finding.Edit {
	first, last := strings.LastIndexByte(s.text[:from], '\n')+1, len(s.text)
	if to > 0 && s.text[to-1] == '\n' {
		last = to
	} else if n := strings.IndexByte(s.text[to:], '\n'); n >= 0 {
		last = to + n + 1
	}
	was, is := strings.SplitAfter(s.text[first:last], "\n"), strings.SplitAfter(s.text[first:from]+text+s.text[to:last], "\n")
	head := 0
	for head < len(was) && head < len(is) && was[head] == is[head] {
		head++
	}
	tail := 0
	for tail < len(was)-head && tail < len(is)-head && was[len(was)-1-tail] == is[len(is)-1-tail] {
		tail++
	}
	start := first + len(strings.Join(was[:head], ""))
	end := last - len(strings.Join(was[len(was)-tail:], ""))
	text = strings.Join(is[head:len(is)-tail], "")
	return []finding.Edit{{Start: start, End: end, Text: text, From: s.position(start), To: s.position(end)}}
}
