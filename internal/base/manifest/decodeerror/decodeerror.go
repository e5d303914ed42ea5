// Package decodeerror translates errors of YAML and JSON decoders for people who write manifests: which field has
// which value, and which type it needs, without the names of libraries and Go types.
package decodeerror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Reason returns an error of a YAML or JSON decoder without the names of libraries.
func Reason(err error) string {
	s := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "yaml: ", "json: "} {
		s = strings.TrimPrefix(s, prefix)
	}
	return strings.ReplaceAll(s, "\n", " ")
}

// Syntax returns why a text is not YAML, given the decoder's error. If the text contains {{, it adds that a
// template must be rendered first.
func Syntax(text []byte, err error) string {
	const template = "{{ }} belongs to a template: render it first, as with helm template"
	reason := Reason(err)
	badKey := strings.HasPrefix(reason, "invalid map key")
	switch {
	case bytes.Contains(text, []byte("{{")) && badKey:
		return template
	case bytes.Contains(text, []byte("{{")):
		return reason + "; " + template
	case badKey:
		return "a key must be a string"
	}
	return reason
}

// A Mismatch describes a value whose type does not fit its field.
type Mismatch struct {
	Field     string // path with list indexes; empty for the whole document
	Want, Got string // descriptions such as "a list of strings"
}

func (m *Mismatch) Error() string { return "must be " + m.Want + ", not " + m.Got }

// typeError matches an error of encoding/json about the type of a value. Its groups are the kind of the value,
// the value, the path of the field, and the field's Go type.
var typeError = regexp.MustCompile(`cannot unmarshal (\w+)( \S+)? into Go (?:struct field \w*\.(\S+)|value) of type (\S+)$`)

// Find returns the mismatch that a decoder reports about the JSON in raw. The path in the error lacks list
// indexes, so Find searches raw for the value. It returns nil for an error that is not a mismatch.
func Find(raw []byte, err error) *Mismatch {
	m := typeError.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	kind, value, path, goType := m[1], m[2], m[3], m[4]
	out := &Mismatch{Field: path, Want: wanted(goType, kind), Got: kinds[kind]}
	if value != "" {
		out.Got = strings.TrimSpace(value)
	}
	var tree any
	if path != "" && json.Unmarshal(raw, &tree) == nil {
		if at, ok := search(tree, strings.Split(path, "."), kind); ok {
			out.Field = strings.TrimPrefix(at, ".")
		}
	}
	return out
}

// kinds maps the decoder's names of JSON types to descriptions.
var kinds = map[string]string{"string": "a string", "number": "a number", "object": "an object", "array": "a list", "bool": "true or false"}

// wanted returns a description of a field's Go type, such as "a list". kind is the JSON type of the value that
// does not fit.
func wanted(goType, kind string) string {
	switch {
	case goType == "[]string":
		return "a list of strings"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "v1.Time":
		return "a time such as 2006-01-02T15:04:05Z"
	case goType == "string", strings.HasPrefix(goType, "v1.") && kind == "object":
		return "a string"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case strings.HasPrefix(goType, "map["), kind == "string":
		return "an object"
	}
	return "an object or a string"
}

// search returns the full path, with list indexes and map keys, of a value of the given kind. The argument path
// lacks the indexes and keys. If several values match, search returns the first one.
func search(v any, path []string, kind string) (at string, found bool) {
	list, isList := v.([]any)
	switch {
	case len(path) == 0 && kindOf(v) == kind:
		return "", true
	case isList:
		for i, e := range list {
			if at, found := search(e, path, kind); found {
				return fmt.Sprintf("[%d]%s", i, at), true
			}
		}
	case len(path) == 0:
		object, _ := v.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if kindOf(object[key]) == kind {
				return "." + key, true
			}
		}
	default:
		object, _ := v.(map[string]any)
		if e, there := object[path[0]]; there {
			at, found := search(e, path[1:], kind)
			return "." + path[0] + at, found
		}
	}
	return "", false
}

// kindOf returns the JSON type of a value, by the name that the decoder uses.
func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}
