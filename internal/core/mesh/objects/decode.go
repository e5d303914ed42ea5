package objects

import (
	"maps"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/base/manifest/decodeerror"
	"outrider.dev/startup"
)

// decode decodes JSON. It returns an error for unknown fields, because they are misspelt more often than new.
func decode(raw []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return decodeError(raw, err)
	}
	var out FieldErrors
	for _, s := range strict {
		e := FieldError{Message: s.Error()}
		if f, ok := s.(kjson.FieldError); ok {
			e.Field = f.FieldPath()
		}
		switch {
		case strings.HasPrefix(e.Message, "unknown field"):
			e.Message = "unknown field" + suggest(reflect.TypeOf(into), e.Field)
		case strings.HasPrefix(e.Message, "duplicate field"):
			e.Message = "duplicate field"
		}
		out = append(out, e)
	}
	if out == nil {
		return nil
	}
	return out
}

// decodeError converts an error of the decoder to one that contains the field.
func decodeError(raw []byte, err error) FieldErrors {
	if m := decodeerror.Find(raw, err); m != nil {
		return FieldErrors{{m.Field, m.Error()}}
	}
	return FieldErrors{{"", decodeerror.Reason(err)}}
}

// suggest returns a hint at the field of t that is most similar to the last step of a path; empty if none is
// similar.
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
		if d := startup.Distance(strings.ToLower(name), strings.ToLower(wrong)); d < least || d == least && name < best && best != "" {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// fieldsOf returns the fields of a struct by their JSON names. Pointers, lists and maps are replaced by their
// elements.
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
			maps.Copy(out, fieldsOf(f.Type))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}
