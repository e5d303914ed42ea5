package pasted

import (
	"bytes"
	"regexp"
	"strings"

	"outrider.dev/internal/doctor/evidence/timestamp"
)

// A section is a part of a text that one command printed, or that one sentence announces.
type section struct {
	command command // verb is empty: none is known
	heading string  // the line before it, unless a command is
	line    int     // number of the first line
	lines   []string
	whole   bool // it is the whole text
}

// A block has lines that stand apart from the sentences.
type block struct {
	heading string
	line    int
	lines   []string
}

// A way says how a block stands apart.
type way int

const (
	prose way = iota
	fenced
	indented
	quoted
	typed // it follows a command, at the margin
	shown // it shows by itself, at the margin, that a program printed it
)

var (
	fence = regexp.MustCompile("(?m)^[ \t>]*(?:```|~~~)")
	quote = regexp.MustCompile(`^[ \t]{0,3}>[ \t]?`)
	title = regexp.MustCompile(`^(?:#{1,6} \S|\*\*\S|@[\w.-]+:|(?:From|To|Cc|Date|Sent|Subject): \S|[A-Za-z(][^{}=]{2,200}:[ \t]*$)`)
)

// longest is the number of bytes of a line that are read.
const longest = 64 << 10

// A splitter finds the blocks of a text.
type splitter struct {
	out     []block
	now     block
	way     way
	mark    string // of the fence that is open
	depth   int    // of the quotes around the sentences, or around the fence
	heading string // the last line of sentences
	blank   bool   // the line before was blank
}

// blocks returns the blocks of a text.
func blocks(text []byte) []block {
	s := &splitter{blank: true}
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		s.line(number, strings.TrimRight(string(raw[:min(len(raw), longest)]), " \t\r\n"))
	}
	s.end()
	return s.out
}

// unquote removes the marks of quotes from a line, and returns their number.
func unquote(line string) (string, int) {
	depth := 0
	for depth < 8 {
		m := quote.FindString(line)
		if m == "" {
			break
		}
		line, depth = line[len(m):], depth+1
	}
	return line, depth
}

func (s *splitter) line(number int, raw string) {
	line, depth := unquote(raw)
	mark := fence.FindString(strings.TrimLeft(line, " \t"))
	if s.way == fenced {
		switch {
		case depth < s.depth:
			s.end()
		case mark == s.mark:
			s.end()
			return
		default:
			s.add(line)
			return
		}
	}
	switch {
	case mark != "":
		s.begin(fenced, number+1)
		s.mark, s.depth = mark, depth
	case line == "":
		s.gap(depth)
	default:
		s.text(number, line, depth)
	}
	s.blank = line == ""
}

// gap reads a blank line.
func (s *splitter) gap(depth int) {
	if s.way == quoted && depth < s.depth {
		s.end()
	}
	if s.way != prose {
		s.add("")
	}
}

// text reads a line outside of fences that is not blank.
func (s *splitter) text(number int, line string, depth int) {
	_, isCommand := commandOf(line)
	deep := strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")
	switch {
	case s.way == quoted && depth >= s.depth, s.way == indented && deep && depth == s.depth:
		s.add(line)
		return
	case s.way == typed && !isCommand && depth == s.depth && !(s.blank && isTitle(line)),
		s.way == shown && !isCommand && depth == s.depth && (!s.blank || deep || printed(line)):
		s.add(line)
		return
	}
	next := prose
	switch {
	case !isCommand && !deep && printed(line):
		next = shown
	case depth > s.depth && s.heading != "" && (strings.HasSuffix(s.heading, ":") || inSentence(s.heading).verb != ""):
		next = quoted
	case isCommand && !deep:
		next = typed
	case deep && (s.blank || strings.HasSuffix(s.heading, ":")):
		next = indented
	}
	s.end()
	if next == prose {
		s.heading, s.depth = strings.TrimSpace(line), depth
		return
	}
	s.begin(next, number)
	s.depth = depth
	s.add(line)
}

// isTitle reports whether a line among output is the heading of what follows.
func isTitle(line string) bool {
	_, dated := timestamp.Find([]byte(line))
	return !dated && title.MatchString(line) && strings.Contains(line, " ")
}

func (s *splitter) begin(w way, line int) {
	s.end()
	s.way, s.now = w, block{heading: s.heading, line: line}
}

func (s *splitter) add(line string) { s.now.lines = append(s.now.lines, line) }

func (s *splitter) end() {
	if s.way != prose {
		if len(s.now.lines) > 0 {
			s.out = append(s.out, s.now)
			s.heading = ""
		}
		if s.way == quoted {
			s.depth = 0
		}
	}
	s.way, s.now = prose, block{}
}

// sections returns the sections of a text. A command at the end of a block is of the next one.
func sections(text []byte) (out []section) {
	all := blocks(text)
	if len(all) == 0 {
		var lines []string
		for line := range strings.Lines(string(text)) {
			lines = append(lines, strings.TrimRight(line, " \t\r\n"))
		}
		return []section{{line: 1, lines: lines, whole: true}}
	}
	var before command
	for _, b := range all {
		c := before
		if said := inSentence(b.heading); said.verb != "" {
			c = said
		}
		before = command{}
		now := section{command: c, heading: b.heading, line: b.line}
		for i := 0; i < len(b.lines); i++ {
			line := b.lines[i]
			for strings.HasSuffix(line, `\`) && i+1 < len(b.lines) && len(line) < longest {
				if _, is := commandOf(line); !is {
					break
				}
				i++
				line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(b.lines[i])
			}
			if c, is := commandOf(strings.TrimLeft(line, " \t")); is {
				out = now.appendTo(out)
				now = section{command: c, line: b.line + i + 1}
				continue
			}
			now.lines = append(now.lines, b.lines[i])
		}
		if now.empty() {
			before = now.command
		}
		out = now.appendTo(out)
	}
	return out
}

func (s section) empty() bool { return strings.TrimSpace(strings.Join(s.lines, "")) == "" }

// appendTo adds the section to others. One without lines is there for the pod that its command names.
func (s section) appendTo(out []section) []section {
	if s.empty() && s.command.pod == "" {
		return out
	}
	return append(out, s)
}

// margin returns the lines without the indent that all have.
func (s section) margin() []string {
	indent := -1
	for _, line := range s.lines {
		if has := len(line) - len(strings.TrimLeft(line, " \t")); line != "" && (indent < 0 || has < indent) {
			indent = has
		}
	}
	out := make([]string, len(s.lines))
	for i, line := range s.lines {
		out[i] = line[min(max(indent, 0), len(line)):]
	}
	return out
}
