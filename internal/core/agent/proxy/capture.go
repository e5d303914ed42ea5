package proxy

import (
	"context"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/internal/core/agent/supervise"
)

// newCapture returns what proves, until the pod stops, that connections of each of its IP families reach the
// proxy. It returns nil if nothing is captured, or if the agent has no listener of its own for the proof.
func (a *agent) newCapture() *readiness.Capture {
	if !hasStandby(a.config) {
		return nil
	}
	of, asked := family(a.config.Pod.Addresses), a.config.CaptureFamilies
	return readiness.NewCapture(readiness.CaptureOptions{
		IPv4: of != envoy.IPv6 && asked != "ipv6", IPv6: of != envoy.IPv4 && asked != "ipv4",
		Inbound: a.config.Ports.Inbound, Outbound: a.config.Ports.Outbound,
		Interval: a.config.CaptureProof, Provable: a.provable,
	})
}

// provable reports whether a proof of capture would come to the agent: not while the pod stops, when the
// proxy's ports close one after the other.
func (a *agent) provable() bool {
	switch a.super.State() {
	case supervise.Idle, supervise.Starting, supervise.Serving, supervise.Restarting, supervise.Reviving:
		return a.standbys.accept()
	}
	return false
}

// captured begins to prove capture, when the standbys listen.
func (a *agent) captured(ctx context.Context) {
	switch {
	case a.capture != nil:
		go a.capture.Keep(ctx, a.board)
	case interception(a.config) != none:
		a.board.Set(readiness.CaptureRules, true, readiness.OnlyEnvoyListens)
	}
}

// captureMetrics returns the metrics of the proofs, if any are made.
func (a *agent) captureMetrics() []status.Metric {
	if a.capture == nil {
		return nil
	}
	return []status.Metric{
		truth("outrider_agent_capture_in_place", "1 if connections came to the proxy when that was last known.", a.capture.InPlace),
		gauge("outrider_agent_capture_unproved_seconds", "For how long a direction and family of connections has not been proved to come to the proxy; 0 if all are.",
			func() float64 { return a.capture.Unproved().Seconds() }),
		counter("outrider_agent_capture_lost_total", "How often connections no longer came to the proxy.", func() float64 { return float64(a.capture.Lost()) }),
		counter("outrider_agent_capture_proofs_total", "How often the agent tried whether connections come to the proxy.", func() float64 { return float64(a.capture.Proofs()) }),
	}
}
