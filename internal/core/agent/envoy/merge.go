package envoy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Merge returns a new object, base with extra merged into it. Both are decoded JSON objects:
//
//   - an object is merged key by key;
//   - a list is extended; an entry with the name of an existing one is merged into that entry, as
//     for Envoy's clusters, listeners, layers and filters;
//   - null removes the key;
//   - any other value replaces the old one.
//
// Keys must be in snake_case, as in Envoy's documentation: protobuf also accepts camelCase, and
// would then find one field twice.
func Merge(base, extra object) (object, error) {
	return mergeObjects("", base, extra)
}

func mergeObjects(path string, base, extra object) (object, error) {
	out := maps.Clone(base)
	if out == nil {
		out = object{}
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		if snake := toSnake(key); snake != key && base[snake] != nil {
			return nil, fmt.Errorf("%s: write %s", at, snake)
		}
		if extra[key] == nil {
			delete(out, key)
			continue
		}
		merged, err := mergeValues(at, base[key], extra[key])
		if err != nil {
			return nil, err
		}
		out[key] = merged
	}
	return out, nil
}

func mergeValues(path string, base, extra any) (any, error) {
	switch extra := extra.(type) {
	case object:
		if base, ok := base.(object); ok {
			return mergeObjects(path, base, extra)
		}
	case []any:
		if base, ok := base.([]any); ok {
			return mergeLists(path, base, extra)
		}
	}
	return extra, nil
}

func mergeLists(path string, base, extra []any) ([]any, error) {
	out := slices.Clone(base)
	for _, e := range extra {
		i := slices.IndexFunc(out, func(b any) bool { return nameOf(e) != "" && nameOf(b) == nameOf(e) })
		if i < 0 {
			out = append(out, e)
			continue
		}
		merged, err := mergeValues(fmt.Sprintf("%s[%s]", path, nameOf(e)), out[i], e)
		if err != nil {
			return nil, err
		}
		out[i] = merged
	}
	return out, nil
}

func nameOf(v any) string {
	o, _ := v.(object)
	name, _ := o["name"].(string)
	return name
}

func toSnake(key string) string {
	var b strings.Builder
	for _, r := range key {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// kept lists the fields on which the agent itself relies, and the option that changes each.
var kept = []struct {
	path   []string
	option string
}{
	{[]string{"node", "id"}, "set Node.ID"},
	{[]string{"admin", "address"}, "set Admin"},
	{[]string{"application_log_config"}, "the agent sets the format, and writes its own"},
}

// merged returns the bootstrap with the user's additions.
func (o Options) merged() (object, error) {
	base := o.base()
	if len(o.Extra) == 0 {
		return base, nil
	}
	extra, err := decodeObject(o.Extra)
	if err != nil {
		return nil, &FieldError{Field: "Extra", Problem: err.Error(), Want: "write one JSON object, as Envoy's bootstrap"}
	}
	all, err := Merge(base, extra)
	if err != nil {
		return nil, &FieldError{Field: "Extra", Problem: err.Error(), Want: "write each field's name in one way"}
	}
	for _, k := range kept {
		if before, after := at(base, k.path), at(all, k.path); !equal(before, after) {
			return nil, &FieldError{Field: "Extra", Problem: strings.Join(k.path, ".") + " is the agent's", Want: k.option}
		}
	}
	return all, nil
}

// decodeObject keeps numbers as text: a 64-bit number does not fit into a float64.
func decodeObject(raw []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var out object
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the object")
	}
	if out == nil {
		return nil, errors.New("null is no object")
	}
	return out, nil
}

// at returns the value at a path, or nil. It also finds a field in camelCase.
func at(all object, path []string) any {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if toSnake(key) != path[0] {
			continue
		}
		v := all[key]
		if len(path) == 1 {
			return v
		}
		if inner, ok := v.(object); ok {
			return at(inner, path[1:])
		}
	}
	return nil
}

func equal(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
