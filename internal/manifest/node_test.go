package manifest

import (
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
)

// newKey returns the node that the library makes of a key: a reader of YAML 1.1 needs quotes at some.
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
