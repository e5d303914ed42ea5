package readiness

import (
	"context"
	"fmt"
	"time"
)

// These times are for a ready Envoy: every is the pause between polls, and retry the pause while Envoy does not
// answer. Envoy counts as hung if it has answered no request during the time silence, and its main thread has
// not run either.
const (
	every   = 2 * time.Second
	retry   = time.Second
	silence = 3 * time.Second

	// starvation is the time for which Envoy may leave requests unanswered while its main thread runs. The
	// workers can serve meanwhile. After this time the main thread is assumed to loop or to get too little
	// processor time. Kubernetes takes a node for lost after a longer silence (40 s).
	starvation = 30 * time.Second
)

// watch polls a ready Envoy until ctx ends. An Envoy that hangs still has its process and its
// listening sockets, so only requests show that it hangs. A large change of configuration or a
// shortage of processor time makes Envoy slow, but does not take it out of service.
func (p *Proxy) watch(ctx context.Context) {
	pause := every
	var since time.Time // time of the first unanswered request
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

// set sets Envoy's condition, unless Envoy has ended.
func (p *Proxy) set(ctx context.Context, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil {
		p.o.Board.Set(Envoy, problem == "", problem)
	}
}
