// Package files makes a mesh from a folder of Kubernetes manifests, and watches it.
//
// It reads all files that end in .yaml, .yml or .json, also in subfolders, except names that
// begin with a dot. Kinds without a meaning for a mesh are ignored.
//
// A file is used as a whole. A file with any mistake is a [Problem], and its last valid
// version stays in use: a mistake while a file is edited removes nothing from a running
// mesh. An object in two files is a problem of the second, by path; the first is used.
//
// Files should be replaced by a rename: one that is written in place may be read half
// written. Changes are noticed by inotify, so not on network file systems that change on
// another machine.
package files

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"outrider.dev/internal/mesh"
)

// Options of a watch. The zero value of a field means its default.
type Options struct {
	Config mesh.Config
	Log    *slog.Logger  // default: none
	Quiet  time.Duration // without a change before files are read (debounce); default 20ms
	AtMost time.Duration // from the first change until files are read; default 200ms
}

func (o Options) complete() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Quiet == 0 {
		o.Quiet = 20 * time.Millisecond
	}
	if o.AtMost == 0 {
		o.AtMost = 200 * time.Millisecond
	}
	return o
}

// Load reads a folder once. The error is about the folder itself.
func Load(dir string, config mesh.Config) (*mesh.Mesh, []Problem, error) {
	l, err := walk(dir, nil)
	if err != nil {
		return nil, nil, err
	}
	f := newFolder(dir, config)
	f.apply(l)
	return f.builder.Mesh(), f.problems(), nil
}

// A Source publishes the mesh of a folder.
type Source struct {
	mesh.Feed[Problem]

	done chan struct{}
}

// Done is closed when the watch has ended, after the end of the context.
func (s *Source) Done() <-chan struct{} { return s.done }

// Watch reads a folder, and then its changes until ctx ends. Problems of manifests are not
// an error.
func Watch(ctx context.Context, dir string, o Options) (*Source, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Source{done: make(chan struct{})}
	w, err := newWatch(root, o.complete(), s)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		w.run(ctx)
	}()
	return s, nil
}
