package proxy

import (
	"time"

	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/relay"
	"outrider.dev/internal/core/agent/status"
)

// listenRelay opens the socket on which Envoy gets its configuration.
func (a *agent) listenRelay() (*relay.Relay, error) {
	c := a.config
	o := relay.Options{
		Socket: relaySocket(c), Address: c.ControlPlane.Address, Store: kept(c), Key: a.envoy.Node.ID,
		Changed: a.relayed, Log: a.log,
	}
	if a.keeper != nil {
		o.TLS = a.keeper.TLS(c.ControlPlane.Address)
	}
	return relay.Listen(o)
}

// relayed logs a change of the connection to the control plane. It does not change readiness: a
// proxy that has its configuration stays ready without the control plane.
func (a *agent) relayed(s relay.State) {
	switch {
	case s.Connected:
		a.log.Info("the control plane is connected")
		a.journal.Note("control plane", "connected")
	case s.Err != nil:
		why := a.fault(s.Err).Reason
		a.log.Warn("the control plane is away", "since", s.Since, "reason", why)
		a.journal.Fail("control plane", why)
	}
}

// fault explains why there is no connection to the control plane.
func (a *agent) fault(err error) *identity.Fault {
	return identity.Unconnected(a.config.ControlPlane.Address, err)
}

// stream returns the state of the connection to the control plane, for readiness.
func (a *agent) stream() readiness.Stream {
	s := a.relay.State()
	if s.Connected || s.Err == nil {
		return readiness.Stream{Connected: s.Connected}
	}
	f := a.fault(s.Err)
	return readiness.Stream{Refused: f.Kind == identity.Untrusted, Reason: f.Reason}
}

// relayMetrics returns the metrics of the connection to the control plane.
func (a *agent) relayMetrics() []status.Metric {
	return []status.Metric{
		truth("outrider_agent_control_plane_connected", "1 while the control plane serves this proxy.", func() bool { return a.relay.State().Connected }),
		gauge("outrider_agent_control_plane_disconnected_seconds", "How long the control plane has not served this proxy.", func() float64 {
			if s := a.relay.State(); !s.Connected {
				return time.Since(s.Since).Seconds()
			}
			return 0
		}),
		gauge("outrider_agent_cached_resources", "Resources that a new Envoy gets while the control plane is unavailable.", func() float64 { n, _ := a.relay.Kept(); return float64(n) }),
		gauge("outrider_agent_cached_bytes", "Size of the file with the cached resources.", func() float64 { _, n := a.relay.Kept(); return float64(n) }),
	}
}
