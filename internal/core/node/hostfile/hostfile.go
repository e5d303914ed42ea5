// Package hostfile copies programs to the node, completely or not at all, and removes those that are no
// longer used.
package hostfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Agents is the directory with the copies of the agent. Each copy is in a directory named by its
// digest, so that containers of an earlier version keep theirs.
type Agents struct{ Root string }

// Install copies the agent unless an identical copy exists, and returns the directory of the copy.
func (a Agents) Install(source string) (dir string, err error) {
	sum, err := digest(source)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(a.Root, hex.EncodeToString(sum)[:32])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, Copy(source, filepath.Join(dir, filepath.Base(source)))
}

// Keep removes all copies except those in the given directories.
func (a Agents) Keep(dirs []string) error {
	entries, err := os.ReadDir(a.Root)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if dir := filepath.Join(a.Root, e.Name()); e.IsDir() && !slices.Contains(dirs, dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// Copy makes target an executable copy of source. A process that starts target at the same time runs
// either the old or the new one. An identical target is not written again.
func Copy(source, target string) error {
	want, err := digest(source)
	if err != nil {
		return err
	}
	if has, err := digest(target); err == nil && bytes.Equal(has, want) {
		return nil
	}
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	// The copy is written in a separate directory, because a runtime that starts meanwhile fails if it
	// finds an executable whose name is not a plugin's.
	dir, err := workDir(filepath.Dir(target))
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	out, err := os.OpenFile(filepath.Join(dir, "new"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o755), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), target)
	}
	if err != nil {
		return fmt.Errorf("copying %s to %s: %w", source, target, err)
	}
	return nil
}

// staleAfter is the age at which the directory of an unfinished copy is removed.
const staleAfter = time.Hour

func workDir(parent string) (string, error) {
	const prefix = ".outrider-"
	entries, err := os.ReadDir(parent)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) > staleAfter {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
	return os.MkdirTemp(parent, prefix)
}

// Remove removes a file, if it exists.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func digest(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
