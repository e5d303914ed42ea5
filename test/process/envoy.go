package process

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Envoy returns the path of the real Envoy: the environment variable ENVOY, or the file that "make deps"
// downloads. If the file does not exist, it skips the test.
func Envoy(t testing.TB) string {
	t.Helper()
	path := cmp.Or(os.Getenv("ENVOY"), ".cache/envoy/envoy")
	if !filepath.IsAbs(path) {
		path = filepath.Join(moduleRoot(t), path) // as in make, a relative path starts at the module's root
	}
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		t.Skip("no Envoy: make deps")
	case err != nil:
		t.Fatal(err)
	}
	return path
}

// moduleRoot returns the directory of go.mod, searched from the working directory upwards.
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
