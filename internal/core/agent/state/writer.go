package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
)

// A Place names a container, the volume with the records of all containers, and the container's directory in
// it.
type Place struct {
	Container string
	Sandbox   string // default: [Sandbox]
	States    string // the volume, read-only
	Own       string // the container's directory in it
}

// complete fills in the defaults.
func (p Place) complete() (Place, error) {
	if p.States == "" {
		p.States = contract.StatesDir
	}
	if p.Own == "" {
		p.Own = contract.OwnDir
	}
	var err error
	if p.Sandbox == "" {
		p.Sandbox, err = Sandbox()
	}
	if p.Container == "" {
		err = errors.Join(err, errors.New("a container without a name has no state"))
	}
	return p, err
}

// A Writer publishes the state of one container. Its methods may be called by several
// goroutines.
type Writer struct {
	place Place
	mu    sync.Mutex
	last  Record
	file  *os.File // file of last, locked; nil if last could not be published
}

// ErrAlive: a living process already publishes the state of this container.
var ErrAlive = errors.New("the state of this container is another process's, which lives")

// Open publishes first as the container's record. It keeps two facts of an earlier record of
// the same sandbox: how often the command started, and whether it completed.
func Open(p Place, first Record) (*Writer, error) {
	p, err := p.complete()
	if err != nil {
		return nil, err
	}
	w := &Writer{place: p}
	before, f, err := readFile(filepath.Join(p.Own, recordFile))
	if f != nil {
		f.Close()
	}
	if before.Alive {
		return nil, fmt.Errorf("%s: %w", p.Own, ErrAlive)
	}
	if err == nil && before.Sandbox == p.Sandbox && before.Container == p.Container {
		first.Starts, first.Completed = before.Starts, before.Completed
	}
	if err := w.Update(func(r *Record) { *r = first }); err != nil {
		return nil, err
	}
	return w, nil
}

// Place returns the writer's place, with the defaults filled in.
func (w *Writer) Place() Place { return w.place }

// Record returns the latest record, even if it could not be published.
func (w *Writer) Record() Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// Update applies change to the record. If that makes the record different, Update publishes it and
// rings all bells. After an error the writer counts as dead until a later call succeeds.
func (w *Writer) Update(change func(*Record)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.last
	r.After, r.Waited = slices.Clone(r.After), slices.Clone(r.Waited)
	change(&r)
	r.Container, r.Sandbox, r.Version = w.place.Container, w.place.Sandbox, version
	if r.Since.IsZero() || r.Phase != w.last.Phase {
		r.Since = now()
	}
	if r.Stopping && r.StopBegan.IsZero() {
		r.StopBegan = now()
	}
	if w.file != nil && reflect.DeepEqual(r, w.last) {
		return nil
	}
	f, err := w.replace(r)
	if w.file != nil {
		w.file.Close() // only after the new record is in its place: see readFile
	}
	w.file, w.last = f, r
	if err != nil {
		return fmt.Errorf("publishing the state of %s: %w", w.place.Container, err)
	}
	ring(w.place.States)
	return nil
}

// replace renames a new file with the record over the previous one, and returns it open and
// locked.
func (w *Writer) replace(r Record) (*os.File, error) {
	b, err := r.encode()
	if err != nil {
		return nil, err
	}
	fresh := filepath.Join(w.place.Own, ".state")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(fresh, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	// Containers of a pod may have different users, and a umask would restrict the readers.
	if err = f.Chmod(0o644); err == nil {
		_, err = f.Write(b)
	}
	if err == nil {
		err = lock(f)
	}
	if err == nil {
		err = os.Rename(fresh, filepath.Join(w.place.Own, recordFile))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close unlocks the record: from now on its writer counts as dead.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	ring(w.place.States)
	return err
}
