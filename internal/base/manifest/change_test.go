package manifest

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
)

// edited changes the objects in a text, by small changes, to the values of the objects in another text (to),
// and returns the new text.
func edited(text, to string) (string, error) {
	d, err := Read([]byte(text))
	if err != nil {
		return "", err
	}
	want, err := Read([]byte(to))
	if err != nil {
		return "", err
	}
	after := Objects(want.Root())
	for i, o := range Objects(d.Root()) {
		var was, is any
		if err := o.Decode(&was); err != nil {
			return "", err
		}
		if err := after[i].Decode(&is); err != nil {
			return "", err
		}
		if reflect.DeepEqual(was, is) {
			continue
		}
		before, err := Tree(was)
		if err != nil {
			return "", err
		}
		value, err := Tree(is)
		if err != nil {
			return "", err
		}
		if _, err := d.SmallChange(o, before, value); err != nil {
			return "", err
		}
	}
	got, exact, err := d.Text()
	if err == nil && !exact {
		err = ErrCannotEdit
	}
	return string(got), err
}

// Each case in change.txtar is a text in some style of YAML and the text after a small change. The rest of the
// text must stay the same; if that is impossible, the change is refused.
func TestSmallChangesKeepTheTextAroundThem(t *testing.T) {
	a, err := txtar.ParseFile("testdata/change.txtar")
	if err != nil || len(a.Files) < 40 {
		t.Fatalf("%v, %d files", err, len(a.Files))
	}
	for i := 0; i < len(a.Files); i += 2 {
		name, text, want := a.Files[i].Name, string(a.Files[i].Data), string(a.Files[i+1].Data)
		refused := a.Files[i+1].Name == "refused"
		for style, in := range map[string]func(string) string{
			"":                  func(s string) string { return s },
			", with CRLF":       func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
			", no end of lines": func(s string) string { return strings.TrimSuffix(s, "\n") },
		} {
			if strings.HasSuffix(style, "lines") && strings.Contains(want, "|") {
				continue // a block scalar without its line end has another value
			}
			t.Run(name+style, func(t *testing.T) {
				got, err := edited(in(text), in(want))
				if refused || err != nil {
					if !refused || err == nil {
						t.Fatalf("%v\n%s", err, got)
					}
					return
				}
				if d := cmp.Diff(strings.SplitAfter(in(want), "\n"), strings.SplitAfter(got, "\n")); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			})
		}
	}
}

// A small change results in the requested value, or is refused.
func FuzzSmallChange(f *testing.F) {
	a, err := txtar.ParseFile("testdata/change.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(a.Files); i += 2 {
		f.Add(string(a.Files[i].Data), string(a.Files[i+1].Data))
	}
	f.Fuzz(func(t *testing.T, text, to string) {
		d, err := Read([]byte(text))
		want, errTo := Read([]byte(to))
		if err != nil || errTo != nil || d.Root() == nil || want.Root() == nil || len(Objects(d.Root())) != 1 || len(Objects(want.Root())) != 1 {
			return
		}
		if !texts(want.Root()) || Objects(want.Root())[0] != want.Root() {
			return // skip these: empty fields are removed, numbers are normalised, and a list item is not a document
		}
		got, err := edited(text, to)
		if err != nil {
			return
		}
		var is, wanted any
		if err := errors.Join(yaml.Unmarshal([]byte(got), &is), want.Root().Decode(&wanted)); err != nil || !reflect.DeepEqual(withoutNulls(is), wanted) {
			t.Fatalf("%v: %q changed to %q:\n%s", err, text, to, got)
		}
	})
}

// withoutNulls removes fields that are null, which a small change leaves as they are: Kubernetes takes them as absent.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v { // any order: the fields are independent
			if withoutNulls(value) == nil {
				delete(v, key)
			}
		}
	case []any:
		for _, value := range v {
			withoutNulls(value)
		}
	}
	return v
}

// texts reports whether n consists only of strings and of mappings and lists that are not empty.
func texts(n *yaml.Node) bool {
	if n.Kind == yaml.ScalarNode {
		return n.ShortTag() == "!!str"
	}
	return n.Kind != yaml.AliasNode && len(n.Content) > 0 && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !texts(c) })
}
