package proxy

import (
	"os"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
)

// changed writes a change of a readiness condition to the log and the journal. It is normal at a
// start that a condition does not hold yet, but a failure if a condition no longer holds.
func (a *agent) changed(c readiness.Change) {
	name := c.Condition.String()
	if c.OK {
		a.held.Store(c.Condition, true)
		a.log.Info("condition holds", "condition", name, "note", c.Message)
		a.journal.Note(name, "holds")
		return
	}
	if _, before := a.held.Load(c.Condition); !before && c.Condition != readiness.Identity { // Identity holds from the start until it is refused
		a.log.Info("condition does not hold yet", "condition", name, "reason", c.Message)
		a.journal.Note(name, c.Message)
		return
	}
	a.log.Warn("condition does not hold", "condition", name, "reason", c.Message)
	a.journal.Fail(name, c.Message)
}

func gauge(name, help string, value func() float64) status.Metric {
	return status.Metric{Name: name, Help: help, Value: value}
}

func counter(name, help string, value func() float64) status.Metric {
	return status.Metric{Name: name, Help: help, Counter: true, Value: value}
}

// truth returns a gauge that is 1 while is returns true, and else 0.
func truth(name, help string, is func() bool) status.Metric {
	return gauge(name, help, func() float64 {
		if is() {
			return 1
		}
		return 0
	})
}

// metrics returns the agent's own metrics.
func (a *agent) metrics() []status.Metric {
	out := []status.Metric{
		gauge("outrider_agent_held_connections", "Connections that the standby holds until the proxy is ready.", func() float64 { return float64(a.standbys.counts().Held) }),
		counter("outrider_agent_relayed_connections_total", "Connections that came early and were handed to the proxy.", func() float64 { return float64(a.standbys.counts().Relayed) }),
		counter("outrider_agent_refused_connections_total", "Connections that were reset because too many were held.", func() float64 { return float64(a.standbys.counts().Refused) }),
		gauge("outrider_agent_parked_connections", "Connections of other users whose first packet is not answered yet.", func() float64 {
			n, err := readiness.Parked(uint32(os.Getuid()))
			if err != nil {
				return 0
			}
			return float64(n)
		}),
	}
	out = append(out, a.ends.metrics()...)
	out = append(out, a.relayMetrics()...)
	out = append(out, a.captureMetrics()...)
	if a.keeper != nil {
		out = append(out, gauge(contract.CertificateExpiry, "Until the certificate expires.", func() float64 {
			s := a.keeper.State()
			if s.NotAfter.IsZero() {
				return 0
			}
			return time.Until(s.NotAfter).Seconds()
		}))
	}
	if a.accessLog != nil {
		out = append(out, counter("outrider_agent_access_log_lines_lost_total", "Lines of the access log for which there was no room, because standard output was not read.", func() float64 { return float64(a.accessLog.Lost()) }))
	}
	if a.config.DNS {
		out = append(out, a.nameMetrics()...)
	}
	return out
}
