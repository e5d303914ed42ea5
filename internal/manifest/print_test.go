package manifest

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

// A null that was written as nothing stays a null where nothing would be an empty string.
func TestNullsWithoutAText(t *testing.T) {
	for _, tt := range []struct{ doc, like, want string }{
		{"a:\nb: {c: }\n", "a: 1\n", "a:\nb: {c: null}\n"},
		{"a:\nb: {c: }\n", `{"a": 1}`, "{\"a\":null,\"b\":{\"c\":null}}\n"},
		{"a: ''\n", `{"a": 1}`, "{\"a\":\"\"}\n"},
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(tt.doc), &doc); err != nil {
			t.Fatal(err)
		}
		got, err := printed(&doc, []byte(tt.like))
		if err != nil || string(got) != tt.want {
			t.Errorf("%q like %s is %q, %v; want %q", tt.doc, tt.like, got, err, tt.want)
		}
	}
}
