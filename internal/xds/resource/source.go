package resource

import (
	"sync"
	"time"

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
	// Patience is how long a proxy waits for the control plane where something is used for
	// the first time, before it says that there is no answer. To be set before Current.
	Patience time.Duration

	mesh Mesh

	mu   sync.Mutex
	last *view
}

// DefaultPatience is short: who waits cannot tell a control plane that is slow from one that
// is gone.
const DefaultPatience = time.Second

// New returns a source of views of m, with the default patience.
func New(m Mesh) *Source { return &Source{mesh: m, Patience: DefaultPatience} }

// Current returns a view of the newest snapshot, and the channel that came with it.
func (s *Source) Current() (xds.Snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, newer := s.mesh.Current()
	switch {
	case now == nil:
		return nil, newer
	case s.last == nil:
		s.last = newView(now, s.Patience, nil)
	case s.last.mesh != now:
		s.last = newView(now, s.Patience, s.last)
	}
	return s.last, newer
}
