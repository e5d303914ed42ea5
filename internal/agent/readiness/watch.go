package readiness

import (
	"context"
	"fmt"
	"time"
)

// retry is how often an Envoy that does not answer is polled.
const retry = time.Second

// watch looks after a ready Envoy, until ctx ends. One that hangs has a process still, and
// listens; only questions tell. It is asked when its main thread does not run as it should,
// and seldom otherwise. That it is slow once, with a large change of its configuration, is
// no reason to take it out of service.
func (p *Proxy) watch(ctx context.Context, pid int) {
	pulse := openPulse("/proc", pid)
	defer pulse.Close()
	pause, answered := p.o.Every, time.Now()
	var since time.Time // when it began to be silent
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		well, still := pulse.look()
		if well && since.IsZero() && time.Since(answered) < p.o.Seldom {
			continue
		}
		sent := time.Now()
		live, state, err := p.o.Admin.Ready(ctx)
		switch {
		case err == nil:
			since, answered, pause = time.Time{}, sent, p.o.Every
			problem := ""
			if !live {
				problem = "Envoy says " + short(state)
			}
			p.tell(ctx, problem)
			continue
		case !since.IsZero():
		case still.IsZero(): // it may be busy, and answer late
			since = sent
		default:
			since = still
		}
		if pause = max(0, retry-time.Since(sent)); time.Since(since) >= p.o.Silence {
			pause = p.o.Every
			p.tell(ctx, fmt.Sprintf("Envoy runs, and its admin interface has not answered for %s: it was stopped, or hangs", p.o.Silence))
		}
	}
}

// tell puts on the board how Envoy is, unless it has ended: that is the last word on it.
func (p *Proxy) tell(ctx context.Context, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil {
		p.o.Board.Set(Envoy, problem == "", problem)
	}
}
