package decodeerror

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSearchFindsTheIndexes(t *testing.T) {
	var tree any
	if err := json.Unmarshal([]byte(`{"a": [{"b": ["x", 1]}, {"b": true, "c": [[{}], null]}], "d": 2}`), &tree); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, kind, want string }{
		{"a.b", "number", ".a[0].b[1]"},
		{"a.b", "array", ".a[0].b"},
		{"a.b", "bool", ".a[1].b"},
		{"a.c", "object", ".a[1].c[0][0]"},
		{"a.c", "null", ".a[1].c[1]"},
		{"d", "number", ".d"},
	} {
		if got, ok := search(tree, strings.Split(tt.path, "."), tt.kind); got != tt.want || !ok {
			t.Errorf("%s of %s: %q, %t; want %q", tt.kind, tt.path, got, ok, tt.want)
		}
	}
	for _, path := range []string{"", "a.x", "d.e", "a.b.c.d"} {
		if got, ok := search(tree, strings.Split(path, "."), "string"); ok {
			t.Errorf("%q: found at %q", path, got)
		}
	}
}
