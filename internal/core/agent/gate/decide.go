package gate

import (
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// An answer is the result of an HTTP request to a container that publishes no record.
type answer struct {
	responded bool // the container answered, with any status
	healthy   bool
	problem   string // why the container is not healthy; raw text, see oneLine
}

// decide applies the rule of an edge to the record and the answer of its dependency. If the edge
// no longer blocks, it returns the reason, too; [gate.missing] explains why an edge still blocks.
func decide(e startup.Edge, seen state.Seen, got answer, waited time.Duration) (startup.Decision, string) {
	status, source := seen.Status(), "answer"
	if status.Reached(e.After) {
		source = "state"
	}
	status.Running = status.Running || got.responded
	status.Healthy = status.Healthy || got.healthy
	d := e.Decide(status, waited)
	switch d {
	case startup.Satisfied:
		return d, source
	case startup.Waived:
		return d, "failed, and is optional"
	case startup.Expired, startup.GivenUp:
		return d, "timeout"
	default:
		return d, ""
	}
}

// needs reports whether the container with record s must end before the named container may stop.
func needs(s state.Seen, name string) bool {
	if s.Gone() || s.Phase == state.Waiting {
		return false // the command has not begun, so the container ends at once
	}
	for _, from := range s.After {
		if from == name {
			return true
		}
	}
	return false
}

// callLimit returns the maximum time for which a command keeps running for the clients that call it through the
// proxy, after a stop signal that left the given grace period. The proxy itself ends the calls before that, see
// awaitCallers in package proxy. If it does not know that the pod stops, only this container does.
func callLimit(proxy state.Seen, grace time.Duration) time.Duration {
	switch {
	case !proxy.InCall():
		return 0
	case proxy.Stopping:
		return grace / 2
	}
	return min(settle, grace/2)
}

// restAt returns the rest of the pod's grace period at the stop signal of a container with a preStop hook, which has
// delayed the signal. The pod stopped when another container got its signal; zero: that is not known.
func restAt(signal, podStopped time.Time, grace time.Duration) time.Duration {
	if podStopped.IsZero() || podStopped.After(signal) {
		return grace
	}
	return max(grace-signal.Sub(podStopped), min(contract.LeastGrace, grace))
}
