package proxy

import (
	"context"
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

// awaitCallers returns when no client calls the applications by HTTP, or after [agent.callersLimit]. It returns the
// outcome, and whether requests were still in flight. A connection without requests may carry the next one at any
// time, so it counts; clients of the mesh close it when they learn that the pod stops.
func (a *agent) awaitCallers(ctx context.Context) (outcome string, cut bool) {
	begin, limit := time.Now(), time.After(a.callersLimit())
	for {
		requests, connections, err := a.http(ctx, direction{name: "inbound", port: a.config.Ports.Inbound})
		if err == nil && requests == 0 && connections == 0 && (time.Since(begin) >= learned || !a.wasCalled(ctx)) {
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
			return "clients have kept connections without requests", false
		case <-ctx.Done():
			return "the wait was interrupted", true
		}
	}
}

// wasCalled reports whether a client has ever called by HTTP since Envoy's start. It returns true if that is not known.
func (a *agent) wasCalled(ctx context.Context) bool {
	used, err := a.admin.Used(ctx, `^http\.inbound\.downstream_cx_active$`)
	return err != nil || len(used) > 0
}
