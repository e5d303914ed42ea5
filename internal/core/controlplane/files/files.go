// Package files builds a mesh from a folder of Kubernetes manifests, and watches it.
//
// It reads all files that end in .yaml, .yml or .json, also in subfolders, except names that begin with
// a dot. Kinds that the mesh does not use are ignored.
//
// A file is valid or invalid as a whole. A mistake in it is a [Problem], and its last valid version stays in
// use, so that a mistake during editing removes nothing from a running mesh. If an object occurs in two
// files, the first file by path is used, and the second object is a problem.
//
// Files should be replaced by a rename: one that is written in place may be read while it is
// incomplete. Changes are noticed by inotify, which does not work for network file systems that another
// machine changes.
package files

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/mesh"
)

// Options of a watch. The zero value of a field means its default.
type Options struct {
	Config mesh.Config
	Log    *slog.Logger // default: none
}

// synced is a closed channel, because [Watch] returns only after it has read the folder.
var synced = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// A Source publishes the mesh built from a folder.
type Source struct {
	mesh.Feed

	done       chan struct{}
	namespaces atomic.Pointer[map[string]manifest.Namespace]
}

// Synced returns a closed channel, because the mesh is complete when [Watch] returns.
func (s *Source) Synced() <-chan struct{} { return synced }

// Done returns a channel that is closed when the watch has ended, after the end of its context.
func (s *Source) Done() <-chan struct{} { return s.done }

// Namespace returns a namespace that the folder declares. If two files declare it, the first by path is used.
func (s *Source) Namespace(name string) (manifest.Namespace, bool) {
	ns, ok := (*s.namespaces.Load())[name]
	return ns, ok
}

// Watch reads a folder, and reads it again after changes until ctx ends. It fails if the folder cannot be
// read or watched. Problems in manifests are not errors.
func Watch(ctx context.Context, dir string, o Options) (*Source, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Source{done: make(chan struct{})}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w, err := newWatch(root, o, s)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		w.run(ctx)
	}()
	return s, nil
}
