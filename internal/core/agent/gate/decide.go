package gate

import (
	"time"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// An answer is what a container without a record answered to a request.
type answer struct {
	responded bool // with any status
	healthy   bool
	problem   string // why it is not healthy; not cleaned for a log
}

// decide applies the rule of an edge to what is known of its dependency, and returns the reason
// if that opens the edge: [gate.missing] describes what blocks it.
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

// cameBack reports whether From was started again since To began, when it had been started
// base times. Its first start is no restart, even if To began before it.
func cameBack(seen state.Seen, base int) bool {
	return seen.Starts > base && seen.Starts > 1
}

// needs reports whether the container of that record must end before name may stop.
func needs(s state.Seen, name string) bool {
	if s.Gone() || s.Phase == state.Waiting {
		return false // a container that only waits ends at once
	}
	for _, from := range s.After {
		if from == name {
			return true
		}
	}
	return false
}

// stopLimit is how long a command is kept for its dependents. The rest is for the command
// itself, as much as the kubelet leaves to the last (minimumGracePeriodInSeconds
// in kubelet v1.34.4 pkg/kubelet/kuberuntime: 2 s).
func stopLimit(grace time.Duration) time.Duration {
	const rest = 2 * time.Second
	return max(grace-rest, grace/2, 0)
}
