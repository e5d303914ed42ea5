package proxy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"outrider.dev/internal/core/agent/envoy"
)

// The kubelet replaces a container whose image was changed in the running pod, and no other: it
// stops it as if the pod stopped, and starts it anew. Waiting for the applications' end would then
// last until the grace period is over. So who changes the image announces it (POST /replace), and
// at the SIGTERM that follows the proxy
//
//  1. serves for terminationDrainDuration, and has clients give their connections up;
//  2. takes no new inbound connections: the kernel parks them until the next proxy listens
//     (docs/capture.md). The applications' own calls are served until the inbound requests are
//     answered, which may need them;
//  3. takes no new outbound connections either, until the outbound requests are answered;
//  4. leaves when all bytes are passed on.
//
// Callers wait from 2 on. So a request that is in flight for another terminationDrainDuration
// without any other being answered is taken for a stream, and cut. So is a connection of bytes: no
// process can take it over.

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
	directions := []direction{{"inbound", a.config.Ports.Inbound}, {"outbound", a.config.Ports.Outbound}}
	requests := 0
	for _, d := range directions {
		if interception(a.config) != none {
			a.standbys.leave(d.port)
		}
		a.log.Info("new connections are parked until the next proxy listens", "direction", d.name)
		requests += a.awaitAnswered(ctx, d, drain)
	}
	left := a.awaitFlushed(ctx)
	for came := a.came(ctx, directions); requests == 0 && came; came = a.came(ctx, directions) {
		for _, d := range directions {
			requests += a.awaitAnswered(ctx, d, drain)
		}
		left = a.awaitFlushed(ctx)
	}
	connections, _ := a.active(ctx) // an Envoy that does not answer has none to count
	outcome := fmt.Sprintf("requests cut: %d, bytes not passed on: %d, connections cut: %d", requests, left, connections)
	end(outcome, requests > 0 || left > 0)
	a.log.Info("drained", "reason", "this container is replaced", "took", time.Since(begin).String(), "outcome", outcome)
}

// answeredPoll is between two looks at Envoy's counts, for which there is no event.
const answeredPoll = 20 * time.Millisecond

// A direction is one of connections: of callers to the applications, or of these to others.
type direction struct {
	name string // of inbound requests it is the prefix in Envoy's stats too
	port uint16
}

// givenUp is how long to wait for idle connections, on which a client may send its next request
// just when they are cut. Clients that send one during the drain have given them up before.
const givenUp = time.Second

// awaitAnswered returns when no request of a direction is in flight and no connection on which the
// next may be sent, or for patience none was answered. It returns how many are in flight then.
func (a *agent) awaitAnswered(ctx context.Context, d direction, patience time.Duration) (requests int) {
	begin := time.Now()
	for last := begin; ; {
		before := requests
		n, connections, err := a.http(ctx, d)
		requests = n
		switch now := time.Now(); {
		case err != nil: // Envoy is dead, or ctx has ended
			return before
		case requests == 0 && (connections == 0 || now.Sub(begin) > givenUp):
			return 0
		case requests != before:
			last = now
		case now.Sub(last) > patience:
			return requests
		}
		select {
		case <-time.After(answeredPoll):
		case <-ctx.Done():
			return requests
		}
	}
}

// came reports whether a request has come since its direction was found without any: on a connection
// that was idle then, or whose bytes were in no count of Envoy's yet.
func (a *agent) came(ctx context.Context, directions []direction) bool {
	for _, d := range directions {
		if requests, _, err := a.http(ctx, d); err == nil && requests > 0 {
			return true
		}
	}
	return false
}

// http counts Envoy's requests in flight and its connections of HTTP in a direction.
func (a *agent) http(ctx context.Context, d direction) (requests, connections int, err error) {
	stats, err := a.admin.Stats(ctx, `^(http\..*\.downstream_(rq|cx)_active|listener\..*\.downstream_pre_cx_active)$`)
	requests, connections = d.count(stats)
	return requests, connections, err
}

// count does it with Envoy's counts. A connection that Envoy has accepted, and of which it does not know
// yet whether it is one of HTTP, counts as a request; one that has been silent for so long that it waits
// in an internal listener may get its first request, as an idle one its next.
func (d direction) count(stats map[string]uint64) (requests, connections int) {
	for name, n := range stats { // any order: sums
		switch {
		case strings.HasPrefix(name, "listener.envoy_internal_"):
			connections += int(n)
		case strings.HasPrefix(name, "listener."):
			if strings.HasSuffix(name, fmt.Sprintf("_%d.downstream_pre_cx_active", d.port)) {
				requests += int(n)
			}
		case strings.HasPrefix(name, "http.admin."), strings.HasPrefix(name, "http.stats."): // not of applications
		case strings.HasPrefix(name, "http.inbound.") != (d.name == "inbound"):
		case strings.HasSuffix(name, "_rq_active"):
			requests += int(n)
		default:
			connections += int(n)
		}
	}
	return requests, connections
}
