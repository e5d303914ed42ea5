package manifest

import (
	"bytes"
	"iter"
)

// A Segment is a document of a file with the lines before it. The raw texts of all segments together are the
// file.
type Segment struct {
	Lead []byte // the line with --- and directives such as %YAML
	Body []byte
	Line int // line of the file on which the body begins
}

// Raw returns a copy of the segment's text.
func (s Segment) Raw() []byte { return append(bytes.Clone(s.Lead), s.Body...) }

// Empty reports whether the document contains nothing but comments.
func (s Segment) Empty() bool {
	for line := range bytes.Lines(s.Body) {
		if hasContent(line) {
			return false
		}
	}
	return true
}

func hasContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#' && string(line) != "..."
}

// Split yields the documents of a file. A document begins at a line with ---, and after a line with "...".
// Segments refer to data and are not copies, because a file may have a document in every four bytes.
func Split(data []byte) iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		var cur cut
		if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
			cur.body = 3
		}
		cur.line = 1
		at, n, ended := cur.body, 0, false
		for line := range bytes.Lines(data[at:]) {
			n++
			body, separates := afterDashes(line)
			switch {
			case separates:
				if !yield(cur.segment(data, at)) {
					return
				}
				cur, ended = cut{from: at, body: at + body, line: n}, false
				if body == len(line) {
					cur.line++
				}
			case line[0] == '%' && cur.body == at:
				cur.body, cur.line = at+len(line), n+1
			default:
				if ended && hasContent(line) {
					if !yield(cur.segment(data, at)) {
						return
					}
					cur, ended = cut{from: at, body: at, line: n}, false
				}
				ended = ended || string(bytes.TrimRight(line, " \t\r\n")) == "..."
			}
			at += len(line)
		}
		yield(cur.segment(data, at))
	}
}

// A cut contains the positions at which a segment and its body begin in a file, and the line of the body.
type cut struct{ from, body, line int }

func (c cut) segment(data []byte, end int) Segment {
	return Segment{Lead: data[c.from:c.body:c.body], Body: data[c.body:end:end], Line: c.line}
}

// afterDashes reports whether a line begins a document with ---, and returns the position in the line at which
// the document's body begins.
func afterDashes(line []byte) (body int, separates bool) {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	switch after := bytes.TrimSpace(rest); {
	case !ok || len(after) > 0 && rest[0] != ' ' && rest[0] != '\t':
		return 0, false
	case len(after) == 0 || after[0] == '#':
		return len(line), true
	}
	return 4, true
}
