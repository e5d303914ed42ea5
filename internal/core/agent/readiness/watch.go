package readiness

import (
	"context"
	"fmt"
	"time"
)

// A ready Envoy is polled each every. One that has not answered for silence hangs, if its main
// thread has not run either; until it answers, it is polled each retry.
const (
	every   = 2 * time.Second
	retry   = time.Second
	silence = 3 * time.Second

	// starvation is how long a main thread that runs may answer nothing: the workers serve
	// beside it. One that never comes to an answer loops. The kubelet takes a node that is silent
	// for longer (40 s) for lost.
	starvation = 30 * time.Second
)

// watch polls a ready Envoy until ctx ends. One that hangs still has its process and its
// listeners; only requests show it. That it is slow once, with a large change of its
// configuration, does not take it out of service, nor does a node without processor time.
func (p *Proxy) watch(ctx context.Context) {
	pause := every
	var since time.Time // of the first request without an answer
	var ran time.Duration
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		sent := time.Now()
		live, state, err := p.o.Admin.Ready(ctx)
		if err == nil {
			since, pause = time.Time{}, every
			problem := ""
			if !live {
				problem = "Envoy says " + short(state)
			}
			p.set(ctx, problem)
			p.o.Answered(ctx)
			continue
		}
		if since.IsZero() {
			since = sent
		}
		before := ran
		now, awake := p.o.Progress()
		ran = now
		pause = max(0, retry-time.Since(sent))
		switch silent := time.Since(since); {
		case silent >= starvation:
			pause = every
			p.set(ctx, fmt.Sprintf("Envoy runs, and its admin interface has not answered for %s: it was stopped, hangs or gets no processor time", starvation))
		case silent >= silence && !awake && now == before:
			pause = every
			p.set(ctx, fmt.Sprintf("Envoy runs, and its admin interface has not answered for %s: it was stopped, or hangs", silence))
		}
	}
}

// set sets Envoy's condition, unless Envoy has ended: that is final.
func (p *Proxy) set(ctx context.Context, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil {
		p.o.Board.Set(Envoy, problem == "", problem)
	}
}
