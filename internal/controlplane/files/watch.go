package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A watch keeps a source up to date.
type watch struct {
	o       Options
	source  *Source
	folder  *folder
	inotify *fsnotify.Watcher
	watched map[identity]string // folders, with the path given to inotify
	ignored map[string]bool     // kinds that were logged
	logged  map[Problem]bool
}

func newWatch(root string, o Options, s *Source) (*watch, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, explain(err)
	}
	w := &watch{
		o: o, source: s, folder: newFolder(root, o.Config), inotify: inotify,
		watched: map[identity]string{}, ignored: map[string]bool{}, logged: map[Problem]bool{},
	}
	var refused error
	l, err := walk(root, func(path string, info fs.FileInfo) error {
		err := w.enter(path, info)
		refused = errors.Join(refused, err)
		return err
	})
	if err == nil {
		err = refused
	}
	if err == nil && filepath.Dir(root) != root {
		err = w.add(filepath.Dir(root)) // for events of the folder itself
	}
	if err != nil {
		inotify.Close()
		return nil, err
	}
	w.folder.apply(l)
	w.publish(time.Now())
	return w, nil
}

// explain adds which limit of the kernel to raise.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("no inotify watch is left: raise fs.inotify.max_user_watches: %w", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("no inotify instance is left: raise fs.inotify.max_user_instances, or the limit of open files: %w", err)
	}
	return err
}

func (w *watch) add(path string) error {
	if err := w.inotify.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("watching %s: %w", path, explain(err))
	}
	return nil
}

// enter watches a folder, once. It may have several paths by links, but the kernel watches
// the folder: to remove one path would end the watch of all.
func (w *watch) enter(path string, info fs.FileInfo) error {
	id := identityOf(info)
	if _, ok := w.watched[id]; ok {
		return nil
	}
	if err := w.add(path); err != nil {
		return err
	}
	w.watched[id] = path
	return nil
}

// leave stops watching folders that keep does not want.
func (w *watch) leave(keep func(id identity, path string) bool) {
	for id, path := range w.watched {
		if !keep(id, path) {
			_ = w.inotify.Remove(path) // the folder may have been removed
			delete(w.watched, id)
		}
	}
}

// unmoved returns whether a path still leads to the same folder.
func unmoved(id identity, path string) bool {
	info, err := os.Stat(path)
	return err == nil && identityOf(info) == id
}

// run follows the folder until ctx ends.
func (w *watch) run(ctx context.Context) {
	defer w.inotify.Close()
	for {
		var seen changes
		if !seen.wait(ctx, w) {
			return
		}
		began := time.Now()
		if seen.everything || !w.few(seen.names) {
			w.all()
		}
		w.publish(began)
	}
}

// all lists the whole folder.
func (w *watch) all() {
	w.leave(unmoved) // first: inotify would mistake a path for its former folder
	l, err := walk(w.folder.root, w.enter)
	if err != nil {
		// The folder is probably being replaced: an empty mesh would be wrong.
		w.folder.last.problems = []Problem{{File: w.folder.root, Message: err.Error() + "; its former content stays in use"}}
		return
	}
	listed := map[identity]bool{}
	for _, info := range l.folders {
		listed[identityOf(info)] = true
	}
	w.leave(func(id identity, _ string) bool { return listed[id] }) // former targets of links
	w.folder.apply(l)
}

// few updates single files. It returns false if the whole folder has to be listed.
func (w *watch) few(names map[string]bool) bool {
	if w.folder.last.links || len(w.folder.last.problems) > 0 {
		return false
	}
	var read, gone []string
	// any order: update sorts.
	for name := range names {
		path, err := filepath.Rel(w.folder.root, name)
		if err != nil {
			return false
		}
		info, err := os.Lstat(name)
		switch {
		case path != "." && hidden(path):
		case err == nil && info.Mode().IsRegular():
			if isManifest(path) {
				read = append(read, path)
			}
		case errors.Is(err, fs.ErrNotExist) && w.folder.last.folders[name] == nil:
			if w.folder.files[path] != nil {
				gone = append(gone, path)
			}
		default: // a folder or a link
			return false
		}
	}
	w.folder.update(read, gone)
	return true
}

func (w *watch) publish(began time.Time) {
	m := w.folder.builder.Mesh()
	problems := w.folder.problems() // of that mesh
	for _, kind := range w.folder.takeIgnored(w.ignored) {
		w.o.Log.Info("kind without a meaning for the mesh: ignored", "kind", kind)
	}
	now := map[Problem]bool{}
	for _, p := range problems {
		now[p] = true
		if !w.logged[p] {
			w.o.Log.Warn("manifest not used", "file", p.File, "line", p.Line, "object", p.Object, "field", p.Field, "problem", p.Message)
		}
	}
	w.logged = now
	services, workloads := m.Len()
	w.o.Log.Debug("folder read", "files", len(w.folder.files), "services", services, "workloads", workloads,
		"problems", len(problems), "took", time.Since(began))
	w.source.Publish(m, problems)
}

// changes are the events since the folder was read.
type changes struct {
	names      map[string]bool
	everything bool // events are missing: list the whole folder
}

// wait waits for a change and the debounce after it; false: ctx ended.
func (c *changes) wait(ctx context.Context, w *watch) bool {
	return settle(ctx, w.inotify.Events, w.inotify.Errors, w.o.Quiet, w.o.AtMost, func(e fsnotify.Event) bool {
		return c.note(e, w)
	}, func(err error) {
		c.everything = true
		w.o.Log.Warn("watching the folder", "err", err) // the queue of events overflowed
	})
}

// note records an event and returns whether it is about the folder.
func (c *changes) note(e fsnotify.Event, w *watch) bool {
	root := w.folder.root
	if parent := filepath.Dir(root); parent != root && e.Name != root && filepath.Dir(e.Name) == parent {
		return false // a sibling of the folder
	}
	if c.names == nil {
		c.names = map[string]bool{}
	}
	c.names[e.Name] = true
	return true
}

// settle waits for an event that counts, then until none came for quiet, or atMost after
// the first. It returns false when ctx ended.
func settle[E any](ctx context.Context, events <-chan E, errs <-chan error, quiet, atMost time.Duration, counts func(E) bool, failed func(error)) bool {
	var calm, deadline <-chan time.Time
	for {
		counted := false
		select {
		case <-ctx.Done():
			return false
		case <-calm:
			return true
		case <-deadline:
			return true
		case e, ok := <-events:
			if !ok {
				return false
			}
			counted = counts(e)
		case err, ok := <-errs:
			if !ok {
				return false
			}
			failed(err)
			counted = true
		}
		if !counted {
			continue
		}
		calm = time.After(quiet)
		if deadline == nil {
			deadline = time.After(atMost)
		}
	}
}
