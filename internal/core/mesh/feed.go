package mesh

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Feed publishes the newest mesh of a source, and the problems of the objects that it is
// made of. The zero value has no mesh.
type Feed struct {
	mu       sync.Mutex
	mesh     latest[*Mesh]
	problems latest[[]string]
}

// latest is a value, and a channel that is closed when it is replaced.
type latest[T any] struct {
	value    T
	replaced chan struct{}
}

func (l *latest[T]) set(v T) {
	if l.replaced != nil {
		close(l.replaced)
	}
	l.value, l.replaced = v, make(chan struct{})
}

// Current returns the newest mesh, and a channel that is closed when there is a newer one.
func (f *Feed) Current() (*Mesh, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mesh.value, f.mesh.replaced
}

// Problems returns the current problems, and a channel that is closed when they change,
// which they may do without the mesh. After a change of the mesh they are those of the new
// mesh.
func (f *Feed) Problems() ([]string, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problems.value, f.problems.replaced
}

// Publish sets both. Readers are notified of what has changed.
func (f *Feed) Publish(m *Mesh, problems []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problems.replaced == nil || !slices.Equal(problems, f.problems.value) {
		f.problems.set(problems)
	}
	if m != f.mesh.value {
		f.mesh.set(m)
	}
}

// Times of [Settle].
const (
	settleQuiet = 20 * time.Millisecond
	settleMost  = 200 * time.Millisecond
)

// Settle waits for a change, and then until there was none for 20 ms, but for 200 ms at most
// (debounce). It returns false if ctx ended. Dirty has a value if something has changed.
func Settle(ctx context.Context, dirty <-chan struct{}) bool {
	select {
	case <-dirty:
	case <-ctx.Done():
		return false
	}
	deadline := time.After(settleMost)
	for {
		select {
		case <-dirty:
		case <-time.After(settleQuiet):
			return true
		case <-deadline:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
