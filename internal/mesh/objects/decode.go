package objects

import (
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/manifest"
	"outrider.dev/startup"
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

// decodeError says which field an error of the decoder is about.
func decodeError(raw []byte, err error) Wrongs {
	if m := manifest.FindMismatch(raw, err); m != nil {
		return Wrongs{{m.Field, m.Error()}}
	}
	return Wrongs{{"", manifest.Reason(err)}}
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
		if d := startup.Distance(strings.ToLower(name), strings.ToLower(wrong)); d < least || d == least && name < best && best != "" {
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
