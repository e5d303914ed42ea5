package ca

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"outrider.dev/internal/base/wire"
)

// Names of an authority's files, in addition to those in its layout.
const (
	nextCertFile  = "next-cert.pem" // the root that signs next; see rotation.go
	nextKeyFile   = "next-key.pem"
	rotationFile  = "rotation.json"
	requestFile   = "rotate" // requests a rotation; its content does not matter
	tokenKeyFile  = "token-key.pem"
	unappliedFile = ".update" // changes that are not applied yet; only in a [Directory]
)

// Contents are the files in a store at one time.
type Contents struct {
	Files   map[string][]byte // content by file name
	Version string            // changes with each update; empty: the store does not exist
	Own     bool              // this control plane may write the files
}

// clone returns a copy whose map of files may be changed.
func (c Contents) clone() Contents {
	c.Files = maps.Clone(c.Files)
	if c.Files == nil {
		c.Files = map[string][]byte{}
	}
	return c
}

// ErrConflict means that a store has changed since the version from which an update was made.
var ErrConflict = errors.New("the authority's files were changed meanwhile")

// A Store keeps the files of an authority. Several control planes may share a store.
type Store interface {
	// String returns the name of the store in messages.
	String() string
	// Read returns the files in the store. It is no error if there are none.
	Read(ctx context.Context) (Contents, error)
	// Update replaces all files in one step: after a crash there are either the old files or the new ones. It
	// returns [ErrConflict] if the store's version is no longer c.Version. If c.Version is empty, Update
	// creates the store.
	Update(ctx context.Context, c Contents) error
	// Watch calls the function changed after each change, until stop is called. A call is only a hint: the
	// receiver must read the files and compare.
	Watch(changed func()) (stop func())
}

// A Directory is a store in a folder. Read also works on a read-only mount.
type Directory string

// fileNames are the names of a store's files. The directory may contain other files too.
var fileNames = func() []string {
	out := []string{nextCertFile, nextKeyFile, rotationFile, requestFile, tokenKeyFile}
	for _, l := range layouts {
		out = append(out, l.cert, l.key, l.chain, l.roots)
	}
	slices.Sort(out)
	return slices.Compact(out)
}()

func (d Directory) String() string { return string(d) }

func (d Directory) path(name string) string { return filepath.Join(string(d), name) }

// Read returns the files in the folder. It first completes an update that was interrupted by a crash.
func (d Directory) Read(context.Context) (c Contents, err error) {
	if _, err := os.Stat(string(d)); errors.Is(err, os.ErrNotExist) {
		return contentsOf(nil), nil
	}
	err = withLock(string(d), func() error {
		c, err = d.read()
		return err
	})
	return c, err
}

// read does the work of Read; the caller holds the lock.
func (d Directory) read() (Contents, error) {
	if err := d.finish(); err != nil {
		return Contents{}, err
	}
	files := map[string][]byte{}
	for _, name := range fileNames {
		raw, err := os.ReadFile(d.path(name))
		switch {
		case err == nil:
			files[name] = raw
		case !errors.Is(err, os.ErrNotExist):
			return Contents{}, err
		}
	}
	return contentsOf(files), nil
}

// contentsOf returns files as contents, whose version is a hash of all files.
func contentsOf(files map[string][]byte) Contents {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%s %d\n%s", name, len(files[name]), files[name])
	}
	return Contents{Files: files, Version: hex.EncodeToString(sum.Sum(nil)), Own: true}
}

// Update first writes all changes into one file, from which finish applies them. So a crash cannot leave only
// some of them.
func (d Directory) Update(_ context.Context, c Contents) error {
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if !slices.Contains(fileNames, name) {
			return fmt.Errorf("%s is none of an authority's files", d.path(name))
		}
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	return withLock(string(d), func() error {
		now, err := d.read()
		if err != nil {
			return err
		}
		if now.Version != c.Version {
			return ErrConflict
		}
		changes := map[string][]byte{}
		for _, name := range fileNames {
			next, kept := c.Files[name]
			was, had := now.Files[name]
			if had != kept || !bytes.Equal(next, was) {
				changes[name] = next // nil: the file is to be removed
			}
		}
		raw, err := json.Marshal(changes)
		if err != nil {
			return err
		}
		if err := replace(d.path(unappliedFile), raw); err != nil {
			return err
		}
		return d.finish()
	})
}

// finish applies the changes in unappliedFile, if there is one. A process that crashed may already have
// applied some of them.
func (d Directory) finish() error {
	raw, err := os.ReadFile(d.path(unappliedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var changes map[string][]byte
	if err := json.Unmarshal(raw, &changes); err != nil {
		return fmt.Errorf("%s: %w", d.path(unappliedFile), err)
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		content := changes[name]
		if !slices.Contains(fileNames, name) {
			return fmt.Errorf("%s: %q is none of an authority's files", d.path(unappliedFile), name)
		}
		if content != nil {
			if err := replace(d.path(name), content); err != nil {
				return err
			}
		} else if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := syncDir(string(d)); err != nil { // makes the changes durable before the file of the update is removed
		return err
	}
	return os.Remove(d.path(unappliedFile))
}

// Watch uses inotify. If the folder cannot be watched, it reads the files every ten seconds.
func (d Directory) Watch(changed func()) (stop func()) {
	var paths []string
	for _, l := range layouts {
		paths = append(paths, d.path(l.cert))
	}
	return wire.WatchFiles(watchPoll, changed, paths...)
}
