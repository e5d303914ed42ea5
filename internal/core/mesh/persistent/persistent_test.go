package persistent

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// No sequence of changes affects an earlier version. Diff reports exactly the changes between two versions.
func TestVersions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var table Table[int, int]
	version := table.Version()
	var versions []*Map[int, int]
	want := map[int]int{}
	var wants []map[int]int
	for range 200 {
		changed := map[int]int{}
		for range random.IntN(5) {
			k, v := random.IntN(1000), random.IntN(3)
			table.Put(k, v)
			if changed[k] = v; v == want[k] {
				delete(changed, k)
			}
			if table.Get(k) != v {
				t.Fatalf("%d is %d, want %d", k, table.Get(k), v)
			}
		}
		next := table.Version()
		if same := next == version; same && len(changed) > 0 {
			t.Fatalf("%d changes, and the version is the same: %t", len(changed), same)
		}
		got := map[int]int{}
		Diff(version, next, func(k, was, is int) {
			if was != want[k] {
				t.Fatalf("%d was %d, want %d", k, was, want[k])
			}
			got[k] = is
		})
		if !maps.Equal(got, changed) {
			t.Fatalf("differences %v, want %v", got, changed)
		}
		want = maps.Clone(want)
		for k, v := range changed {
			if want[k] = v; v == 0 {
				delete(want, k)
			}
		}
		version = next
		versions, wants = append(versions, version), append(wants, want)
	}
	for i, version := range versions {
		if got := maps.Collect(version.All()); !maps.Equal(got, wants[i]) || version.Len() != len(wants[i]) {
			t.Fatalf("version %d is %v now, want %v", i, got, wants[i])
		}
	}
}
