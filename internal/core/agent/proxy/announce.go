package proxy

import (
	"context"
	"runtime/debug"

	"outrider.dev/internal/core/agent/readiness"
)

// announce logs when the proxy becomes ready and when it is no longer ready: the first thing
// that a person looks for. The attribute at is the time of the change; the line may be later.
func (a *agent) announce(ctx context.Context) {
	ready, started := false, false
	for s := range a.board.Subscribe(ctx, readiness.Outbound) {
		switch {
		case s.Ready && !ready:
			a.log.Info("ready", "at", s.Since)
			if !started {
				started = true
				debug.FreeOSMemory() // the start's memory is half of the heap, and an idle agent would keep it
			}
		case !s.Ready && ready:
			a.log.Warn("not ready", "at", s.Since, "reason", s.String())
		}
		ready = s.Ready
	}
}
