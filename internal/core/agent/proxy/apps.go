package proxy

import (
	"context"
	"slices"
	"sync"

	"outrider.dev/internal/core/agent/state"
)

// apps follows the states that the gates of the pod's applications publish.
type apps struct {
	names    []string
	watch    *state.Watch
	onChange func() // called when a gate published

	mu      sync.Mutex
	seen    []state.Seen
	changed chan struct{} // closed when seen has changed
}

// newApps returns nil where no gate can publish anything: there is no shared volume, or the
// applications are not known.
func (a *agent) newApps() *apps {
	defer close(a.health.looked)
	names := slices.Clone(a.config.Stop.Apps)
	for _, name := range a.health.probes.Gated() { // with a gate, whatever the settings name
		if len(names) > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || !directory(a.config.Own) {
		return nil
	}
	watch, err := state.NewWatch(a.place())
	if err != nil {
		a.problem("watching the gates", err)
		return nil
	}
	s := &apps{names: names, watch: watch, onChange: a.health.inquiry.Again, changed: make(chan struct{})}
	a.health.gates.Store(s)
	s.look()
	return s
}

// follow looks again whenever a gate published something, or died, until ctx ends.
func (s *apps) follow(ctx context.Context) {
	defer s.watch.Close()
	for {
		select {
		case <-s.watch.C:
			s.look()
		case <-ctx.Done():
			return
		}
	}
}

func (s *apps) look() {
	seen := make([]state.Seen, len(s.names))
	for i, name := range s.names {
		if one, err := s.watch.See(name); err == nil { // else: nothing is known of it
			seen[i] = one
		}
	}
	s.mu.Lock()
	s.seen = seen
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	s.onChange()
}

// of is what is known of a container. Without gates, that is nil, it is nothing.
func (s *apps) of(container string) state.Seen {
	if s == nil {
		return state.Seen{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.names, container); i >= 0 && i < len(s.seen) {
		return s.seen[i]
	}
	return state.Seen{}
}

// await returns true once it is so of all applications, and false if ctx ends before. One
// that has published nothing may run without a gate: nothing is known of it.
func (s *apps) await(ctx context.Context, is func(state.Seen) bool) bool {
	return s.until(ctx, func(seen []state.Seen) bool {
		return !slices.ContainsFunc(seen, func(one state.Seen) bool { return !one.Known || !is(one) })
	})
}

// until returns true once the states are as wanted, and false if ctx ends before.
func (s *apps) until(ctx context.Context, wanted func([]state.Seen) bool) bool {
	for {
		s.mu.Lock()
		seen, changed := s.seen, s.changed
		s.mu.Unlock()
		if wanted(seen) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
