package limits

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// doubling returns a text that expands to 2^levels values.
func doubling(levels int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x]\n")
	for i := 1; i < levels; i++ {
		n := string(rune('a' + i%26))
		p := string(rune('a' + (i-1)%26))
		if i == 1 {
			p = "a0"
		}
		b.WriteString(n + ": &" + n + " [*" + p + ", *" + p + "]\n")
	}
	return b.String()
}

// The limits apply to the size of the text with expanded aliases, not to its length.
func TestLimits(t *testing.T) {
	var keys strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&keys, "k%d: v\n", i)
	}
	repeated := `x: &a "` + strings.Repeat("y", 5000) + "\"\nzone: [" + strings.Repeat("*a, ", 10000) + "]\n"
	for name, tt := range map[string]struct {
		text, annotation, document string // parts of the errors by Annotation and by Document; "" if the text is accepted
	}{
		"a value":              {"7", "", ""},
		"nothing":              {"# a comment\n", "", ""},
		"a setting":            {"proxyMetadata: {A: b}\n", "", ""},
		"an alias":             {"a: &a {x: 1}\nb: *a\nc: {<<: *a, x: 2}\n", "", ""},
		"an anchor twice":      {"a: &a 1\nb: *a\nc: &a 2\nd: *a\n", "", ""},
		"a string many times":  {repeated, "more than 262144 bytes", "more than 1228648 bytes"},
		"twice as much, often": {doubling(24), "more than 4096 values", "more than"},
		"within itself":        {"a: &a [*a]", "contains itself", "contains itself"},
		"a long text":          {strings.Repeat("a", 70_000), "70000 bytes; want at most 65536", ""},
		"many keys":            {"{" + strings.Repeat("a: b, ", 3000) + "}", "more than 4096 values", ""},
		"deep":                 {strings.Repeat("[", 40) + strings.Repeat("]", 40), "more than 32 lists and objects", ""},
		"deep by dashes":       {strings.Repeat("- ", 40) + "x", "more than 32 lists and objects", ""},
		"very deep":            {strings.Repeat("[", 2000) + strings.Repeat("]", 2000), "more than 32", ""},
		"very deep, repeated":  {"a: &a x\nb: *a\nc: " + strings.Repeat("[", 2000) + strings.Repeat("]", 2000), "more than 32", "more than 1000 lists and objects"},
		"deep by aliases":      {"a: &a " + strings.Repeat("[", 20) + strings.Repeat("]", 20) + "\nb: " + strings.Repeat("[", 20) + "*a" + strings.Repeat("]", 20), "more than 32", ""},
		"keys of one object":   {"a: &a 1\n" + keys.String() + "b: *a\n", "want at most 65536", "line 1: an object of 10002 keys; want at most 10000"},
		"no YAML":              {"a: [*b", "yaml: ", "yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			for _, is := range []struct {
				limits Limits
				want   string
			}{{Annotation, tt.annotation}, {Document([]byte(tt.text)), tt.document}} {
				err := is.limits.Check([]byte(tt.text))
				if is.want == "" && err == nil {
					continue
				}
				if err == nil || is.want == "" || !strings.Contains(err.Error(), is.want) {
					t.Errorf("%+v: %v; want %q", is.limits, err, is.want)
				}
				var beyond *Error
				if errors.As(err, &beyond) == strings.HasPrefix(is.want, "yaml: ") {
					t.Errorf("%T: %v", err, err)
				}
			}
		})
	}
}

// The limit of the depth is exact: 32 nested lists are accepted, 33 are refused.
func TestDepthIsExact(t *testing.T) {
	for n, taken := range map[int]bool{32: true, 33: false} {
		text := strings.Repeat("[", n) + "x" + strings.Repeat("]", n)
		if err := Annotation.Check([]byte(text)); (err == nil) != taken {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestDecode(t *testing.T) {
	into := map[string]int{}
	if err := Annotation.Decode([]byte("a: &a 1\nb: *a"), &into); err != nil || into["b"] != 1 {
		t.Errorf("%v, %v", into, err)
	}
	if err := Annotation.Decode(nil, &into); err != nil {
		t.Error(err)
	}
	if err := Annotation.Decode([]byte("[1]"), &into); err == nil {
		t.Error("a list is an object")
	}
}

// A text that is accepted decodes to no more than the limits allow.
func FuzzParse(f *testing.F) {
	f.Add("a: &a [x, y]\nb: {<<: {c: *a}, d: *a}")
	f.Add(doubling(8))
	f.Add("- - - - &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		l := Limits{Bytes: 4096, Values: 200, Unfolded: 500, Depth: 8}
		n, err := l.Parse([]byte(text))
		if err != nil || len(n.Content) == 0 {
			return
		}
		values, bytes, depth := 0, 0, 0
		var walk func(n *yaml.Node, at int)
		walk = func(n *yaml.Node, at int) {
			if n.Kind == yaml.AliasNode {
				walk(n.Alias, at)
				return
			}
			values, bytes = values+1, bytes+len(n.Value)
			if n.Kind != yaml.ScalarNode {
				depth = max(depth, at)
			}
			for _, c := range n.Content {
				walk(c, at+1)
			}
		}
		walk(n.Content[0], 1)
		if values > l.Values || bytes > l.Unfolded || depth > l.Depth {
			t.Errorf("%q: %d values, %d bytes, %d deep", text, values, bytes, depth)
		}
	})
}
