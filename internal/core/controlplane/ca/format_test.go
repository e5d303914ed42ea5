package ca

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/test/formats"
)

// Replicas of two versions share the authority's files while a roll-out lasts, and after a rollback.
func TestFormats(t *testing.T) {
	at := time.Date(2026, 3, 2, 13, 0, 0, 0, time.UTC)
	r := rotation{Move: at, Retire: map[string]time.Time{"5f": at.Add(time.Hour)}, LongestLife: 86400}
	written := func(r rotation) (string, error) {
		files := map[string][]byte{}
		err := r.put(files)
		return string(files[rotationFile]), err
	}
	text, err := written(r)
	if err != nil {
		t.Fatal(err)
	}
	formats.Check(t, "rotation.json", text, func(text string) (string, error) {
		r, err := parseRotation(map[string][]byte{rotationFile: []byte(text)})
		if err != nil {
			return "", err
		}
		return written(r)
	})
	// The names of the files, in a new authority whose root is requested to change.
	store := newMemoryStore()
	if _, err := NewAuthority(t.Context(), AuthorityOptions{Store: store, TrustDomain: "cluster.local"}); err != nil {
		t.Fatal(err)
	}
	if _, err := RequestRotation(t.Context(), store, time.Now()); err != nil {
		t.Fatal(err)
	}
	files, err := store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Join(slices.Sorted(maps.Keys(files.Files)), "\n") + "\n"
	formats.Check(t, "files", names, func(text string) (string, error) { return text, nil })
}
