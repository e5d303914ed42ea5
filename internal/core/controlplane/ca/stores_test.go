package ca_test

import (
	"path/filepath"
	"testing"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/castore"
)

func TestDirectoryIsAStore(t *testing.T) {
	dir := ca.Directory(t.TempDir())
	castore.Check(t, dir, dir)
}

func TestTheStoreOfTheseTestsIsOne(t *testing.T) {
	s := ca.NewMemoryStore()
	castore.Check(t, s, s)
}

func TestUsedTokensInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "used")
	var of [2]ca.UsedTokens
	for i := range of {
		u, err := ca.NewUsed(path)
		if err != nil {
			t.Fatal(err)
		}
		of[i] = u
	}
	castore.CheckUsed(t, of[0], of[1])
}
