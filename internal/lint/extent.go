package lint

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// entryExtent is where an entry of a mapping begins and ends. A value that is nothing
// ends with its key.
func (e *editor) entryExtent(m *yaml.Node, i int) (start, end int, err error) {
	key, value := m.Content[i], m.Content[i+1]
	if value.Kind == yaml.ScalarNode && value.Tag == "!!null" && value.Value == "" {
		start, end, err = e.extent(key)
		return start, end + 1, err // the colon
	}
	_, end, err = e.extent(value)
	return e.offset(key.Line, key.Column), end, err
}

// extent is where the text of a node begins and ends. YAML's readers tell only the
// beginning; what is not plain to see is refused.
func (e *editor) extent(n *yaml.Node) (start, end int, err error) {
	start = e.offset(n.Line, n.Column)
	if start >= len(e.text) || strings.IndexByte("&!", e.text[start]) >= 0 || n.Anchor != "" {
		return 0, 0, errCannotEdit
	}
	switch {
	case n.Kind == yaml.AliasNode:
		end = start + len(n.Value) + 1
	case n.Kind == yaml.ScalarNode:
		end, err = e.scalarEnd(n, start)
	case n.Style&yaml.FlowStyle != 0:
		end, err = flowEnd(e.text, start)
	case len(n.Content) == 0:
		err = errCannotEdit
	default:
		last := len(n.Content) - 1
		if n.Kind == yaml.MappingNode {
			_, end, err = e.entryExtent(n, last-1)
		} else {
			_, end, err = e.extent(n.Content[last])
		}
	}
	return start, end, err
}

func (e *editor) scalarEnd(n *yaml.Node, start int) (int, error) {
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return e.blockEnd(n, start)
	case n.Style&yaml.SingleQuotedStyle != 0:
		return quoteEnd(e.text, start, '\'')
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return quoteEnd(e.text, start, '"')
	case strings.HasPrefix(e.text[start:], n.Value):
		return start + len(n.Value), nil // on one line: elsewhere its spaces differ
	}
	return 0, errCannotEdit
}

// blockEnd is the end of the last line of | or > that is further to the right than the
// line on which it begins.
func (e *editor) blockEnd(n *yaml.Node, start int) (int, error) {
	if strings.IndexByte("|>", e.text[start]) < 0 {
		return 0, errCannotEdit
	}
	end := start + len(strings.TrimRight(e.text[start:e.endOfLine(n.Line)], " "))
	indent := -1
	for line := n.Line + 1; line <= len(e.lines); line++ {
		text := e.lineText(line)
		trimmed := strings.TrimLeft(text, " ")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if indent < 0 {
			indent = len(text) - len(trimmed)
		}
		if indent == 0 || len(text)-len(trimmed) < indent {
			break
		}
		end = e.endOfLine(line)
	}
	return end, nil
}

func (e *editor) endOfLine(line int) int { return e.lines[line-1] + len(e.lineText(line)) }

// quoteEnd is behind the quote that closes the one at start.
func quoteEnd(text string, start int, quote byte) (int, error) {
	for i := start + 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i + 1, nil
		}
	}
	return 0, errCannotEdit
}

// flowEnd is behind the bracket that closes the one at start.
func flowEnd(text string, start int) (int, error) {
	depth := 0
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		case c == '#' && strings.IndexByte(" \t\n", text[i-1]) >= 0:
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case (c == '"' || c == '\'') && strings.IndexByte(" \t\n{[,:", text[i-1]) >= 0:
			end, err := quoteEnd(text, i, c)
			if err != nil {
				return 0, err
			}
			i = end - 1
		}
		if depth == 0 {
			break
		}
	}
	return 0, errCannotEdit
}
