package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/relay"
)

// When the image of a container is changed in a running pod, the kubelet replaces only this container: it stops
// the container as if the pod stopped, and starts it anew. The applications do not end then, so waiting for
// their end would use up the grace period. Therefore a change of the image is announced before (POST /replace),
// and at the SIGTERM that follows, the proxy
//
//  1. goes on serving for terminationDrainDuration, and asks clients to close their connections;
//  2. accepts no new inbound connections: the kernel parks them until the next proxy listens
//     (docs/capture.md). The applications' own calls are served until the inbound requests are
//     answered, since these may depend on such calls;
//  3. accepts no new outbound connections either, and waits until the outbound requests are
//     answered;
//  4. ends when all bytes are passed on.
//
// New callers wait from step 2 on. So if no request is answered for another
// terminationDrainDuration, those in flight are taken for streams, and cut. Plain TCP connections
// are cut too: no other process can take them over.

// announcementLasts is the time after the announcement within which a SIGTERM means a replacement.
// The kubelet watches its pods, and acts within a second unless the node is overloaded.
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

// discourage makes Envoy add "connection: close" to responses (HTTP/2: GOAWAY). It covers inbound
// connections and, if this container is replaced, also outbound ones: then the applications have to
// connect to the next Envoy.
func (a *agent) discourage(ctx context.Context) error {
	if a.leaving.replaced() {
		a.holdListeners(ctx, relay.HoldAll)
		return a.admin.Drain(ctx, envoy.Discourage)
	}
	a.leaving.begin()
	a.holdListeners(ctx, relay.HoldInbound)
	return a.admin.Drain(ctx, envoy.DiscourageInbound)
}

// warmTime limits holdListeners. A listener waits for its routes before it serves, usually for some milliseconds,
// and forever without a control plane.
const warmTime = 500 * time.Millisecond

// holdListeners keeps Envoy's listeners as they are, since a drain reaches only those that exist. It waits for
// those that Envoy has got and that do not serve yet.
func (a *agent) holdListeners(ctx context.Context, h relay.Hold) {
	limit, cancel := context.WithTimeout(ctx, warmTime)
	defer cancel()
	a.relay.HoldListeners(limit, h)
	a.awaitWarm(limit)
}

// awaitWarm returns when each listener that Envoy has got serves, or when ctx ends.
func (a *agent) awaitWarm(ctx context.Context) {
	await(ctx, answeredPoll, func() bool {
		stats, err := a.admin.Stats(ctx, `^listener_manager\.total_listeners_warming$`)
		return err != nil || stats["listener_manager.total_listeners_warming"] == 0
	})
}

// await returns when done returns true, or when ctx ends. It calls done again and again, after a pause: there is no event
// for what done looks at.
func await(ctx context.Context, pause time.Duration, done func() bool) {
	for ctx.Err() == nil && !done() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
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
	directions := []direction{{name: "inbound", port: a.config.Ports.Inbound}, {name: "outbound", port: a.config.Ports.Outbound}}
	requests := 0
	for i := range directions {
		d := &directions[i]
		if interception(a.config) != none {
			a.standbys.leave(d.port)
		}
		a.log.Info("new connections are parked until the next proxy listens", "direction", d.name)
		requests += a.awaitAnswered(ctx, d, drain)
	}
	left := a.awaitFlushed(ctx)
	for came := a.came(ctx, directions); requests == 0 && came; came = a.came(ctx, directions) {
		for i := range directions {
			requests += a.awaitAnswered(ctx, &directions[i], drain)
		}
		left = a.awaitFlushed(ctx)
	}
	connections, _ := a.active(ctx) // 0 if Envoy does not answer
	outcome := fmt.Sprintf("requests cut: %d, bytes not passed on: %d, connections cut: %d", requests, left, connections)
	end(outcome, requests > 0 || left > 0)
	a.log.Info("drained", "reason", "this container is replaced", "took", time.Since(begin).String(), "outcome", outcome)
}

// answeredPoll is the pause between two looks at Envoy's counters, for which there is no event.
const answeredPoll = 20 * time.Millisecond

// A direction is inbound (callers to the applications) or outbound (the applications to others).
type direction struct {
	name string // "inbound" is also a prefix in Envoy's stats
	port uint16

	idle int // connections that awaitAnswered has waited for in vain
}

// givenUp is the maximum wait for clients to close their idle connections. The wait is useful because a client
// may send its next request just when its connection is cut. Clients that sent a request during the drain have
// closed their connections already.
const givenUp = time.Second

// awaitAnswered waits until a direction has no request in flight and no connection on which the next request
// may come. It gives up when no request was answered for as long as patience. It returns the number of requests
// that are still in flight.
func (a *agent) awaitAnswered(ctx context.Context, d *direction, patience time.Duration) (requests int) {
	begin := time.Now()
	for last := begin; ; {
		before := requests
		n, connections, err := a.http(ctx, *d)
		requests, d.idle = n, connections
		switch now := time.Now(); {
		case err != nil && a.gone(ctx):
			return before
		case err != nil: // it is busy, and may have any number of requests in flight
			if requests = before; now.Sub(last) > patience {
				return max(before, 1)
			}
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

// came reports whether a request may have come after awaitAnswered found none: on a connection that was
// idle then, or on one that Envoy had accepted and that no counter of Envoy's included yet. The first request on
// the latter may still come.
func (a *agent) came(ctx context.Context, directions []direction) bool {
	for _, d := range directions {
		requests, connections, err := a.http(ctx, d)
		if requests > 0 || connections > d.idle || err != nil && !a.gone(ctx) {
			return true
		}
	}
	return false
}

// gone reports whether no Envoy runs or ctx has ended. While it returns false, an error of Envoy's admin interface
// means that Envoy is busy, for example because other processes have the processor, and says nothing of its requests.
func (a *agent) gone(ctx context.Context) bool { return ctx.Err() != nil || a.super.PID() == 0 }

// stats returns Envoy's counters that match a filter, for a caller that asks again after an error. It logs that Envoy is
// busy.
func (a *agent) stats(ctx context.Context, filter string) (map[string]uint64, error) {
	stats, err := a.admin.Stats(ctx, filter)
	if err != nil && !a.gone(ctx) {
		a.log.Warn("Envoy has not answered, and is asked again", "error", err)
	}
	return stats, err
}

// http counts Envoy's requests in flight and its HTTP connections in a direction.
func (a *agent) http(ctx context.Context, d direction) (requests, connections int, err error) {
	stats, err := a.stats(ctx, `^(http\..*\.downstream_(rq|cx)_active|listener\..*\.downstream_pre_cx_active)$`)
	requests, connections = d.count(a.config.Ports, stats)
	return requests, connections, err
}

// count evaluates Envoy's stats for [agent.http]. A connection whose protocol Envoy has not detected yet
// counts as a request. A connection that stayed silent and now waits in an internal listener counts as an idle
// connection: its first request may still come.
func (d direction) count(p config.Ports, stats map[string]uint64) (requests, connections int) {
	for name, n := range stats { // the order does not matter for sums
		isInbound := strings.HasPrefix(name, "http.inbound.") || isListener(name, p.Inbound, p.RelayInbound)
		switch {
		case strings.HasPrefix(name, "listener.envoy_internal_"):
			connections += int(n)
		case strings.HasPrefix(name, "http.admin."), strings.HasPrefix(name, "http.stats."), isOwn(name, p): // not connections of applications
		case isInbound != (d.name == "inbound"):
		// Envoy detects the protocol of an outbound connection in the listener of its destination, whichever that is.
		case strings.HasPrefix(name, "listener."):
			requests += int(n)
		case strings.HasSuffix(name, "_rq_active"):
			requests += int(n)
		default:
			connections += int(n)
		}
	}
	return requests, connections
}

// isOwn reports whether a name in Envoy's stats is of a listener that serves no application: that of the admin interface, or
// that of the metrics.
func isOwn(name string, p config.Ports) bool {
	return strings.HasPrefix(name, "listener.admin.") || isListener(name, p.Prometheus)
}

// isListener reports whether a name in Envoy's stats is of a listener on one of the ports.
func isListener(name string, ports ...uint16) bool {
	return strings.HasPrefix(name, "listener.") &&
		slices.ContainsFunc(ports, func(port uint16) bool { return strings.Contains(name, fmt.Sprintf("_%d.", port)) })
}
