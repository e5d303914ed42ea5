package resource

import (
	"sync"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/xds"
)

// A Mesh is where snapshots come from: the newest, or nil, and a channel that is closed
// when there is a newer one.
type Mesh interface {
	Current() (*mesh.Mesh, <-chan struct{})
}

// A Source makes a view of each snapshot of a mesh. Nothing is built before a proxy asks
// for it, and what was built for an object is kept for as long as the object is in the
// mesh: so the change of one endpoint costs one service.
type Source struct {
	mesh Mesh

	mu   sync.Mutex
	last *view
}

// New returns a source of views of m.
func New(m Mesh) *Source { return &Source{mesh: m} }

// Current returns a view of the newest snapshot, and the channel that came with it.
func (s *Source) Current() (xds.View, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, newer := s.mesh.Current()
	switch {
	case now == nil:
		return nil, newer
	case s.last == nil:
		s.last = newView(now, nil)
	case s.last.mesh != now:
		s.last = newView(now, s.last)
	}
	return s.last, newer
}
