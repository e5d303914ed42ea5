// Package misfit finds the value that a decoder of JSON could not use: its errors have the
// path of the field, but not the indexes of the lists on the way.
package misfit

import (
	"fmt"
	"strings"
)

// Find returns the path, with indexes, of the first value of a kind ("string", "number",
// "bool", "array", "object", "null") at a path without them, in what encoding/json made of
// a text.
func Find(tree any, path, kind string) (at string, found bool) {
	at, found = find(tree, strings.Split(path, "."), kind)
	return strings.TrimPrefix(at, "."), found
}

func find(v any, path []string, kind string) (at string, found bool) {
	list, isList := v.([]any)
	switch {
	case len(path) == 0 && kindOf(v) == kind:
		return "", true
	case isList:
		for i, e := range list {
			if at, found := find(e, path, kind); found {
				return fmt.Sprintf("[%d]%s", i, at), true
			}
		}
	case len(path) > 0:
		below, _ := v.(map[string]any)
		if e, there := below[path[0]]; there {
			at, found := find(e, path[1:], kind)
			return "." + path[0] + at, found
		}
	}
	return "", false
}

// kindOf is a value's kind in the decoder's words.
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
