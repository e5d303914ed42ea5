// Package previous builds the version of Outrider that users upgrade from, so that tests can run two versions at
// once: the last release or, until there is one, a fixed commit. Like every user's installation it consists of
// the commands, which contain the chart, and of the images.
//
// A build is kept in .cache, and nothing else of the old sources is. The package needs git, and the history of the
// clone.
package previous

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// before is the commit that stands for the last release as long as there is none.
const before = "faa55d1cdb9d7ebf1cf6682053c4d6f602d99c61"

// Tag is the tag of the old images. The present ones have the tag "dev".
const Tag = "previous"

// Variable is the environment variable with another commit or tag to build.
const Variable = "PREVIOUS"

// A Build is a built version.
type Build struct {
	Commit string
	dir    string
}

// Command returns the path of a command of that version, such as "outriderd".
func (b Build) Command(name string) string { return filepath.Join(b.dir, "bin", name) }

// Abrupt reports whether a replica of its control plane stops answering reviews at once when it is to end, so that pods are
// refused until every node knows of that.
func (b Build) Abrupt() bool { return b.Commit == before }

// Lacks returns the names of the present chart's values that tests set and that its chart does not have.
func (b Build) Lacks() []string {
	if b.Commit == before {
		return []string{"node.runtimeConfig"}
	}
	return nil
}

// Images returns the tarballs of its images.
func (b Build) Images() (tarballs []string) {
	for _, name := range []string{"outriderd", "outrider-proxy", "outrider-node"} {
		tarballs = append(tarballs, filepath.Join(b.dir, "images", name+".tar"))
	}
	return tarballs
}

// Get returns the build of the previous version, for the checkout in root. If there is none in the cache, it builds the
// version first, which takes minutes in a new Go build cache, and writes the output of that to progress. Several
// processes may call Get at the same time. The error for a clone without the commit says how to fetch it.
func Get(ctx context.Context, root, envoy string, progress io.Writer) (Build, error) {
	commit, err := commitOf(ctx, root)
	if err != nil {
		return Build{}, err
	}
	cache := filepath.Join(root, ".cache", "previous")
	b := Build{Commit: commit, dir: filepath.Join(cache, commit)}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return b, err
	}
	unlock, err := lock(cache)
	if err != nil {
		return b, err
	}
	defer unlock()
	if _, err := os.Stat(b.dir); err == nil {
		return b, nil
	}
	fmt.Fprintf(progress, "building the previous version, commit %.8s\n", commit)
	return b, b.build(ctx, root, envoy, progress)
}

// commitOf returns the commit to build.
func commitOf(ctx context.Context, root string) (string, error) {
	name := os.Getenv(Variable)
	if name == "" {
		// The release before this commit, which may be tagged itself. An error means that there is none.
		name, _ = git(ctx, root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^")
	}
	name = cmp.Or(name, before)
	commit, err := git(ctx, root, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err == nil {
		return commit, nil
	}
	if _, err := git(ctx, root, "rev-parse", "--git-dir"); err != nil {
		return "", fmt.Errorf("the previous version, %s, is built from the history, and there is none: %w; use a clone made by git", name, err)
	}
	advice := "git fetch origin " + name
	if shallow, _ := git(ctx, root, "rev-parse", "--is-shallow-repository"); shallow == "true" {
		advice = "git fetch --unshallow"
	}
	return "", fmt.Errorf("the previous version, %s, is not in this clone; try: %s, or set %s to another commit", name, advice, Variable)
}

// build builds the version in a worktree, which it removes afterwards. The build appears in the cache as a whole.
func (b Build) build(ctx context.Context, root, envoy string, progress io.Writer) (err error) {
	sources, unfinished := b.dir+".sources", b.dir+".unfinished"
	remove := func() error { // also what a killed build has left
		err := errors.Join(os.RemoveAll(sources), os.RemoveAll(unfinished))
		_, prune := git(context.WithoutCancel(ctx), root, "worktree", "prune")
		return errors.Join(err, prune)
	}
	if err := remove(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if _, err := git(ctx, root, "worktree", "add", "--force", "--detach", sources, b.Commit); err != nil {
		return err
	}
	if envoy, err = b.envoy(root, sources, envoy); err != nil {
		return err
	}
	bin := filepath.Join(unfinished, "bin")
	for _, args := range [][]string{
		{"run", "./build/commands/cmd", bin},
		{"run", "./build/images", "-bin", bin, "-envoy", envoy, "-o", filepath.Join(unfinished, "images"), "-tag", Tag},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		var printed bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = sources, &printed, io.MultiWriter(&printed, progress)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building commit %s: go %s: %w\n%s", b.Commit, strings.Join(args, " "), err, &printed)
		}
	}
	return os.Rename(unfinished, b.dir)
}

// envoy returns the path of the Envoy for the old images: the present one, if both versions have the same.
func (b Build) envoy(root, sources, envoy string) (string, error) {
	const pin = "build/envoy.sha256"
	now, err := os.ReadFile(filepath.Join(root, pin))
	if err != nil {
		return "", err
	}
	then, err := os.ReadFile(filepath.Join(sources, pin))
	if err != nil {
		return "", err
	}
	if !bytes.Equal(now, then) {
		cmd := exec.Command("build/envoy.sh", ".cache/envoy")
		cmd.Dir = sources
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("fetching the Envoy of commit %s: %w: %s", b.Commit, err, out)
		}
		return filepath.Join(sources, ".cache/envoy/envoy"), nil
	}
	if !filepath.IsAbs(envoy) {
		envoy = filepath.Join(root, envoy)
	}
	if _, err := os.Stat(envoy); err != nil {
		return "", fmt.Errorf("the images need Envoy: %w; try: make deps, or set ENVOY", err)
	}
	return envoy, nil
}

// lock waits until no other process builds in the directory.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		d.Close()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return func() { d.Close() }, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
