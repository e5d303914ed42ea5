package objects

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/misfit"
	"outrider.dev/internal/spelling"
)

// decode is strict: a field that does not exist is more often misspelt than new.
func decode(raw []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return decodeError(raw, err)
	}
	var out Wrongs
	for _, s := range strict {
		w := Wrong{Message: s.Error()}
		if f, ok := s.(kjson.FieldError); ok {
			w.Field = f.FieldPath()
		}
		switch {
		case strings.HasPrefix(w.Message, "unknown field"):
			w.Message = "there is no such field" + suggest(reflect.TypeOf(into), w.Field)
		case strings.HasPrefix(w.Message, "duplicate field"):
			w.Message = "is there twice"
		}
		out = append(out, w)
	}
	if out == nil {
		return nil
	}
	return out
}

// wanted says in words what a Go type takes.
var wanted = []struct{ prefix, words string }{
	{"int", "a whole number"}, {"uint", "a whole number"}, {"float", "a number"},
	{"string", "a text (in quotes, if it looks like a number)"}, {"bool", "true or false"},
	{"[]", "a list"}, {"map[", "an object with fields"}, {"v1.Time", "a time, as 2006-01-02T15:04:05Z"},
}

// decodeError finds the field in an error of encoding/json: "json: cannot unmarshal
// string into Go struct field Spec.spec.ports.port of type int32". Its path has no
// indexes.
func decodeError(raw []byte, err error) Wrongs {
	message := strings.TrimPrefix(err.Error(), "json: ")
	got, rest, ok := strings.Cut(strings.TrimPrefix(message, "cannot unmarshal "), " into Go ")
	if !ok {
		return Wrongs{{"", message}}
	}
	field, goType, _ := strings.Cut(rest, " of type ")
	if field, ok = strings.CutPrefix(field, "struct field "); ok {
		_, field, _ = strings.Cut(field, ".")
	} else {
		field, goType = "", strings.TrimPrefix(field, "value")
	}
	need := "an object with fields"
	for _, w := range wanted {
		if strings.HasPrefix(goType, w.prefix) {
			need = w.words
			break
		}
	}
	var tree any
	if json.Unmarshal(raw, &tree) == nil {
		if with, ok := misfit.Find(tree, field, strings.Fields(got)[0]); ok {
			field = with
		}
	}
	return Wrongs{{field, fmt.Sprintf("needs %s, not %s", need, article(got))}}
}

func article(jsonKind string) string {
	switch kind, value, _ := strings.Cut(jsonKind, " "); {
	case value != "":
		return value
	case kind == "bool":
		return "true or false"
	case kind == "string":
		return "a text"
	case kind == "array":
		return "a list"
	case kind == "object":
		return "an object with fields"
	default:
		return "a " + kind
	}
}

// suggest names the field of t that a path's last step is likely to mean.
func suggest(t reflect.Type, path string) string {
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		step, _, _ = strings.Cut(step, "[")
		fields := fieldsOf(t)
		next, ok := fields[step]
		if !ok {
			return ""
		}
		t = next
	}
	wrong, _, _ := strings.Cut(steps[len(steps)-1], "[")
	best, least := "", 3
	for name := range fieldsOf(t) {
		if d := spelling.Distance(strings.ToLower(name), strings.ToLower(wrong)); d < least || d == least && name < best && best != "" {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// fieldsOf returns the fields of a struct as JSON has them, below pointers and lists.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	out := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return out
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			for k, v := range fieldsOf(f.Type) {
				out[k] = v
			}
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}
