package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/lint/finding"
)

// An op is one change of an object: a field gets a value (a text, a number, a list of
// texts), or with nil is taken out.
type op struct {
	at    path
	value any
}

// errCannotEdit is the reason why a change is left to a person.
var errCannotEdit = errors.New("the YAML is written in a way that this change cannot be put into without rewriting it")

// An editor turns ops into edits of the text, so that comments, order and style of all
// else stay.
type editor struct {
	*source
	root  *yaml.Node
	edits []finding.Edit
}

func (e *editor) replace(start, end int, text string) error {
	if start < 0 || end < start || end > len(e.text) {
		return errCannotEdit
	}
	e.edits = append(e.edits, finding.Edit{Start: start, End: end, Text: text, From: e.position(start), To: e.position(end)})
	return nil
}

func (e *editor) apply(o op) error {
	if o.value == nil {
		return e.remove(o.at)
	}
	_, value, all := find(e.root, o.at)
	if all {
		return e.set(value, o)
	}
	return e.insert(o)
}

// set puts another value in the place of one.
func (e *editor) set(n *yaml.Node, o op) error {
	start, end, err := e.extent(n)
	if err != nil {
		return err
	}
	text, isText := o.value.(string)
	if isText && n.Kind == yaml.ScalarNode && n.Style&yaml.LiteralStyle != 0 {
		return e.setLiteral(n, start, end, text)
	}
	return e.replace(start, end, inline(o.value, n.Style))
}

// setLiteral writes the lines of a block, each as far to the right as they were.
func (e *editor) setLiteral(n *yaml.Node, start, end int, text string) error {
	header, body, ok := strings.Cut(e.text[start:end], "\n")
	first := strings.TrimLeft(body, "\r\n")
	indent := len(first) - len(strings.TrimLeft(first, " "))
	if !ok || indent == 0 || strings.ContainsAny(header, "123456789") || strings.HasPrefix(text, " ") || strings.TrimSpace(text) == "" {
		return errCannotEdit
	}
	var b strings.Builder
	b.WriteString(header)
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteByte('\n')
		if line != "" {
			b.WriteString(strings.Repeat(" ", indent) + line)
		}
	}
	return e.replace(start, end, b.String())
}

// inline is a value on one line, in the style that was there.
func inline(value any, style yaml.Style) string {
	text, isText := value.(string)
	switch {
	case !isText:
		return quoted(value)
	case style&yaml.SingleQuotedStyle != 0 && !strings.ContainsAny(text, "\n\r\t"):
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	case style&yaml.DoubleQuotedStyle != 0 || !plain(text):
		return quoted(text)
	}
	return text
}

// quoted is JSON, which is YAML too.
func quoted(value any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return `""` // of texts, numbers and lists of them there is no error
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// plain says whether a text needs no quotes anywhere.
func plain(text string) bool {
	for _, r := range text {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=", r)) {
			return false
		}
	}
	var back any
	err := yaml.Unmarshal([]byte(text), &back)
	asText, isText := back.(string)
	return err == nil && isText && asText == text && !strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "=")
}

// remove takes a field out of its mapping, and the mapping with it if nothing is left.
func (e *editor) remove(at path) error {
	for len(at) > 0 {
		name, isField := at[len(at)-1].(string)
		_, holder, all := find(e.root, at[:len(at)-1])
		if !isField || !all || holder.Kind != yaml.MappingNode {
			return errCannotEdit
		}
		i := entry(holder, name)
		switch {
		case i < 0:
			return errCannotEdit
		case len(holder.Content) == 2:
			at = at[:len(at)-1]
			continue
		case holder.Style&yaml.FlowStyle != 0:
			return e.removeFlow(holder, i)
		}
		return e.removeBlock(holder, i)
	}
	return errCannotEdit
}

func (e *editor) removeFlow(m *yaml.Node, i int) error {
	if i+2 < len(m.Content) { // up to the next key
		k, next := m.Content[i], m.Content[i+2]
		return e.replace(e.offset(k.Line, k.Column), e.offset(next.Line, next.Column), "")
	}
	_, start, err := e.extent(m.Content[i-1])
	if err != nil {
		return err
	}
	_, end, err := e.extent(m.Content[i+1])
	if err != nil {
		return err
	}
	return e.replace(start, end, "")
}

func (e *editor) removeBlock(m *yaml.Node, i int) error {
	key := m.Content[i]
	start := e.offset(key.Line, key.Column)
	_, end, err := e.entryExtent(m, i)
	if err != nil {
		return err
	}
	begin := e.offset(key.Line, 1)
	if strings.TrimSpace(e.text[begin:start]) != "" { // the first of an item: the next key comes here
		if i+2 >= len(m.Content) {
			return errCannotEdit
		}
		next := m.Content[i+2]
		to := e.offset(next.Line, next.Column)
		if strings.TrimSpace(e.text[end:to]) != "" {
			return errCannotEdit // a comment would go
		}
		return e.replace(start, to, "")
	}
	rest, _, _ := strings.Cut(e.text[end:], "\n")
	if t := strings.TrimSpace(rest); t != "" && t[0] != '#' {
		return errCannotEdit
	}
	return e.replace(begin, min(end+len(rest)+1, len(e.text)), "")
}

// insert adds a field, and the mappings on the way to it.
func (e *editor) insert(o op) error {
	depth := len(o.at) - 1
	var holder *yaml.Node
	for ; depth >= 0; depth-- {
		if _, n, all := find(e.root, o.at[:depth]); all {
			holder = n
			break
		}
	}
	if holder == nil {
		return errCannotEdit
	}
	for _, step := range o.at[depth:] {
		if _, isName := step.(string); !isName {
			return errCannotEdit
		}
	}
	steps := o.at[depth:]
	switch {
	case holder.Kind == yaml.ScalarNode && holder.Tag == "!!null" && depth > 0:
		return e.fillNull(o, depth)
	case holder.Kind != yaml.MappingNode:
		return errCannotEdit
	case holder.Style&yaml.FlowStyle != 0:
		start, end, err := e.extent(holder)
		if err != nil {
			return err
		}
		text := flowEntry(steps, o.value, len(holder.Content) == 0 || holder.Content[0].Style&yaml.DoubleQuotedStyle != 0)
		if len(holder.Content) == 0 {
			return e.replace(start+1, end-1, text)
		}
		_, last, err := e.extent(holder.Content[len(holder.Content)-1])
		if err != nil {
			return err
		}
		return e.replace(last, last, ", "+text)
	case len(holder.Content) == 0:
		return errCannotEdit
	}
	return e.insertBlock(holder, steps, o.value)
}

// insertBlock adds lines: to a mapping of texts at its end, to any other before its first
// field, where a person would look for it.
func (e *editor) insertBlock(m *yaml.Node, steps path, value any) error {
	first := m.Content[0]
	indent := first.Column - 1
	lines := blockEntry(steps, value, indent)
	begin := e.offset(first.Line, 1)
	atEnd := m.Content[1].Kind == yaml.ScalarNode || first.HeadComment != "" || first.Line == e.root.Line && first.Column == e.root.Column
	if !atEnd && strings.TrimSpace(e.text[begin:e.offset(first.Line, first.Column)]) == "" {
		return e.replace(begin, begin, lines)
	}
	_, end, err := e.entryExtent(m, len(m.Content)-2)
	if err != nil {
		return err
	}
	rest, _, more := strings.Cut(e.text[end:], "\n")
	end += len(rest)
	if !more {
		return e.replace(end, end, "\n"+strings.TrimSuffix(lines, "\n"))
	}
	return e.replace(end+1, end+1, lines)
}

// fillNull writes a mapping where a key has no value yet.
func (e *editor) fillNull(o op, depth int) error {
	key, value, _ := find(e.root, o.at[:depth])
	if key == nil || value.Value != "" || key.Column < 1 {
		return errCannotEdit
	}
	_, end, err := e.extent(key)
	if err != nil || !strings.HasPrefix(e.text[end:], ":") {
		return errCannotEdit
	}
	return e.replace(end+1, end+1, "\n"+strings.TrimSuffix(blockEntry(o.at[depth:], o.value, key.Column+1), "\n"))
}

func keyText(step any) string {
	name := fmt.Sprint(step)
	if plain(name) {
		return name
	}
	return quoted(name)
}

// flowEntry quotes all in JSON, so that it stays JSON.
func flowEntry(steps path, value any, isJSON bool) string {
	key, text := keyText, inline(value, 0)
	if isJSON {
		key, text = func(step any) string { return quoted(fmt.Sprint(step)) }, quoted(value)
	}
	for i := len(steps) - 1; i >= 0; i-- {
		text = key(steps[i]) + ": " + text
		if i > 0 {
			text = "{" + text + "}"
		}
	}
	return text
}

func blockEntry(steps path, value any, indent int) string {
	var b strings.Builder
	for i, step := range steps {
		b.WriteString(strings.Repeat(" ", indent+2*i) + keyText(step) + ":")
		if i < len(steps)-1 {
			b.WriteByte('\n')
		}
	}
	return b.String() + " " + inline(value, 0) + "\n"
}
