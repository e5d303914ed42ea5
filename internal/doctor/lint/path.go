package lint

import (
	"fmt"
	"strings"
)

// A path is the position of a field in an object. Its steps are names (string) and indexes (int).
type path []any

// parsePath parses a path in the form of podspec, in which names contain no dots.
func parsePath(field string) path {
	var out path
	for step := range strings.SplitSeq(field, ".") {
		name, rest, _ := strings.Cut(step, "[")
		if name != "" {
			out = append(out, name)
		}
		for rest != "" {
			index, more, _ := strings.Cut(rest, "]")
			n := 0
			if _, err := fmt.Sscanf(index, "%d", &n); err != nil {
				return out
			}
			out = append(out, n)
			rest = strings.TrimPrefix(more, "[")
		}
	}
	return out
}

// plus returns p with more steps, in newly allocated memory.
func (p path) plus(steps ...any) path {
	return append(append(make(path, 0, len(p)+len(steps)), p...), steps...)
}

// keys returns the steps of the path as strings.
func (p path) keys() []string {
	var out []string
	for _, step := range p {
		out = append(out, fmt.Sprint(step))
	}
	return out
}

// String formats the path as a kubectl jsonpath.
func (p path) String() string {
	var b strings.Builder
	for _, step := range p {
		switch s := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", s)
		case string:
			if strings.ContainsAny(s, "./[]' ") {
				fmt.Fprintf(&b, "['%s']", s)
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s)
		}
	}
	return b.String()
}
