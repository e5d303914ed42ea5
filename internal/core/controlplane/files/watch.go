package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"outrider.dev/internal/core/mesh"
)

// A watch updates a source when its folder changes.
type watch struct {
	o       Options
	root    string
	source  *Source
	folder  *folder
	inotify *fsnotify.Watcher
	watched map[identity]string // watched folders, with the path that was passed to inotify
	ignored map[string]bool     // kinds for which a log message was written
	logged  map[Problem]bool
}

func newWatch(root string, o Options, s *Source) (*watch, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, explain(err)
	}
	w := &watch{
		o: o, root: root, source: s, folder: newFolder(root, o.Config), inotify: inotify,
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
		err = w.add(filepath.Dir(root)) // its events include the replacement of the root folder
	}
	if err != nil {
		inotify.Close()
		return nil, err
	}
	w.folder.apply(l)
	w.publish(time.Now())
	return w, nil
}

// explain adds to an error the name of the kernel's limit that must be raised.
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

// enter watches a folder once. A folder may have several paths through links, but only one inotify watch. If
// that watch were removed for one path, it would end for all of them.
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

// leave stops watching the folders for which the function keep returns false.
func (w *watch) leave(keep func(id identity, path string) bool) {
	for id, path := range w.watched {
		if !keep(id, path) {
			_ = w.inotify.Remove(path) // an error means that the folder was removed
			delete(w.watched, id)
		}
	}
}

// unmoved reports whether a path still leads to the same folder as before.
func unmoved(id identity, path string) bool {
	info, err := os.Stat(path)
	return err == nil && identityOf(info) == id
}

// run watches the folder until ctx ends.
func (w *watch) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer w.inotify.Close()
	dirty := make(chan struct{}, 1)
	running.Go(func() { w.events(dirty) })
	for mesh.Settle(ctx, dirty) {
		began := time.Now()
		w.all()
		w.publish(began)
	}
}

// events signals each event of the folder on dirty, until inotify is closed.
func (w *watch) events(dirty chan<- struct{}) {
	for {
		select {
		case e, ok := <-w.inotify.Events:
			if !ok {
				return
			}
			if parent := filepath.Dir(w.root); parent != w.root && e.Name != w.root && filepath.Dir(e.Name) == parent {
				continue // the event is about another file beside the root folder
			}
		case err, ok := <-w.inotify.Errors:
			if !ok {
				return
			}
			w.o.Log.Warn("watching the folder", "err", err) // for example, the queue of events has overflowed
		}
		select {
		case dirty <- struct{}{}:
		default: // a signal is pending already
		}
	}
}

// all lists the whole folder and reads the files that have changed.
func (w *watch) all() {
	w.leave(unmoved) // before the walk: otherwise a replaced folder's watch would be taken for the new folder's
	l, err := walk(w.root, w.enter)
	if err != nil {
		// The folder is probably being replaced, so the mesh must not become empty.
		w.folder.last.problems = []Problem{{File: w.root, Message: err.Error() + "; its former content stays in use"}}
		return
	}
	listed := map[identity]bool{}
	for _, info := range l.folders {
		listed[identityOf(info)] = true
	}
	w.leave(func(id identity, _ string) bool { return listed[id] }) // removes the former targets of links
	w.folder.apply(l)
}

func (w *watch) publish(began time.Time) {
	m := w.folder.builder.Mesh()
	problems := w.folder.problems() // must follow the call of Mesh, because it includes the conflicts in that mesh
	for _, kind := range w.folder.takeIgnored(w.ignored) {
		w.o.Log.Info("kind without a meaning for the mesh: ignored", "kind", kind)
	}
	now := map[Problem]bool{}
	lines := make([]string, 0, len(problems))
	for _, p := range problems {
		now[p] = true
		lines = append(lines, p.String())
		if !w.logged[p] {
			w.o.Log.Warn(p.effect(), "file", p.File, "line", p.Line, "object", p.Object, "field", p.Field, "problem", p.Message)
		}
	}
	w.logged = now
	services, workloads := m.Len()
	w.o.Log.Debug("folder read", "files", len(w.folder.files), "services", services, "workloads", workloads,
		"problems", len(problems), "took", time.Since(began))
	w.source.namespaces.Store(w.folder.namespaces())
	w.source.Publish(m, lines)
}
