package state

import (
	"net"
	"os"
	"sync"
)

// A Watch is a source of events: a record was published, or its writer died.
type Watch struct {
	// C gets a value after a record was published, or after the death of a writer whose
	// record See read. One value may stand for several events.
	C <-chan struct{}

	place Place
	bell  *net.UnixConn
	look  chan struct{}

	mu      sync.Mutex
	awaited map[string]os.FileInfo // by container: the record whose end is awaited
}

// NewWatch returns a watch of the records that are published from now on. To miss nothing,
// read the records after NewWatch and before waiting.
func NewWatch(p Place) (*Watch, error) {
	p, err := p.complete()
	if err != nil {
		return nil, err
	}
	bell, err := listenBell(p.Own)
	if err != nil {
		return nil, err
	}
	look := make(chan struct{}, 1)
	w := &Watch{C: look, place: p, bell: bell, look: look, awaited: map[string]os.FileInfo{}}
	go w.listen()
	return w, nil
}

func (w *Watch) listen() {
	var b [16]byte
	for {
		if _, err := w.bell.Read(b[:]); err != nil {
			return // closed
		}
		w.notify()
	}
}

func (w *Watch) notify() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// Read calls the package's Read for a container of this pod.
func (w *Watch) Read(container string) (Seen, error) {
	return Read(w.place.States, w.place.Sandbox, container)
}

// See is Read, but C also gets a value when the writer dies. It blocks a thread until the
// writer dies or publishes again.
func (w *Watch) See(container string) (Seen, error) {
	s, f, err := read(w.place.States, w.place.Sandbox, container)
	if f == nil {
		return s, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return s, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.awaited[container]; ok && os.SameFile(old, info) {
		f.Close()
		return s, nil
	}
	w.awaited[container] = info
	go w.awaitEnd(container, f, info)
	return s, nil
}

func (w *Watch) awaitEnd(container string, f *os.File, info os.FileInfo) {
	_ = awaitUnlocked(f) // an error only ends the wait too early
	w.mu.Lock()
	// f is closed only afterwards: while it is open, no other file gets its inode number.
	if w.awaited[container] == info {
		delete(w.awaited, container)
	}
	w.mu.Unlock()
	f.Close()
	w.notify()
}

// Close ends the watch: C gets no more values for published records.
func (w *Watch) Close() error { return w.bell.Close() }
