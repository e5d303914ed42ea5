package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamespaces(t *testing.T) {
	got := Namespaces([]byte("kind: Namespace\nmetadata: {name: a, labels: {x: y}}\n---\nkind: Namespace\nmetadata: {name: b}\n---\nkind: Pod\n---\nNamespace: [\n"))
	want := []Namespace{{Name: "a", Labels: map[string]string{"x": "y"}}, {Name: "b", Labels: map[string]string{}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
