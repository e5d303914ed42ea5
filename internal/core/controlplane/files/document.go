package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/mesh/objects"
)

// A document is a part of a file. Lines that begin with --- separate documents.
type document struct {
	text []byte
	line int // line of the file on which it begins
	parsed
}

// parsed is the part of a document that does not depend on its position in a file.
type parsed struct {
	objects []objects.Object
	items   []int // for a Kubernetes List, the lines of its items within the document
}

// split returns the documents of a file. It leaves out those that contain only comments.
func split(data []byte) []document {
	var out []document
	for s := range manifest.Split(data) {
		if !s.Empty() {
			out = append(out, document{text: s.Body, line: s.Line})
		}
	}
	return out
}

// read parses the text into d.objects, or returns the mistakes in it.
func (d *document) read() []Problem {
	raw, err := toJSON(d.text)
	if err != nil {
		message, line := d.yamlError(err)
		return []Problem{{Line: line, Message: message}}
	}
	d.objects, err = objects.Read(raw)
	var wrongs objects.FieldErrors
	if !errors.As(err, &wrongs) {
		if len(d.objects) > 0 && d.objects[0].Item > 0 {
			if items := manifest.Field(nodeOf(d.text), "items"); items != nil {
				for _, item := range items.Content {
					d.items = append(d.items, item.Line-1)
				}
			}
		}
		return nil
	}
	var out []Problem
	object := d.objects[len(d.objects)-1].String()
	for _, w := range wrongs {
		out = append(out, Problem{Line: d.line + lineOf(nodeOf(d.text), w.Field), Object: object, Field: w.Field, Message: w.Message})
	}
	return out
}

// lineOf returns the line in the file on which an object begins.
func (d *document) lineOf(o objects.Object) int {
	if o.Item == 0 || o.Item > len(d.items) {
		return d.line
	}
	return d.line + d.items[o.Item-1]
}

// nodeOf returns the root value of a text, or nil if the text is not YAML. JSON with tabs is not YAML.
func nodeOf(text []byte) *yamlnode.Node {
	d, err := manifest.Read(text)
	if err != nil {
		return nil
	}
	return d.Root()
}

// lineOf returns the line, counted from 0, of the field with a path below n. If the field is missing, it
// returns the line of the nearest parent that exists. Names of fields may contain dots.
func lineOf(n *yamlnode.Node, path string) int {
	line := 1
	if n != nil {
		line = n.Line
	}
	for path != "" {
		key, value, rest := step(manifest.Target(n), path)
		if value == nil {
			break
		}
		n, line, path = value, key.Line, strings.TrimPrefix(rest, ".")
	}
	return line - 1
}

// step finds the field or item with which path begins, and returns the rest of the path. If there is none,
// value is nil.
func step(n *yamlnode.Node, path string) (key, value *yamlnode.Node, rest string) {
	switch {
	case n == nil:
	case n.Kind == yamlnode.SequenceNode && path[0] == '[':
		index, rest, _ := strings.Cut(path[1:], "]")
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i], rest
		}
	case n.Kind == yamlnode.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if rest, ok := strings.CutPrefix(path, n.Content[i].Value); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				return n.Content[i], n.Content[i+1], rest
			}
		}
	}
	return nil, nil, ""
}

// toJSON leaves JSON unchanged, because its tabs are not allowed in YAML, and parsing it as YAML is slower.
func toJSON(text []byte) ([]byte, error) {
	if text = bytes.TrimSpace(text); text[0] == '{' && json.Valid(text) {
		return text, nil
	}
	return manifest.StrictJSON(text)
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// yamlError returns the message and the line of an error from the YAML parser, which does not count
// empty lines at the beginning of the document.
func (d *document) yamlError(err error) (message string, line int) {
	message = err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:", "\n  "} {
		message = strings.TrimPrefix(message, prefix)
	}
	line = d.line + bytes.Count(d.text[:len(d.text)-len(bytes.TrimLeft(d.text, " \t\r\n"))], []byte("\n"))
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		n, _ := strconv.Atoi(m[1])
		message, line = message[len(m[0]):], line+n-1
	}
	// The parser may report a line beyond the end.
	line = min(line, d.line+bytes.Count(bytes.TrimRight(d.text, "\n"), []byte("\n")))
	return "is no YAML: " + strings.ReplaceAll(message, "\n  ", "; "), line
}
