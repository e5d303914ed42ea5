package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// printed prints a document in the style of like, the author's text: as JSON or YAML, with the same indentation
// and line ends.
func printed(doc *yaml.Node, like []byte) ([]byte, error) {
	asJSON := isJSON(like)
	writeNulls(doc, asJSON)
	if asJSON {
		return printJSON(doc.Content[0], like)
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	indent, compact := styleOf(doc.Content[0])
	e.SetIndent(indent)
	if compact {
		e.CompactSeqIndent()
	}
	if err := e.Encode(doc); err != nil {
		return nil, err
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	text := out.Bytes()
	if root := doc.Content[0]; root.Style&yaml.FlowStyle == 0 && root.Column > 1 {
		text = indented(text, root.Column-1)
	}
	return lineEnds(text, like), nil
}

// writeNulls sets the text of implicit nulls to "null": in JSON all of them, in YAML those within braces or
// brackets. Otherwise they would be printed as empty strings.
func writeNulls(n *yaml.Node, inFlow bool) {
	if inFlow && n.Kind == yaml.ScalarNode && n.Value == "" && n.ShortTag() == "!!null" {
		n.Value = "null"
	}
	for _, c := range n.Content {
		writeNulls(c, inFlow || n.Style&yaml.FlowStyle != 0)
	}
}

func isJSON(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Valid(text)
}

// indented indents all lines that are not blank.
func indented(text []byte, by int) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) > 0 {
			out.WriteString(strings.Repeat(" ", by))
		}
		out.Write(line)
	}
	return out.Bytes()
}

// styleOf returns the indentation of a document, and whether its lists are not indented below their keys
// (compact). It looks at the first mapping and the first list that begin on the line after their key.
func styleOf(n *yaml.Node) (indent int, compact bool) {
	indent, compact = 2, true
	foundMap, foundList := false, false
	var visit func(n *yaml.Node)
	visit = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle == 0 {
			for i := 0; i+1 < len(n.Content); i += 2 {
				k, v := n.Content[i], n.Content[i+1]
				if len(v.Content) == 0 || v.Line <= k.Line || v.Style&yaml.FlowStyle != 0 || v.Column == 0 {
					continue
				}
				switch {
				case v.Kind == yaml.MappingNode && !foundMap && v.Column > k.Column:
					indent, foundMap = v.Column-k.Column, true
				case v.Kind == yaml.SequenceNode && !foundList:
					compact, foundList = v.Column == k.Column, true
				}
			}
		}
		for _, c := range n.Content {
			visit(c)
		}
	}
	visit(n)
	return min(max(indent, 2), 9), compact
}

// printJSON prints the nodes as JSON, in their order, on one line or with the indentation of the author's text
// (like).
func printJSON(n *yaml.Node, like []byte) ([]byte, error) {
	var b strings.Builder
	if err := writeJSON(&b, n, ""); err != nil {
		return nil, err
	}
	if !bytes.Contains(bytes.TrimSpace(like), []byte("\n")) {
		return []byte(b.String() + "\n"), nil
	}
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(b.String()), "", indentOf(like)); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// indentOf returns the white space at the beginning of the second line of a JSON text, which is before its first
// field.
func indentOf(text []byte) string {
	_, rest, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	return string(rest[:len(rest)-len(bytes.TrimLeft(rest, " \t"))])
}

// writeJSON writes JSON on one line, with the text space after each comma and colon.
func writeJSON(b *strings.Builder, n *yaml.Node, space string) error {
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteString("," + space)
			}
			key, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return err
			}
			b.Write(key)
			b.WriteString(":" + space)
			if err := writeJSON(b, n.Content[i+1], space); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, c := range n.Content {
			if i > 0 {
				b.WriteString("," + space)
			}
			if err := writeJSON(b, c, space); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case yaml.ScalarNode:
		return writeScalar(b, n)
	default:
		return fmt.Errorf("line %d: no JSON", n.Line)
	}
	return nil
}

func writeScalar(b *strings.Builder, n *yaml.Node) error {
	if n.Tag == "!!int" || n.Tag == "!!float" || n.Tag == "!!bool" || n.Tag == "!!null" {
		if json.Valid([]byte(n.Value)) {
			b.WriteString(n.Value) // as the author wrote it: 1.10 stays 1.10
			return nil
		}
	}
	text, err := json.Marshal(n.Value)
	b.Write(text)
	return err
}
