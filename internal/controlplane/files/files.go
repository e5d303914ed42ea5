// Package files makes a mesh of a folder of Kubernetes manifests, and follows it.
//
// Everything that ends in .yaml, .yml or .json is read, in subfolders too; names that
// begin with a dot are not. Kinds without a meaning for a mesh are ignored.
//
// A file counts as a whole. One that is wrong anywhere is not used, is reported as a
// [Problem], and what it said before stays: a mistake while a file is edited takes
// nothing out of a running mesh. An object in two files is a problem of the second, by
// path; the first counts.
//
// A file should be replaced by a rename: one that is written in place may be read half.
// Changes are noticed by inotify, not by asking; so not on file systems that change from
// elsewhere, as network file systems do.
package files

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"outrider.dev/internal/mesh"
)

// Options of a watch. The zero value of a field means its default.
type Options struct {
	Config mesh.Config
	Log    *slog.Logger  // default: none
	Quiet  time.Duration // without a change before a change is looked at; default 20ms
	AtMost time.Duration // that changes wait for quiet; default 200ms
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
	f.look(l)
	return f.builder.Mesh(), f.problems(), nil
}

// A Source has the mesh of a folder as it is now.
type Source struct {
	done chan struct{}

	mu       sync.Mutex
	mesh     latest[*mesh.Mesh]
	problems latest[[]Problem]
}

// latest is a value, and a channel that is closed when there is a newer one.
type latest[T any] struct {
	value T
	newer chan struct{}
}

func (l *latest[T]) set(v T) {
	if l.newer != nil {
		close(l.newer)
	}
	l.value, l.newer = v, make(chan struct{})
}

// Current returns the newest mesh, and a channel that is closed when there is a newer one.
func (s *Source) Current() (*mesh.Mesh, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mesh.value, s.mesh.newer
}

// Problems returns what is wrong with the folder now, and a channel that is closed when
// that changes. They may change without the mesh. Who was told of a newer mesh finds the
// problems that go with it.
func (s *Source) Problems() ([]Problem, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems.value, s.problems.newer
}

// Done is closed when nothing is watched any more: after the end of the context.
func (s *Source) Done() <-chan struct{} { return s.done }

func (s *Source) publish(m *mesh.Mesh, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problems.newer == nil || !slices.Equal(problems, s.problems.value) {
		s.problems.set(problems)
	}
	if m != s.mesh.value {
		s.mesh.set(m)
	}
}

// Watch reads a folder, and then what changes in it until ctx ends. Problems of
// manifests are no error of it.
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
