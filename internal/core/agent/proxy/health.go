package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/agent/status"
)

// health finds out whether the pod's applications are healthy, for the readiness level full. A
// container is healthy if its gate reports it, or if its readiness probe (without one, its
// startup probe) succeeds. A container with neither a gate nor a probe is not known to be
// healthy; then the level is not reached, and the reason names the container.
//
// If there is no readiness probe, the startup probe counts even if the gate runs it.
//
// A gate publishes each change. The agent probes a container while a client waits. It also does so when a probe
// of the kubelet, which passes through the agent, had another result than the last one that the agent knows. So
// the result in the metrics is never older than the probe's own period.
type health struct {
	names   []string // the applications' containers
	probes  status.Probes
	gates   atomic.Pointer[apps]
	looked  chan struct{} // closed when the value of gates is final
	inquiry *readiness.Inquiry

	mu    sync.Mutex
	known map[string]bool // by container: the result of its probe
}

func newHealth(b *readiness.Board, names []string, probes status.Probes) *health {
	h := &health{probes: probes, looked: make(chan struct{}), known: map[string]bool{}}
	h.probes.Started, h.probes.Held = h.started, func(name string) bool { return h.gates.Load().of(name).Held() }
	h.names = append(slices.Clone(names), probes.Containers()...)
	slices.Sort(h.names)
	h.names = slices.Compact(h.names)
	h.inquiry = readiness.NewInquiry(b, readiness.App, h.check)
	// The result of another client's request is not used directly, because the headers of that request can
	// differ from those of the probe. It only causes a probe of our own.
	h.probes.Made = func(container string, err error) {
		h.mu.Lock()
		healthy, ok := h.known[container]
		h.mu.Unlock()
		if !ok || healthy != (err == nil) {
			h.inquiry.Again()
		}
	}
	return h
}

// started waits until the command behind a container's gate has started up. It returns at once
// if the gates' states cannot be read, as no event would ever end the wait.
func (h *health) started(ctx context.Context, name string) error {
	select {
	case <-h.looked:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s := h.gates.Load()
	if s == nil {
		return nil
	}
	i := slices.Index(s.names, name)
	if i >= 0 && !s.until(ctx, func(seen []state.Seen) bool { return seen[i].Started() }) {
		return errors.New("the command behind its gate has not started up")
	}
	return nil
}

// check is the readiness.Check for the condition App. Each probe has its own timeout.
func (h *health) check(ctx context.Context) (note string, err error) {
	if len(h.names) == 0 {
		return "", errors.New("not known: neither ISTIO_META_APP_CONTAINERS nor ISTIO_KUBE_APP_PROBERS names an application")
	}
	problems := make([]string, len(h.names))
	var tasks sync.WaitGroup
	for i, name := range h.names {
		tasks.Go(func() { problems[i] = h.problem(ctx, name) })
	}
	tasks.Wait()
	problems = slices.DeleteFunc(problems, func(s string) bool { return s == "" })
	if len(problems) > 0 {
		return "", errors.New(strings.Join(problems, "; "))
	}
	return "", nil
}

// problem returns the reason why a container is not known to be healthy; empty if it is healthy.
func (h *health) problem(ctx context.Context, name string) string {
	gate := h.gates.Load().of(name)
	if gate.Status().Healthy {
		return ""
	}
	if slices.Contains(h.probes.Containers(), name) {
		err := h.probes.Probe(ctx, name)
		h.mu.Lock()
		h.known[name] = err == nil
		h.mu.Unlock()
		if err != nil {
			return fmt.Sprintf("%s: its probe failed: %v", name, err)
		}
		return ""
	}
	switch {
	case gate.Runs() && gate.StartedUp:
		return ""
	case gate.Runs():
		return name + ": its gate does not report that it is healthy"
	case gate.Known:
		return name + ": its command does not run"
	}
	return name + ": not known: it has no readiness or startup probe that the agent can make, and no gate reports it"
}
