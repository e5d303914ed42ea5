package manifest

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// An op sets a value at a path of keys and indexes; nil removes the field.
type op struct {
	at    []any
	value any
}

// with is a tree after an op. Mappings that it empties are left out.
func (o op) with(tree any) any {
	if len(o.at) == 0 {
		return o.value
	}
	below := op{o.at[1:], o.value}
	switch step := o.at[0].(type) {
	case string:
		f, _ := tree.(fields)
		old, _ := f.get(step)
		return Set(f, []string{step}, below.with(old))
	case int:
		list := slices.Clone(tree.([]any))
		list[step] = below.with(list[step])
		return list
	}
	return nil
}

// edited is a text with the ops in its object of that index.
func edited(text string, index int, ops ...op) (string, error) {
	d, err := Read([]byte(text))
	if err != nil {
		return "", err
	}
	object := Objects(d.Root())[index].Node
	var whole any
	if err := object.Decode(&whole); err != nil {
		return "", err
	}
	before, err := Tree(whole)
	if err != nil {
		return "", err
	}
	after := before
	for _, o := range ops {
		after = o.with(after)
	}
	if _, err := d.SmallChange(object, before, after); err != nil {
		return "", err
	}
	got, exact, err := d.Text()
	if err == nil && !exact {
		err = ErrCannotEdit
	}
	return string(got), err
}

// Each way to write YAML that a change has to fit into. A change that does not fit is
// refused, and nothing else of the text ever differs.
func TestSmallChangesKeepTheTextAroundThem(t *testing.T) {
	note := []any{"metadata", "annotations", "a/b"}
	tests := map[string]struct {
		text string
		ops  []op
		want string // empty: refused
	}{
		"a new annotation comes last": {
			"metadata:\n  annotations:\n    x: y # why\n  name: n\n", []op{{note, "v"}},
			"metadata:\n  annotations:\n    x: y # why\n    a/b: v\n  name: n\n"},
		"annotations come before the name": {
			"metadata:\n  name: n\nspec: {}\n", []op{{[]any{"metadata", "name"}, "m"}, {note, "v"}},
			"metadata:\n  name: m\n  annotations:\n    a/b: v\nspec: {}\n"},
		"the last line has no end": {
			"metadata:\n  annotations:\n    x: y", []op{{note, "v"}},
			"metadata:\n  annotations:\n    x: y\n    a/b: v"},
		"annotations that are nothing yet": {
			"metadata:\n  annotations: # none\n  name: n\n", []op{{note, "v"}},
			"metadata:\n  annotations: # none\n    a/b: v\n  name: n\n"},
		"an empty flow mapping": {
			"metadata: {annotations: {}}\n", []op{{note, "v"}},
			"metadata: {annotations: {a/b: v}}\n"},
		"a flow mapping over lines, with a comment": {
			"metadata: {name: 'n}', # not }\n  labels: {a: b}}\n", []op{{note, "v: w"}},
			"metadata: {name: 'n}', # not }\n  labels: {a: b}, annotations: {a/b: 'v: w'}}\n"},
		"JSON stays JSON": {
			"{\"metadata\": {\"name\": \"n\"}}", []op{{note, "v"}},
			"{\"metadata\": {\"name\": \"n\", \"annotations\": {\"a/b\": \"v\"}}}"},
		"the middle of a block mapping goes with its comment, not with the next one's": {
			"spec:\n  a: 1\n  b:\n    c: 2 # of c\n\n  # of d\n  d: 3\n", []op{{[]any{"spec", "b"}, nil}},
			"spec:\n  a: 1\n\n  # of d\n  d: 3\n"},
		"the first of an item": {
			"spec:\n- a: 1\n  b: 2\n", []op{{[]any{"spec", 0, "a"}, nil}},
			"spec:\n- b: 2\n"},
		"the first of an item, with a comment after it": {
			"spec:\n- a: 1 # one\n  b: 2\n", []op{{[]any{"spec", 0, "a"}, nil}}, "spec:\n- b: 2\n"},
		"the first, the last of a flow mapping": {
			"a: {b: 1, c: [2, 3], d: '4,'}\n", []op{{[]any{"a", "b"}, nil}, {[]any{"a", "d"}, nil}},
			"a: {c: [2, 3]}\n"},
		"what holds nothing else goes too": {
			"a:\n  b:\n    c:\n      d: 1\n  e: 2\n", []op{{[]any{"a", "b", "c", "d"}, nil}},
			"a:\n  e: 2\n"},
		"a block of text keeps its place": {
			"a:\n  - |\n    one\n    two\n\n    three\nb: 1\n", []op{{[]any{"a", 0}, "one\n\nthree\n"}},
			"a:\n  - |\n    one\n\n    three\nb: 1\n"},
		"a block without its last line break": {
			"a: |-\n  one\n  two\n", []op{{[]any{"a"}, "two"}},
			"a: |-\n  two\n"},
		"a block that gets a last line break": {
			"a: |-\n  one\n  two\n", []op{{[]any{"a"}, "two\n"}}, "a: |\n  two\n"},
		"a folded text stays folded": {
			"a: >-\n  one\n  two\n", []op{{[]any{"a"}, "two three"}}, "a: >-\n  two three\n"},
		"quotes stay what they are": {
			"a: 'it''s'\nb: \"x\\ty\"\n", []op{{[]any{"a"}, "that's"}, {[]any{"b"}, "z\"z"}},
			"a: 'that''s'\nb: \"z\\\"z\"\n"},
		"a word that would not be a text gets quotes": {
			"a: x\n", []op{{[]any{"a"}, "true"}}, "a: \"true\"\n"},
		"a number": {"spec:\n  g: 5 # s\n", []op{{[]any{"spec", "g"}, int64(30)}}, "spec:\n  g: 30 # s\n"},
		"letters of more than a byte before it": {
			"a: {é: 'ü', b: 'x'}\n", []op{{[]any{"a", "b"}, "y"}}, "a: {é: 'ü', b: 'y'}\n"},
		"line ends of Windows": {
			"metadata:\r\n  name: n\r\n  x: y\r\nspec: 1\r\n", []op{{[]any{"metadata", "name"}, nil}},
			"metadata:\r\n  x: y\r\nspec: 1\r\n"},
		"what others share is not changed": {
			"x: &s {b: 1}\na: *s\nc: *s\n", []op{{[]any{"a", "b"}, int64(2)}}, ""},
		"what is merged in is not changed": {
			"x: &s {b: 1}\na:\n  <<: *s\n  c: 1\n", []op{{[]any{"a", "b"}, nil}}, ""},
		"a plain text over lines": {
			"a: one\n  two\nb: 1\n", []op{{[]any{"a"}, "x"}}, "a: x\nb: 1\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := edited(tt.text, 0, tt.ops...)
			if err != nil {
				if tt.want != "" {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(strings.SplitAfter(tt.want, "\n"), strings.SplitAfter(got, "\n")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestOtherObjectsStay(t *testing.T) {
	got, err := edited("kind: List\nitems:\n- kind: A\n  x: 1\n- kind: B\n  x: 1\n", 1, op{[]any{"x"}, nil})
	if want := "kind: List\nitems:\n- kind: A\n  x: 1\n- kind: B\n"; got != want || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatOtherObjectsUseIsNotChanged(t *testing.T) {
	const text = "kind: List\nitems:\n- kind: A\n  x: &s {b: 1}\n- kind: B\n  x: *s\n"
	for _, index := range []int{0, 1} {
		if got, err := edited(text, index, op{[]any{"x", "b"}, int64(2)}); err == nil {
			t.Errorf("object %d: %s", index, got)
		}
	}
	if _, err := edited(text, 0, op{[]any{"kind"}, "Z"}); err != nil {
		t.Errorf("a change elsewhere in it: %v", err)
	}
}

// A small change says what it should, or is refused.
func FuzzSmallChange(f *testing.F) {
	f.Add("metadata:\n  annotations:\n    x: y # why\n  name: n\n", "metadata.annotations.x", "v")
	f.Add("a: {b: 1, c: [2, 3], d: '4,'}\n", "a.c", "")
	f.Add("a: |\n  one\n  two\n", "a", "two\n")
	f.Add("{\"a\": {\"b\": \"n\"}}", "a.c", "x: y")
	f.Fuzz(func(t *testing.T, text, field, value string) {
		d, err := Read([]byte(text))
		if err != nil || d.Root() == nil || len(Objects(d.Root())) != 1 || !utf8.ValidString(field) || !utf8.ValidString(value) {
			return
		}
		var at []any
		for step := range strings.SplitSeq(field, ".") {
			at = append(at, step)
		}
		o := op{at: at, value: value}
		if value == "" {
			o.value = nil
		}
		got, err := edited(text, 0, o)
		if err != nil {
			return
		}
		after, err := Read([]byte(got))
		if err != nil || len(Objects(after.Root())) != 1 {
			t.Fatalf("%v\n%s", err, got)
		}
		if value != "" && strings.Count(field, ".") == 0 && Text(after.Root(), field) != value {
			t.Fatalf("%s is not %q:\n%s", field, value, got)
		}
	})
}
