package manifest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"go.yaml.in/yaml/v3"
)

// An implicit null is printed as null within braces and in JSON, where an empty text would be an empty string.
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

// Nodes of newNode are printed exactly like nodes that the library encodes, except that newNode also quotes
// strings which YAML 1.1 parsers read as another type.
func TestNodesArePrintedAsByTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	values := []any{nil, true, false, 0, -5, 15021, 1 << 40, 0.5, 1e30, "outrider.dev/start", "1e3", "0x1", "2001-01-01", "a: b", "x\ny", "é", "\xff",
		"registry:5000/app:1", "yes", "oN", "OFF", "False", "Null", "1:20", "-1:20:59.5", "1:60", "a\nb: c\n", " a\n", "\x7f\n"}
	const signs = "yYnNoOeEsSfFaAxtrul01:/._=@,+-~<>#& \n\t'\"{}[]%!|?*`"
	for range 4_000 {
		b := make([]byte, random.IntN(6))
		for i := range b {
			b[i] = signs[random.IntN(len(signs))]
		}
		values = append(values, string(b))
	}
	for _, v := range values {
		want, wantErr := yaml.Marshal([]any{v})
		n, err := newNode([]any{v})
		if got, gotErr := yaml.Marshal(n); wantErr != nil || err != nil || gotErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%q: %q, want %q; %v, %v, %v", v, got, want, wantErr, err, gotErr)
		}
	}
}
