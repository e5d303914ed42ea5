package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/maphash"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/mesh/objects"
)

// A document is a part of a file, between lines that begin with ---.
type document struct {
	text    []byte // nil after read
	line    int    // of the file, where it begins
	sum     uint64 // of the text
	objects []objects.Object
	items   []int // of a list: their lines, from the document's
}

var seed = maphash.MakeSeed()

// split returns the documents of a file, without those that have only comments.
func split(data []byte) []document {
	var out []document
	from, first := 0, 1 // offset and line of the current document
	keep := func(to int) {
		if text := data[from:to]; !blank(text) {
			out = append(out, document{text: text, line: first, sum: maphash.Bytes(seed, text)})
		}
	}
	for at, line := 0, 1; at < len(data); line++ {
		end := at + lineLen(data[at:])
		if marks(data[at:end], "---") || marks(data[at:end], "...") {
			keep(at)
			from, first = at+3, line
		}
		at = end
	}
	keep(len(data))
	return out
}

func lineLen(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1
	}
	return len(data)
}

// marks returns whether a line begins with a document marker.
func marks(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// read fills d.objects, or returns the mistakes.
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
			d.items = itemLines(d.text)
		}
		d.text = nil
		return nil
	}
	var out []Problem
	object := d.objects[len(d.objects)-1].String()
	for _, w := range wrongs {
		out = append(out, Problem{Line: d.line + lineOf(d.text, w.Field), Object: object, Field: w.Field, Message: w.Message})
	}
	return out
}

// lineOf is the line of an object.
func (d *document) lineOf(o objects.Object) int {
	if o.Item == 0 || o.Item > len(d.items) {
		return d.line
	}
	return d.line + d.items[o.Item-1]
}

// toJSON returns JSON unchanged: YAML forbids its tabs, and is slower.
func toJSON(text []byte) ([]byte, error) {
	if text = bytes.TrimSpace(text); text[0] == '{' && json.Valid(text) {
		return text, nil
	}
	return yaml.YAMLToJSONStrict(text)
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// yamlError returns the message and the line of an error of the YAML parser, which counts
// lines without the empty ones at the beginning of the document.
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
	// The parser may count beyond the end.
	line = min(line, d.line+bytes.Count(bytes.TrimRight(d.text, "\n"), []byte("\n")))
	return "is no YAML: " + strings.ReplaceAll(message, "\n  ", "; "), line
}
