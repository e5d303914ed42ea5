package proxy

import (
	"context"
	"runtime/debug"

	"outrider.dev/internal/core/agent/readiness"
)

// announce logs when the proxy gets ready, and when it is no longer: what a person looks
// for first. at is the moment itself, which a line in a log may be late for.
func (a *agent) announce(ctx context.Context) {
	ready, started := false, false
	for s := range a.board.Subscribe(ctx, readiness.Outbound) {
		switch {
		case s.Ready && !ready:
			a.log.Info("ready", "at", s.Since)
			if !started {
				started = true
				debug.FreeOSMemory() // what the start took: it is half of the heap, and an idle agent would keep it
			}
		case !s.Ready && ready:
			a.log.Warn("not ready", "at", s.Since, "reason", s.String())
		}
		ready = s.Ready
	}
}
