package inject

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// SetValue puts one value into values, as in --set global.proxy.logLevel=info. As Helm has
// it, [0] is an element of a list, \. a dot in a name, and {a,b} a list. A leading
// "values." is passed over, as an operator's file has it.
func SetValue(values map[string]any, setting string) error {
	path, value, ok := strings.Cut(setting, "=")
	parts, err := partsOf(strings.TrimPrefix(path, "values."))
	if !ok || err != nil {
		return fmt.Errorf("%q: want PATH=VALUE, as in global.proxy.holdApplicationUntilProxyStarts=true", setting)
	}
	if _, err := placed(values, parts, scalar(value)); err != nil {
		return fmt.Errorf("%q: %w", setting, err)
	}
	return nil
}

// A part of a path is a name with indexes up to 99999.
var part = regexp.MustCompile(`^([^\[\]]+)((?:\[[0-9]{1,5}\])*)$`)

// partsOf are names and indexes: a[0].b\.c is a, 0 and b.c.
func partsOf(path string) ([]any, error) {
	var out []any
	for name := range strings.SplitSeq(strings.ReplaceAll(path, `\.`, "\x00"), ".") {
		m := part.FindStringSubmatch(strings.ReplaceAll(name, "\x00", "."))
		if m == nil {
			return nil, fmt.Errorf("%q is no name", name)
		}
		out = append(out, m[1])
		for index := range strings.FieldsFuncSeq(m[2], func(r rune) bool { return r == '[' || r == ']' }) {
			n, err := strconv.Atoi(index)
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		}
	}
	return out, nil
}

// placed is at with value at the end of path.
func placed(at any, path []any, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	switch step := path[0].(type) {
	case int:
		list, isList := at.([]any)
		if at != nil && !isList {
			return nil, fmt.Errorf("[%d] is of what is no list", step)
		}
		for len(list) <= step {
			list = append(list, nil)
		}
		below, err := placed(list[step], path[1:], value)
		list[step] = below
		return list, err
	case string:
		fields, isMap := at.(map[string]any)
		if at != nil && !isMap {
			return nil, fmt.Errorf("%s is below a value", step)
		}
		if fields == nil {
			fields = map[string]any{}
		}
		below, err := placed(fields[step], path[1:], value)
		if err == nil {
			fields[step] = below
		}
		return fields, err
	}
	return at, nil
}

// scalar is a value as helm's --set takes it.
func scalar(s string) any {
	switch s {
	case "true":
		return true
	case "false":
		return false
	case "null":
		return nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if inner, ok := strings.CutPrefix(s, "{"); ok && strings.HasSuffix(inner, "}") {
		list := []any{}
		for _, item := range items(strings.TrimSuffix(inner, "}")) {
			list = append(list, scalar(item))
		}
		return list
	}
	return s
}
