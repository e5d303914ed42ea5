package process

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Envoy is the path of the real Envoy: ENVOY of the environment, or what "make deps" fetches.
// Without one the test is skipped.
func Envoy(t testing.TB) string {
	t.Helper()
	path := cmp.Or(os.Getenv("ENVOY"), ".cache/envoy/envoy")
	if !filepath.IsAbs(path) {
		path = filepath.Join(moduleRoot(t), path) // as make takes it
	}
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		t.Skip("no Envoy: make deps")
	case err != nil:
		t.Fatal(err)
	}
	return path
}

// moduleRoot is the directory of go.mod, from the working directory upwards.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod in the working directory, nor above it: ", err)
	return ""
}
