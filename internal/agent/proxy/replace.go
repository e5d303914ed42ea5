package proxy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"outrider.dev/internal/agent/envoy"
)

// The kubelet replaces a container whose image was changed in the running pod, and no other: it
// stops it as if the pod stopped, and starts it anew. Waiting for the applications' end would then
// last until the grace period is over. So who changes the image announces it (POST /replace), and
// at the SIGTERM that follows the proxy
//
//  1. serves for terminationDrainDuration, and has clients give their connections up;
//  2. takes no new connections of either direction: the kernel parks them until the next proxy
//     listens (docs/capture.md);
//  3. leaves when no request is in flight and all bytes are passed on.
//
// A connection of bytes that is idle then is cut: no process can take it over.

// announcementLasts is how long after the announcement a SIGTERM means a replacement. The kubelet
// follows its pods by a watch, and needs less than a second unless the node is overloaded.
const announcementLasts = time.Minute

func (l *leaving) announceReplacement() {
	now := time.Now()
	l.announced.Store(&now)
}

// replaced reports whether only this container stops, and not the pod.
func (l *leaving) replaced() bool {
	at := l.announced.Load()
	return at != nil && time.Since(*at) < announcementLasts
}

// discourage has Envoy add "connection: close" to responses (HTTP/2: GOAWAY): of callers, and of
// the applications too where they have to connect to the next Envoy.
func (a *agent) discourage(ctx context.Context) error {
	if a.leaving.replaced() {
		return a.admin.Drain(ctx, envoy.Discourage)
	}
	return a.admin.Drain(ctx, envoy.DiscourageInbound)
}

// awaitReplaceable returns when this proxy can be replaced, or when ctx ends.
func (a *agent) awaitReplaceable(ctx context.Context) {
	begin, drain := time.Now(), a.stopOptions().Drain
	end := a.journal.Begin("draining", "this container is replaced, the pod stays")
	if a.leaving.served.Load() {
		select {
		case <-time.After(drain):
		case <-ctx.Done():
		}
	}
	if interception(a.config) != none {
		a.standbys.leave(a.config.Ports.Inbound)
		a.standbys.leave(a.config.Ports.Outbound)
	}
	a.log.Info("new connections are parked until the next proxy listens")
	requests := a.awaitAnswered(ctx, drain)
	left := a.awaitFlushed(ctx)
	connections, _ := a.active(ctx) // an Envoy that does not answer has none to count
	outcome := fmt.Sprintf("requests cut: %d, bytes not passed on: %d, connections cut: %d", requests, left, connections)
	end(outcome, requests > 0 || left > 0)
	a.log.Info("drained", "reason", "this container is replaced", "took", time.Since(begin).String(), "outcome", outcome)
}

// answeredPoll is between two looks at Envoy's counts, for which there is no event.
const answeredPoll = 20 * time.Millisecond

// awaitAnswered returns when no request is in flight and clients have given up the connections on
// which they may send the next one. A client that sends none keeps its connection: for those it
// waits as long as idle says. It returns how many requests are in flight if ctx ends before.
func (a *agent) awaitAnswered(ctx context.Context, idle time.Duration) int {
	until := time.After(idle)
	over := false
	for {
		requests, connections, err := a.http(ctx)
		if err != nil || requests == 0 && (connections == 0 || over) {
			return requests // with an error Envoy is dead, or ctx has ended
		}
		select {
		case <-time.After(answeredPoll):
		case <-until:
			over = true
		case <-ctx.Done():
			return requests
		}
	}
}

// http counts Envoy's requests in flight and its connections of HTTP.
func (a *agent) http(ctx context.Context) (requests, connections int, err error) {
	stats, err := a.admin.Stats(ctx, `^http\..*\.downstream_(rq|cx)_active$`)
	for name, n := range stats { // any order: sums
		switch {
		case strings.HasPrefix(name, "http.admin."), strings.HasPrefix(name, "http.stats."): // not of applications
		case strings.HasSuffix(name, "_rq_active"):
			requests += int(n)
		default:
			connections += int(n)
		}
	}
	return requests, connections, err
}
