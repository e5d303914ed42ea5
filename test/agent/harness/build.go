package harness

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"outrider.dev/build/commands"
	"outrider.dev/test/ns"
	"outrider.dev/test/previous"
)

// Binaries holds the paths of the programs, which every user may execute.
type Binaries struct{ dir, Agent, Plane, Envoy string }

// build builds the programs, once in each test process.
var build = sync.OnceValues(func() (Binaries, error) {
	root, err := moduleRoot()
	if err != nil {
		return Binaries{}, err
	}
	dir, err := os.MkdirTemp("/tmp", "outrider-binaries")
	if err != nil {
		return Binaries{}, err
	}
	b := Binaries{dir: dir, Agent: dir + "/outrider-agent", Plane: dir + "/outriderd", Envoy: dir + "/envoy"}
	if err := os.Chmod(dir, 0o755); err != nil {
		return b, err
	}
	if err := commands.Build(context.Background(), dir, commands.Agent, commands.ControlPlane); err != nil {
		return b, err
	}
	envoy := cmp.Or(os.Getenv("ENVOY"), ".cache/envoy/envoy")
	if !filepath.IsAbs(envoy) {
		envoy = filepath.Join(root, envoy)
	}
	return b, place(envoy, b.Envoy)
})

// Build returns the paths of the programs, and builds them first. It skips the test if there is no Envoy, or if the
// user is not root.
func Build(t testing.TB) Binaries {
	t.Helper()
	ns.RequireRoot(t)
	b, err := build()
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no Envoy (make deps): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Previous returns the paths of the programs of the version before this one, and builds them first. They are removed with
// the other programs.
func Previous(t testing.TB) Binaries {
	t.Helper()
	now := Build(t)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	version, err := previous.Get(t.Context(), root, now.Envoy, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	b := Binaries{Agent: now.dir + "/previous-agent", Plane: now.dir + "/previous-plane", Envoy: now.Envoy}
	for to, name := range map[string]string{b.Agent: commands.Agent, b.Plane: commands.ControlPlane} { // any order: two files
		if err := place(version.Command(name), to); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	return b
}

// Clean removes the output of Build. A test binary that called Build calls Clean before it exits.
func Clean() {
	if b, _ := build(); b.dir != "" {
		os.RemoveAll(b.dir)
	}
}

// moduleRoot returns the directory of go.mod, searched from the working directory upwards.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			err = errors.New("no go.mod in or above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// place links or copies a file to a path at which every user may read it: the file's own folder may be readable by
// root only.
func place(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
