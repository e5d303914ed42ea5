package ca_test

import (
	"path/filepath"
	"testing"

	"outrider.dev/internal/controlplane/ca"
	"outrider.dev/test/castore"
)

func TestDirectoryIsAStore(t *testing.T) {
	dir := ca.Directory(filepath.Join(t.TempDir(), "new"))
	castore.Check(t, dir, dir)
}

func TestTheStoreOfTheseTestsIsOne(t *testing.T) {
	s := ca.NewShelf()
	castore.Check(t, s, s)
}
