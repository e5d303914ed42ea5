package previous

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// commits creates a repository with two commits, and returns its directory.
func commits(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, "git", "init", "--quiet")
	for range 2 {
		run(t, dir, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "--message=a")
	}
	return dir
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestAClone(t *testing.T) {
	t.Setenv(Variable, "")
	whole := commits(t)
	shallow := t.TempDir()
	run(t, shallow, "git", "clone", "--quiet", "--depth=1", "file://"+whole, ".")
	for name, c := range map[string]struct{ dir, want string }{
		"without the commit": {whole, "git fetch origin " + before},
		"a shallow one":      {shallow, "git fetch --unshallow"},
		"not by git":         {t.TempDir(), "use a clone made by git"},
	} {
		_, err := Get(t.Context(), c.dir, "", io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), before) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The last release is the newest tag before HEAD: a tagged HEAD is not its own predecessor.
func TestTheLastRelease(t *testing.T) {
	t.Setenv(Variable, "")
	dir := commits(t)
	first := run(t, dir, "git", "rev-parse", "HEAD^")
	run(t, dir, "git", "tag", "v1.0.0", "HEAD^")
	run(t, dir, "git", "tag", "v1.1.0")
	if got, err := commitOf(t.Context(), dir); err != nil || got != first {
		t.Errorf("%s, %v, want %s", got, err, first)
	}
	t.Setenv(Variable, "v1.1.0")
	if got, err := commitOf(t.Context(), dir); err != nil || got == first {
		t.Errorf("%s, %v, want the commit of %s", got, err, os.Getenv(Variable))
	}
}

// A build that fails leaves neither a build nor sources.
func TestABuildThatFails(t *testing.T) {
	t.Setenv(Variable, "HEAD")
	dir := commits(t)
	if _, err := Get(t.Context(), dir, "", io.Discard); err == nil {
		t.Fatal("an empty commit is built")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".cache", "previous", "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if trees := run(t, dir, "git", "worktree", "list"); strings.Contains(trees, "\n") {
		t.Errorf("worktrees are left:\n%s", trees)
	}
}
