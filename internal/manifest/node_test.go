package manifest

import (
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The node of a key is what the library makes of it, with the quotes that a reader of YAML 1.1 needs.
func TestKeysAreThoseOfTheLibrary(t *testing.T) {
	for _, key := range []string{"name", "hostIP", "y", "N", "yes", "oN", "OFF", "true", "Null", "null", "a.b", "outrider.dev/start", "1", "1e3", "0x1", "a b", "", "~", "-", "<<", "a: b", "x\ny", "é", "\xff"} {
		var want yaml.Node
		if err := want.Encode(key); err != nil {
			want = yaml.Node{Kind: yaml.ScalarNode, Value: key}
		}
		if got := newKey(key); !reflect.DeepEqual(got, &want) {
			t.Errorf("%q: %+v, want %+v", key, got, want)
		}
	}
}
