package manifest

import "bytes"

// A segment is a document with what stands before it. All segments' raw text together is
// the file.
type segment struct {
	lead []byte // the line with ---, and directives
	body []byte
	line int // of the file, where the body begins
}

func (s segment) raw() []byte { return append(bytes.Clone(s.lead), s.body...) }

// empty says that there are comments at most.
func (s segment) empty() bool {
	for line := range bytes.Lines(s.body) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// split finds the documents: they begin at lines with ---.
func split(data []byte) []segment {
	var out []segment
	cur := segment{line: 1}
	if rest, ok := bytes.CutPrefix(data, []byte("\xef\xbb\xbf")); ok {
		cur.lead, data = data[:3:3], rest
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		rest, separates := bytes.CutPrefix(line, []byte("---"))
		switch {
		case separates && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ' || rest[0] == '\t'):
			out = append(out, cur)
			cur = segment{line: n + 1}
			if after := bytes.TrimSpace(rest); len(after) == 0 || after[0] == '#' {
				cur.lead = line
				continue
			}
			cur.lead, cur.body, cur.line = line[:4:4], bytes.Clone(line[4:]), n
		case len(line) > 0 && line[0] == '%' && len(cur.body) == 0:
			cur.lead = append(bytes.Clone(cur.lead), line...)
			cur.line = n + 1
		default:
			cur.body = append(cur.body, line...)
		}
	}
	return append(out, cur)
}
