package mesh

import (
	"context"
	"slices"
	"time"

	"outrider.dev/internal/base/latest"
)

// A Feed publishes the latest mesh of a source, and the problems of the source's objects. The zero value has
// no mesh. There must be only one publisher.
type Feed struct {
	mesh     latest.Value[*Mesh]
	problems latest.Value[[]string]
}

// Current returns the latest mesh, and a channel that is closed when there is a newer one.
func (f *Feed) Current() (*Mesh, <-chan struct{}) { return f.mesh.Get() }

// Problems returns the current problems, and a channel that is closed when they change. The problems can
// change although the mesh does not. They are at least as new as a mesh that Current returned before.
func (f *Feed) Problems() ([]string, <-chan struct{}) { return f.problems.Get() }

// Publish sets the problems and the mesh, and closes the channels of what has changed.
func (f *Feed) Publish(m *Mesh, problems []string) {
	if was, _ := f.problems.Get(); !slices.Equal(was, problems) {
		f.problems.Set(problems)
	}
	if was, _ := f.mesh.Get(); was != m {
		f.mesh.Set(m)
	}
}

// Debounce times of [Settle].
const (
	settleQuiet = 20 * time.Millisecond
	settleMost  = 200 * time.Millisecond
)

// Settle waits for a value from dirty, which receives one after each change. Then it waits until there is no
// other value for 20 ms, but at most 200 ms (debounce). It returns false if ctx ends.
func Settle(ctx context.Context, dirty <-chan struct{}) bool {
	if !latest.Wait(ctx, dirty) {
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
