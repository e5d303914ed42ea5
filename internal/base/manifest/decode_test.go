package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A field overrides the field of the same name from a merge key, before or after that key. A duplicate field is
// still an error.
func TestStrictJSON(t *testing.T) {
	for text, want := range map[string]string{
		"a: &a {x: 1, v: 2}\nb: {<<: *a, x: 3}":                       `{"a":{"v":2,"x":1},"b":{"v":2,"x":3}}`,
		"a: &a {x: 1, v: 2}\nb: {x: 3, <<: *a}":                       `{"a":{"v":2,"x":1},"b":{"v":2,"x":3}}`,
		"a: &a {x: 1}\nb: &b {x: 2, v: 2}\nc: {<<: [*a, *b], z: yes}": `{"a":{"x":1},"b":{"v":2,"x":2},"c":{"v":2,"x":1,"z":true}}`,
		"a: &a {x: {v: 1}}\nb: {<<: *a, x: {z: 1}}":                   `{"a":{"x":{"v":1}},"b":{"x":{"z":1}}}`,
		"a: &a {x: 1}\nb: {<<: *a, x: 3, x: 4}":                       "",
		"a: {x: 1, x: 2}":                                             "",
		"a: &a {<<: *a, x: 1}":                                        "",
		"a: '<<'\nb: 1":                                               `{"a":"\u003c\u003c","b":1}`,
	} {
		got, err := StrictJSON([]byte(text))
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestNamespaces(t *testing.T) {
	got := Namespaces([]byte("kind: Namespace\nmetadata: {name: a, labels: {x: y}}\n---\nkind: Namespace\nmetadata: {name: b}\n---\nkind: Pod\n---\nNamespace: [\n"))
	want := []Namespace{{Name: "a", Labels: map[string]string{"x": "y"}}, {Name: "b", Labels: map[string]string{}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A document without a value has the value null, so that no caller has to ask whether there is one.
func TestDocumentsWithoutAValue(t *testing.T) {
	for _, text := range []string{"", "# a comment\n", "\xfe\xff", "\xff\xfe", "---\n"} {
		d, err := Read([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if err := d.Expand(); err != nil || d.Root().Tag != "!!null" || len(Objects(d.Root())) != 0 {
			t.Errorf("%q: %+v, %v", text, d.Root(), err)
		}
		if after, exact, err := d.Text(); string(after) != text || !exact || err != nil {
			t.Errorf("%q becomes %q, %v", text, after, err)
		}
	}
}
