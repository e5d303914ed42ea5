package tier

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestOneOfEach(t *testing.T) {
	names := []string{"fruit: apple", "fruit: pear", "fruit: plum", "tree: oak"}
	kind := func(name string) string { k, _, _ := strings.Cut(name, ":"); return k }
	run := func(names []string) (out []string) {
		chosen := OneOfEach(names, kind)
		for _, name := range slices.Sorted(maps.Keys(chosen)) {
			if chosen[name] {
				out = append(out, name)
			}
		}
		return out
	}
	t.Setenv("OUTRIDER_NIGHTLY", "1")
	if got := run(names); !slices.Equal(got, names) {
		t.Errorf("the nightly run has %q, want %q", got, names)
	}
	t.Setenv("OUTRIDER_NIGHTLY", "")
	got := run(names)
	if len(got) != 2 || kind(got[0]) != "fruit" || got[1] != "tree: oak" {
		t.Errorf("the run has %q, want one of each kind", got)
	}
	slices.Reverse(names)
	if again := run(names); !slices.Equal(again, got) {
		t.Errorf("in another order the run has %q, and it had %q", again, got)
	}
}
