package timestamp

import (
	"bytes"
	"time"
)

// A Prefix is the format of the text that the container runtime or kubectl writes before each line of a program.
type Prefix string

// The prefixes.
const (
	NoPrefix Prefix = ""
	Kubectl  Prefix = "kubectl --timestamps" // 2026-11-24T03:18:19.480123456Z text
	CRI      Prefix = "CRI"                  // 2026-11-24T03:18:19.480123456Z stdout F text (log files of a node)
)

// A Layout is the format of the times in one log.
type Layout struct {
	Prefix Prefix
	Form   Form // empty: lines have no time of their own
	Column int  // byte at which most stamps begin, after the prefix
}

// A Reading is a parsed line.
type Reading struct {
	Written, Own       Stamp // stamps by the container runtime and by the program
	HasWritten, HasOwn bool
	Text               []byte // without the prefix
	Continues          bool   // the line belongs to the previous one, as in a stack trace or a text of several lines
}

// Learn returns the layout of a log: the prefix that all lines have, and the form and column of most stamps. lines
// are the first lines of the log.
func Learn(lines [][]byte) Layout {
	l := Layout{Prefix: prefixOf(lines)}
	type vote struct {
		form   Form
		column int
	}
	votes := map[vote]int{}
	best := 0
	for _, line := range lines {
		text, _, _ := l.cut(line)
		if s, ok := Find(text); ok {
			v := vote{s.Form, s.At}
			votes[v]++
			if votes[v] > best {
				best, l.Form, l.Column = votes[v], v.form, v.column
			}
		}
	}
	return l
}

// prefixOf returns the prefix that all lines have, also the lines of stack traces. For the prefix of kubectl, each
// stamp must have nine digits after the decimal point, as the kubelet writes them.
func prefixOf(lines [][]byte) Prefix {
	cri, with, seen := 0, 0, 0
	for _, line := range lines {
		if len(line) == 0 {
			continue
		}
		seen++
		rest, _, ok := cutStamp(line)
		if !ok {
			return NoPrefix
		}
		with++
		if _, ok := cutStream(rest); ok {
			cri++
		}
	}
	switch {
	case with == 0 || with < seen:
		return NoPrefix
	case cri == with:
		return CRI
	}
	for _, line := range lines { // containerd omits trailing zeros, kubectl does not
		if _, s, _ := cutStamp(line); len(line) > 0 && s.Resolution != 1 {
			return NoPrefix
		}
	}
	return Kubectl
}

// cutStamp removes an RFC 3339 stamp and the space after it.
func cutStamp(line []byte) ([]byte, Stamp, bool) {
	if len(line) < len("2006-01-02T15:04:05Z") || line[10] != 'T' || !digit(line, 0) {
		return line, Stamp{}, false
	}
	s, ok := at(line, 0, true)
	if !ok || s.Form != ISO || !s.Zoned || s.Resolution == time.Second {
		return line, Stamp{}, false
	}
	if s.End < len(line) && line[s.End] != ' ' {
		return line, Stamp{}, false
	}
	return line[min(s.End+1, len(line)):], s, true
}

// cutStream removes the text "stdout F " or the like, which CRI writes. P instead of F means that the runtime has
// split the line and more of it follows.
func cutStream(text []byte) ([]byte, bool) {
	for _, p := range []string{"stdout F", "stderr F", "stdout P", "stderr P"} {
		if rest, ok := bytes.CutPrefix(text, []byte(p)); ok && (len(rest) == 0 || rest[0] == ' ') {
			return rest[min(1, len(rest)):], true
		}
	}
	return text, false
}

// Text returns a line without the prefix.
func (l Layout) Text(line []byte) []byte {
	text, _, _ := l.cut(line)
	return text
}

func (l Layout) cut(line []byte) (text []byte, written Stamp, ok bool) {
	if l.Prefix == NoPrefix {
		return line, Stamp{}, false
	}
	text, written, ok = cutStamp(line)
	if ok && l.Prefix == CRI {
		text, _ = cutStream(text)
	}
	return text, written, ok
}

// Read parses a line. If the lines of the log have times, a line without one belongs to the previous line.
func (l Layout) Read(line []byte) Reading {
	var r Reading
	r.Text, r.Written, r.HasWritten = l.cut(line)
	if l.Form == "" {
		r.Continues = indented(r.Text)
		return r
	}
	if s, ok := uptime(r.Text, skipColours(r.Text, 0)); ok {
		r.Own, r.HasOwn = s, true
		return r
	}
	if indented(r.Text) && l.Column == 0 {
		r.Continues = true
		return r
	}
	if l.Form != JSON && l.Column < len(r.Text) && beginsToken(r.Text, l.Column) {
		r.Own, r.HasOwn = at(r.Text, l.Column, l.Column == skipColours(r.Text, 0))
		r.HasOwn = r.HasOwn && r.Own.Form == l.Form
	}
	if !r.HasOwn {
		r.Own, r.HasOwn = Find(r.Text)
	}
	r.Continues = !r.HasOwn
	return r
}

// indented reports whether a line begins with a space or a tab, as most lines of a stack trace do.
func indented(text []byte) bool { return len(text) > 0 && (text[0] == ' ' || text[0] == '\t') }

// Dateless reports whether the times of most lines have no date.
func (l Layout) Dateless() bool { return l.Form == Clock }
