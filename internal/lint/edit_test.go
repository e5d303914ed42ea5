package lint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each way to write YAML that a change has to fit into. A change that does not fit is
// refused, and nothing else of the text ever differs.
func TestEditsKeepTheTextAroundThem(t *testing.T) {
	note := path{"metadata", "annotations", "a/b"}
	tests := map[string]struct {
		text string
		ops  []op
		want string // empty: refused
	}{
		"a new annotation comes last": {
			"metadata:\n  annotations:\n    x: y # why\n  name: n\n", []op{{note, "v"}},
			"metadata:\n  annotations:\n    x: y # why\n    a/b: v\n  name: n\n"},
		"annotations come before the name": {
			"metadata:\n  name: n\nspec: {}\n", []op{{path{"metadata", "name"}, "m"}, {note, "v"}},
			"metadata:\n  name: m\n  annotations:\n    a/b: v\nspec: {}\n"},
		"the last line has no end": {
			"metadata:\n  annotations:\n    x: y", []op{{note, "v"}},
			"metadata:\n  annotations:\n    x: y\n    a/b: v"},
		"annotations that are nothing yet": {
			"metadata:\n  annotations: # none\n  name: n\n", []op{{note, "v"}},
			"metadata:\n  annotations:\n    a/b: v # none\n  name: n\n"},
		"an empty flow mapping": {
			"metadata: {annotations: {}}\n", []op{{note, "v"}},
			"metadata: {annotations: {\"a/b\": \"v\"}}\n"},
		"a flow mapping over lines, with a comment": {
			"metadata: {name: 'n}', # not }\n  labels: {a: b}}\n", []op{{note, "v: w"}},
			"metadata: {name: 'n}', # not }\n  labels: {a: b}, annotations: {a/b: \"v: w\"}}\n"},
		"JSON stays JSON": {
			"{\"metadata\": {\"name\": \"n\"}}", []op{{note, "v"}},
			"{\"metadata\": {\"name\": \"n\", \"annotations\": {\"a/b\": \"v\"}}}"},
		"the middle of a block mapping goes with its comment, not with the next one's": {
			"spec:\n  a: 1\n  b:\n    c: 2 # of c\n\n  # of d\n  d: 3\n", []op{{path{"spec", "b"}, nil}},
			"spec:\n  a: 1\n\n  # of d\n  d: 3\n"},
		"the first of an item": {
			"spec:\n- a: 1\n  b: 2\n", []op{{path{"spec", 0, "a"}, nil}},
			"spec:\n- b: 2\n"},
		"the first of an item, with a comment after it": {
			"spec:\n- a: 1 # one\n  b: 2\n", []op{{path{"spec", 0, "a"}, nil}}, ""},
		"the first, the last of a flow mapping": {
			"a: {b: 1, c: [2, 3], d: '4,'}\n", []op{{path{"a", "b"}, nil}, {path{"a", "d"}, nil}},
			"a: {c: [2, 3]}\n"},
		"what holds nothing else goes too": {
			"a:\n  b:\n    c:\n      d: 1\n  e: 2\n", []op{{path{"a", "b", "c", "d"}, nil}},
			"a:\n  e: 2\n"},
		"a block of text keeps its place": {
			"a:\n  - |\n    one\n    two\n\n    three\nb: 1\n", []op{{path{"a", 0}, "one\n\nthree\n"}},
			"a:\n  - |\n    one\n\n    three\nb: 1\n"},
		"a block without its last line break": {
			"a: |-\n  one\n  two\n", []op{{path{"a"}, "two"}},
			"a: |-\n  two\n"},
		"a block that cannot have the text": {
			"a: |-\n  one\n  two\n", []op{{path{"a"}, "two\n"}}, ""},
		"a folded text becomes a quoted one": {
			"a: >-\n  one\n  two\n", []op{{path{"a"}, "two three"}}, "a: \"two three\"\n"},
		"quotes stay what they are": {
			"a: 'it''s'\nb: \"x\\ty\"\n", []op{{path{"a"}, "that's"}, {path{"b"}, "z\"z"}},
			"a: 'that''s'\nb: \"z\\\"z\"\n"},
		"a word that would not be a text gets quotes": {
			"a: x\n", []op{{path{"a"}, "true"}}, "a: \"true\"\n"},
		"a number": {"spec:\n  g: 5 # s\n", []op{{path{"spec", "g"}, int64(30)}}, "spec:\n  g: 30 # s\n"},
		"letters of more than a byte before it": {
			"a: {é: 'ü', b: 'x'}\n", []op{{path{"a", "b"}, "y"}}, "a: {é: 'ü', b: 'y'}\n"},
		"line ends of Windows": {
			"metadata:\r\n  name: n\r\n  x: y\r\nspec: 1\r\n", []op{{path{"metadata", "name"}, nil}},
			"metadata:\r\n  x: y\r\nspec: 1\r\n"},
		"what others share is not changed": {
			"x: &s {b: 1}\na: *s\nc: *s\n", []op{{path{"a", "b"}, int64(2)}}, ""},
		"what is merged in is not changed": {
			"x: &s {b: 1}\na:\n  <<: *s\n  c: 1\n", []op{{path{"a", "b"}, nil}}, ""},
		"a plain text over lines": {
			"a: one\n  two\nb: 1\n", []op{{path{"a"}, "x"}}, ""},
		"a field that is not there cannot go": {"a: 1\n", []op{{path{"b"}, nil}}, ""},
		"no way into a text":                  {"a: 1\n", []op{{path{"a", "b"}, "x"}}, ""},
		"no way into a list that is too short": {
			"a: [1]\n", []op{{path{"a", 3, "b"}, "x"}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSource("f", tt.text)
			p, err := s.patch(0, tt.ops)
			if err != nil {
				if tt.want != "" {
					t.Fatal(err)
				}
				return
			}
			got, err := p.Apply([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.SplitAfter(tt.want, "\n"), strings.SplitAfter(string(got), "\n")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestOtherObjectsOfTheFileStay(t *testing.T) {
	text := "kind: List\nitems:\n- kind: A\n  x: 1\n- kind: B\n  x: 1\n---\nkind: C\n"
	s := newSource("f", text)
	if len(s.roots) != 3 {
		t.Fatalf("%d objects", len(s.roots))
	}
	p, err := s.patch(1, []op{{path{"x"}, nil}})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := p.Apply([]byte(text))
	if want := "kind: List\nitems:\n- kind: A\n  x: 1\n- kind: B\n---\nkind: C\n"; string(got) != want {
		t.Errorf("%q", got)
	}
}

// An item of a list is read by itself, but not where others use a part of it.
func TestWhatOtherObjectsUseIsNotChanged(t *testing.T) {
	s := newSource("f", "kind: List\nitems:\n- kind: A\n  x: &s {b: 1}\n- kind: B\n  x: *s\n")
	if p, err := s.patch(0, []op{{path{"x", "b"}, int64(2)}}); err == nil {
		t.Errorf("%+v", p)
	}
	if _, err := s.patch(0, []op{{path{"kind"}, "Z"}}); err != nil {
		t.Errorf("a change elsewhere in it: %v", err)
	}
}

func FuzzPatch(f *testing.F) {
	f.Add("metadata:\n  annotations:\n    x: y # why\n  name: n\n", "metadata.annotations.x", "v")
	f.Add("a: {b: 1, c: [2, 3], d: '4,'}\n", "a.c[1]", "")
	f.Add("a: |\n  one\n  two\n", "a", "two\n")
	f.Add("{\"a\": {\"b\": \"n\"}}", "a.c", "x: y")
	f.Fuzz(func(t *testing.T, text, field, value string) {
		s := newSource("f", text)
		if len(s.roots) == 0 {
			return
		}
		o := op{at: parsePath(field), value: value}
		if value == "" {
			o.value = nil
		}
		p, err := s.patch(0, []op{o})
		if err != nil {
			return
		}
		got, err := p.Apply([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if after := newSource("f", string(got)); len(after.roots) != len(s.roots) {
			t.Fatalf("%d objects became %d:\n%s", len(s.roots), len(after.roots), got)
		}
	})
}
