// Package partial reads the parts of objects that people copy into tickets: with words and lines that stand for what
// they left out, and without the fields around.
package partial

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/evidence"
)

// WithoutGaps removes lines that stand for lines which a person left out, and returns false if there are none.
func WithoutGaps(text []byte) ([]byte, bool) {
	var out []byte
	for line := range bytes.Lines(text) {
		if t := bytes.TrimSpace(line); len(t) == 0 || !evidence.LeftOut(string(t)) {
			out = append(out, line...)
		}
	}
	return out, len(out) < len(text)
}

// Filled returns an object without the values that stand for something else, as "spec: ..." does, and false if there
// are none. In lists of words, as those of arguments are, such a word stays.
func Filled(raw []byte) ([]byte, bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil, false
	}
	n := 0
	out, err := json.Marshal(withoutWords(v, &n))
	return out, n > 0 && err == nil
}

func withoutWords(v any, removed *int) any {
	stands := func(v any) bool {
		text, is := v.(string)
		return is && evidence.LeftOut(text)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v { // in any order: each is looked at by itself
			if stands(value) {
				delete(v, key)
				*removed++
				continue
			}
			v[key] = withoutWords(value, removed)
		}
	case []any:
		words := !slices.ContainsFunc(v, func(v any) bool { _, is := v.(string); return !is })
		var out []any
		for _, item := range v {
			if stands(item) && !words {
				*removed++
				continue
			}
			out = append(out, withoutWords(item, removed))
		}
		return out
	}
	return v
}

// forms are the parts of a pod that people copy, by a field that shows which it is. The first that fits counts. The
// part replaces %s.
var forms = []struct {
	field, whole string
}{
	{"spec.containers", `%s`},
	{"spec.initContainers", `%s`},
	{"status.containerStatuses", `%s`},
	{"status.initContainerStatuses", `%s`},
	{"status.reason", `%s`},
	{"status.phase", `%s`},
	{"containerStatuses", `{"status":%s}`},
	{"initContainerStatuses", `{"status":%s}`},
	{"containers", `{"spec":%s}`},
	{"initContainers", `{"spec":%s}`},
	{"phase", `{"status":%s}`},
	{"lastState", `{"status":{"containerStatuses":[%s]}}`},
	{"restartCount", `{"status":{"containerStatuses":[%s]}}`},
	{"state", `{"status":{"containerStatuses":[%s]}}`},
}

// Whole returns the pod of which raw is a part, and false if it looks like none. A list is one of statuses.
func Whole(raw []byte) ([]byte, bool) {
	if raw[0] == '[' {
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil || len(items) == 0 || !has(items[0], "state") && !has(items[0], "lastState") || !has(items[0], "name") {
			return nil, false
		}
		return fmt.Appendf(nil, `{"status":{"containerStatuses":%s}}`, raw), true
	}
	for _, f := range forms {
		if has(raw, strings.Split(f.field, ".")...) {
			return fmt.Appendf(nil, f.whole, raw), true
		}
	}
	return nil, false
}

// has reports whether an object has a field.
func has(raw []byte, fields ...string) bool {
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil {
		return false
	}
	value, there := o[fields[0]]
	return there && (len(fields) == 1 || has(value, fields[1:]...))
}
