package resource

import (
	"sync"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// A Mesh provides the newest state of the mesh, or nil, and a channel that is closed when there is a
// newer one.
type Mesh interface {
	Current() (*mesh.Mesh, <-chan struct{})
}

// A Source makes an xDS snapshot from each state of a mesh. A resource is built when the first proxy
// subscribes to it, and cached until its object changes, so that the change of one endpoint only costs
// the resources of one service.
type Source struct {
	// FirstUseTimeout limits how long a proxy waits for the control plane when it uses a destination
	// for the first time. It must be set before Current is called.
	FirstUseTimeout time.Duration

	mesh Mesh

	mu   sync.Mutex
	last *snapshot
}

// New returns a source of snapshots of m, with the default timeout.
func New(m Mesh) *Source { return &Source{mesh: m, FirstUseTimeout: contract.DefaultFirstUse} }

// Current returns a snapshot of the newest state, and a channel that is closed when there is a newer
// one.
func (s *Source) Current() (xds.Snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, newer := s.mesh.Current()
	switch {
	case now == nil:
		return nil, newer
	case s.last == nil:
		s.last = newSnapshot(now, s.FirstUseTimeout, nil)
	case s.last.mesh != now:
		s.last = newSnapshot(now, s.FirstUseTimeout, s.last)
	}
	return s.last, newer
}
