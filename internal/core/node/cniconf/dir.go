package cniconf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// A Dir is a node's directory of network configurations.
type Dir struct {
	Path   string
	Plugin string // the name of Outrider's plugin
	Entry  string // the plugin's entry in a list of plugins
	Log    *slog.Logger
}

// mark is the suffix of the name of a list that belongs to Outrider entirely. It sorts before .conf, .conflist
// and .json, so that the runtime reads the list before the file from which it was made.
const mark = ".0-outrider.conflist"

// ErrNone means that there is no configuration, because the main plugin has not written it yet.
var ErrNone = errors.New("there is no network configuration yet")

// configurations returns the names of the files that a runtime reads, in the order in which it reads them. Lists
// that belong to Outrider entirely are returned separately.
func (d Dir) configurations() (theirs, ours []string, err error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries { // they are sorted by name
		switch {
		case e.IsDir():
		case strings.HasSuffix(e.Name(), mark):
			ours = append(ours, e.Name())
		case slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())):
			theirs = append(theirs, e.Name())
		}
	}
	return theirs, ours, nil
}

// Install inserts the plugin into the configuration that the runtime uses: the first one. If the plugin
// is there already, it changes nothing.
func (d Dir) Install() error {
	theirs, ours, err := d.configurations()
	if err != nil {
		return err
	}
	if len(theirs) == 0 { // our own list is removed too: it names a plugin that is missing, so the node would seem ready without a network
		return errors.Join(d.removeFiles(ours), ErrNone)
	}
	name := theirs[0]
	path := filepath.Join(d.Path, name)
	if filepath.Ext(name) == ".conflist" {
		if err := d.edit(path, func(text []byte) ([]byte, error) { return Insert(text, d.Plugin, d.Entry) }); err != nil {
			return err
		}
		return d.removeFiles(ours)
	}
	beside := strings.TrimSuffix(name, filepath.Ext(name)) + mark
	text, info, err := read(path)
	if err != nil {
		return err
	}
	whole, err := list(text, d.Entry)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if has, _, err := read(filepath.Join(d.Path, beside)); err != nil || !bytes.Equal(has, whole) {
		if err := d.write(filepath.Join(d.Path, beside), whole, info, nil); err != nil {
			return err
		}
	}
	return d.removeFiles(slices.DeleteFunc(ours, func(n string) bool { return n == beside }))
}

// Remove removes the plugin from all configurations.
func (d Dir) Remove() error {
	theirs, ours, err := d.configurations()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, name := range theirs {
		path := filepath.Join(d.Path, name)
		text, _, err := read(path)
		if err != nil || !bytes.Contains(text, []byte(d.Plugin)) || filepath.Ext(name) != ".conflist" {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, d.edit(path, func(text []byte) ([]byte, error) { return Remove(text, d.Plugin) }))
	}
	return errors.Join(append(errs, d.removeFiles(ours))...)
}

func (d Dir) removeFiles(names []string) error {
	var errs []error
	for _, n := range names {
		d.Log.Info("network configuration removed", "file", n)
		errs = append(errs, os.Remove(filepath.Join(d.Path, n)))
	}
	return errors.Join(errs...)
}

// edits limits the attempts to change a file that its owner writes at the same time.
const edits = 5

// edit replaces the content of a file by the result of change.
func (d Dir) edit(path string, change func([]byte) ([]byte, error)) error {
	path, err := filepath.EvalSymlinks(path) // a link is followed, so that the link itself stays
	if err != nil {
		return err
	}
	for range edits {
		text, info, err := read(path)
		if err != nil {
			return err
		}
		changed, err := change(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if bytes.Equal(text, changed) {
			return nil
		}
		if err := d.write(path, changed, info, text); !errors.Is(err, errChanged) {
			return err
		}
	}
	return fmt.Errorf("%s: %w, %d times", path, errChanged, edits)
}

var errChanged = errors.New("its owner has written it meanwhile")

// write replaces the content of a file in one step, keeping the mode and owner in info. If before is
// not nil, it must be the present content: the files are exchanged, so a change that another program
// has made since the file was read is noticed and restored.
func (d Dir) write(path string, text []byte, info fs.FileInfo, before []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".outrider-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // the removal fails if the file was renamed
	_, err = f.Write(text)
	if st, ok := info.Sys().(*syscall.Stat_t); ok && err == nil {
		err = f.Chown(int(st.Uid), int(st.Gid))
	}
	if err := errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing beside %s: %w", path, err)
	}
	if before == nil {
		err = os.Rename(f.Name(), path)
	} else {
		err = exchange(f.Name(), path, before)
	}
	if err == nil {
		d.Log.Info("network configuration written", "file", path)
	}
	return err
}

func exchange(temp, path string, before []byte) error {
	err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errChanged // the file was removed: the next attempt finds none
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS): // the file system does not support an exchange
		if now, _, err := read(path); err != nil || !bytes.Equal(now, before) {
			return errors.Join(errChanged, err)
		}
		return os.Rename(temp, path)
	case err != nil:
		return fmt.Errorf("writing %s: %w", path, err)
	}
	was, _, err := read(temp)
	if err == nil && bytes.Equal(was, before) {
		return nil
	}
	if back := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE); back != nil {
		return fmt.Errorf("putting back what the owner of %s has written: %w", path, back)
	}
	return errors.Join(errChanged, err)
}

func read(path string) ([]byte, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	return text, info, err
}

// again is the time after which a failed attempt is repeated even if the directory has not changed.
const again = 5 * time.Second

// Keep installs the plugin, and does so again whenever the directory changes, until ctx ends. Each time
// it reports whether the plugin is in place.
func (d Dir) Keep(ctx context.Context, inPlace func(error)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Add(d.Path); err != nil {
		return fmt.Errorf("watching %s: %w", d.Path, err)
	}
	for {
		err := d.Install()
		inPlace(err)
		var retry <-chan time.Time
		if err != nil && !errors.Is(err, ErrNone) {
			retry = time.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case err := <-w.Errors:
			return fmt.Errorf("watching %s: %w", d.Path, err)
		case _, ok := <-w.Events:
			if !ok {
				return fmt.Errorf("watching %s has ended", d.Path)
			}
			for len(w.Events) > 0 { // one change causes several events
				<-w.Events
			}
		}
	}
}
