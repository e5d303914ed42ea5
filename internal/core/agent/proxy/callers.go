package proxy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"outrider.dev/internal/core/agent/state"
)

// An application may close all its connections at SIGTERM. So where the applications have gates, these hold SIGTERM
// back while the proxy ends the calls of its clients: responses have "connection: close" (HTTP/2: GOAWAY), clients
// learn that the endpoint is gone, and requests in flight are answered. The proxy's record says when that is done.

// learned is the minimum time for which the proxy waits for callers: in that time the clients of the mesh learn that
// the pod stops. Until then new ones may come.
const learned = time.Second

// publishCallers keeps the fields of the proxy's record by which gates hold SIGTERM back.
func (a *agent) publishCallers(ctx context.Context, w *state.Writer) {
	select {
	case <-a.leaving.begun:
	case <-ctx.Done():
		return
	}
	err := w.Update(func(r *state.Record) { r.Stopping = true })
	a.problem("publishing that the pod stops", err)
	end := a.journal.Begin("draining inbound", "until no client calls")
	outcome, cut := a.awaitCallers(ctx)
	a.problem("publishing that no client calls", w.Update(func(r *state.Record) { r.Called = false }))
	end(outcome, cut)
	a.log.Info("clients have left", "outcome", outcome)
}

// callersLimit is the maximum time for which the stop of the applications waits for their clients.
func (a *agent) callersLimit() time.Duration {
	s := a.stopOptions()
	return min(s.Drain, s.Grace/2)
}

// awaitCallers returns when no client is connected to the applications, or after [agent.callersLimit]. It returns the
// outcome, and whether requests were still in flight. A connection without requests may carry the next one at any
// time, so it counts; clients of the mesh close it when they learn that the pod stops.
func (a *agent) awaitCallers(ctx context.Context) (outcome string, cut bool) {
	begin, limit := time.Now(), time.After(a.callersLimit())
	for {
		requests, connections, err := a.callers(ctx)
		if err == nil && requests == 0 && connections == 0 && (time.Since(begin) >= learned || !a.used(ctx, "downstream_cx_active")) {
			return "no client is connected", false
		}
		select {
		case <-time.After(answeredPoll):
		case <-limit:
			switch {
			case err != nil:
				return "not known: " + err.Error(), true
			case requests > 0:
				return "requests in flight at the end of the drain time", true
			}
			return "clients have kept connections without HTTP requests", false
		case <-ctx.Done():
			return "the wait was interrupted", true
		}
	}
}

// awaitAnswers is called when the applications have ended, and new connections are refused. It lets Envoy answer the
// clients of the mesh that are still connected and do not know yet that the pod stops: they send a request elsewhere
// that has reached no application, and the end of the connection would leave that open. It returns when no client is
// connected, or when ctx ends.
func (a *agent) awaitAnswers(ctx context.Context) {
	if !a.used(ctx, `ssl\.handshake`) {
		return // clients without a proxy take such an answer for the application's
	}
	await(ctx, answeredPoll, func() bool {
		requests, connections, err := a.callers(ctx)
		return err == nil && requests == 0 && connections == 0 || err != nil && a.gone(ctx)
	})
}

// callers counts the requests of clients in flight, as far as Envoy knows them, and the connections of clients. Envoy
// passes on bytes at a port for which no service declares HTTP. Any of these connections may carry a call: the proxies
// of the mesh detect HTTP there, and close their connections to an endpoint that is gone. A connection whose
// protocol Envoy has not detected yet counts as a request.
func (a *agent) callers(ctx context.Context) (requests, connections int, err error) {
	stats, err := a.stats(ctx, `^http\.inbound\.downstream_rq_active$|`+a.ofListeners("downstream_(pre_)?cx_active"))
	for name, n := range stats { // the order does not matter for sums
		if strings.HasSuffix(name, ".downstream_cx_active") {
			connections += int(n)
		} else {
			requests += int(n)
		}
	}
	return requests, connections, err
}

// used reports whether a statistic of the inbound listeners has changed since Envoy's start. It returns true if that is
// not known.
func (a *agent) used(ctx context.Context, statistic string) bool {
	used, err := a.admin.Used(ctx, a.ofListeners(statistic))
	return err != nil || len(used) > 0
}

// ofListeners returns a filter for a statistic of the listeners to which clients of the applications connect.
func (a *agent) ofListeners(statistic string) string {
	return fmt.Sprintf(`^listener\..*_(%d|%d)\.%s$`, a.config.Ports.Inbound, a.config.Ports.RelayInbound, statistic)
}
