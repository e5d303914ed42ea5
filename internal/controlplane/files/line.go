package files

import (
	"bytes"
	"strconv"
	"strings"
)

// A line of YAML that is neither empty nor a comment.
type textLine struct {
	number int // from 0
	indent int
	text   string
}

// lineOf returns the line of a field, from 0. It is a hint for people and relies on indentation
// alone; where that does not suffice, as in JSON, it is the line of the innermost parent that
// was found, or the document's first.
func lineOf(text []byte, path string) int {
	lines := textLines(text)
	if len(lines) == 0 {
		return 0
	}
	found := lines[0].number
	for path != "" && len(lines) > 0 {
		var at textLine
		var ok bool
		if path[0] == '[' {
			at, lines, path, ok = intoItem(lines, path)
		} else {
			at, lines, path, ok = intoField(lines, path)
		}
		if !ok {
			break
		}
		found = at.number
		path = strings.TrimPrefix(path, ".")
	}
	return found
}

func textLines(text []byte) []textLine {
	var out []textLine
	number := 0
	for line := range bytes.Lines(text) {
		trimmed := bytes.TrimLeft(line, " ")
		if t := strings.TrimSpace(string(trimmed)); t != "" && t[0] != '#' {
			out = append(out, textLine{number, len(line) - len(trimmed), t})
		}
		number++
	}
	return out
}

func (l textLine) isItem() bool { return l.text == "-" || strings.HasPrefix(l.text, "- ") }

// intoItem goes into the item of a list: path begins with its index.
func intoItem(lines []textLine, path string) (textLine, []textLine, string, bool) {
	index, rest, _ := strings.Cut(path[1:], "]")
	n, err := strconv.Atoi(index)
	if err != nil {
		return textLine{}, nil, path, false
	}
	list := lines[0].indent
	for i, l := range lines {
		if l.indent != list || !l.isItem() {
			continue
		}
		if n--; n >= 0 {
			continue
		}
		end := i + 1
		for end < len(lines) && lines[end].indent > list {
			end++
		}
		inside := append([]textLine(nil), lines[i:end]...)
		first := strings.TrimLeft(strings.TrimPrefix(l.text, "-"), " ")
		inside[0].indent, inside[0].text = list+len(l.text)-len(first), first
		if first == "" {
			inside = inside[1:]
		}
		return l, inside, rest, true
	}
	return textLine{}, nil, path, false
}

// itemLines returns the first lines of the items of a List, from 0, in one pass, as a list
// may have many. It is empty for JSON in one line.
func itemLines(text []byte) []int {
	lines := textLines(text)
	if len(lines) == 0 {
		return nil
	}
	_, lines, _, ok := intoField(lines, "items")
	if !ok || len(lines) == 0 {
		return nil
	}
	var out []int
	for _, l := range lines {
		if l.indent == lines[0].indent && l.isItem() {
			out = append(out, l.number)
		}
	}
	return out
}

// intoField goes into a field: path begins with its name. Names may contain dots, so they
// are read from the lines.
func intoField(lines []textLine, path string) (textLine, []textLine, string, bool) {
	level := lines[0].indent
	for i, l := range lines {
		if l.indent != level {
			continue
		}
		name, _, isField := strings.Cut(l.text+" ", ": ")
		name = strings.Trim(name, `"'`)
		rest, ok := strings.CutPrefix(path, name)
		if !isField || !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		end := i + 1
		for end < len(lines) && (lines[end].indent > level || lines[end].indent == level && lines[end].isItem()) {
			end++
		}
		return l, lines[i+1 : end], rest, true
	}
	return textLine{}, nil, path, false
}
