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
	onChange func() // called after each look at the states

	mu      sync.Mutex
	seen    []state.Seen
	changed chan struct{} // closed when seen has changed
}

// newApps returns nil if no gate can publish anything, because there is no shared volume or
// the applications are unknown.
func (a *agent) newApps() *apps {
	defer close(a.health.looked)
	names := slices.Clone(a.config.Stop.Apps)
	for _, name := range a.health.probes.Gated() { // containers with a gate that the settings may not name
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

// follow reads the states whenever a gate has published something or died, until ctx ends.
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
		if one, err := s.watch.See(name); err == nil { // after an error nothing is known of the container
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

// of returns what is known of a container. If s is nil (there are no gates), nothing is known.
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

// await waits until the given condition holds for every application, and returns true. It returns false if ctx
// ends first. No condition holds for an application that has published nothing: it may run without a gate.
func (s *apps) await(ctx context.Context, is func(state.Seen) bool) bool {
	return s.until(ctx, func(seen []state.Seen) bool {
		return !slices.ContainsFunc(seen, func(one state.Seen) bool { return !one.Known || !is(one) })
	})
}

// until returns true once the states satisfy wanted, and false if ctx ends first.
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
