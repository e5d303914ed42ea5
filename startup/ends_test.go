package startup

import (
	"maps"
	"testing"
)

func TestByEndsKeepsTheFirst(t *testing.T) {
	edges := []Edge{{From: "a", To: "b", After: Started}, {From: "b", To: "a"}, {From: "a", To: "b", After: Healthy}}
	if got, want := ByEnds(edges), (map[Ends]int{{"a", "b"}: 0, {"b", "a"}: 1}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
