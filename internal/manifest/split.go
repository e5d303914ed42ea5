package manifest

import "bytes"

// A Segment is a document with the lines before it. All segments' raw text together is
// the file.
type Segment struct {
	Lead []byte // the line with ---, and directives
	Body []byte
	Line int // of the file, where the body begins
}

// Raw is the text of the segment.
func (s Segment) Raw() []byte { return append(bytes.Clone(s.Lead), s.Body...) }

// Empty reports whether there are comments at most.
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

// Split finds the documents of a file: they begin at lines with ---, and with what comes
// after a line with "...".
func Split(data []byte) []Segment {
	var out []Segment
	cur := Segment{Line: 1}
	if rest, ok := bytes.CutPrefix(data, []byte("\xef\xbb\xbf")); ok {
		cur.Lead, data = data[:3:3], rest
	}
	n, ended := 0, false
	for line := range bytes.Lines(data) {
		n++
		rest, separates := bytes.CutPrefix(line, []byte("---"))
		switch {
		case separates && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ' || rest[0] == '\t'):
			out = append(out, cur)
			cur, ended = Segment{Line: n + 1}, false
			if after := bytes.TrimSpace(rest); len(after) == 0 || after[0] == '#' {
				cur.Lead = line
				continue
			}
			cur.Lead, cur.Body, cur.Line = line[:4:4], bytes.Clone(line[4:]), n
		case len(line) > 0 && line[0] == '%' && len(cur.Body) == 0:
			cur.Lead = append(bytes.Clone(cur.Lead), line...)
			cur.Line = n + 1
		default:
			if ended && hasContent(line) {
				out = append(out, cur)
				cur, ended = Segment{Line: n}, false
			}
			cur.Body = append(cur.Body, line...)
			ended = ended || string(bytes.TrimRight(line, " \t\r\n")) == "..."
		}
	}
	return append(out, cur)
}
