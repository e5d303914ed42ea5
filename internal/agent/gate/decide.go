package gate

import (
	"time"

	"outrider.dev/internal/agent/state"
	"outrider.dev/startup"
)

// A verdict is what an edge says to a command that waits.
type verdict int

const (
	hold verdict = iota
	open
	giveUp
)

// An answer is what a container without a state said where it was asked.
type answer struct {
	asked   bool // somebody answered, whatever it was
	healthy bool
}

// judge says whether an edge holds the command back, after it has waited for that long,
// and if not, why. It agrees with simulate/inside: what is there counts first, then what
// may be missing, then time.
func judge(e startup.Edge, seen state.Seen, said answer, waited time.Duration) (verdict, string) {
	late := e.Timeout > 0 && waited >= e.Timeout
	switch {
	case seen.Reached(e.After):
		return open, "state"
	case e.After == startup.Healthy && said.healthy, e.After == startup.Started && said.asked:
		return open, "answer"
	case e.Optional && seen.Failed():
		return open, "failed, and is optional"
	case late && e.OnTimeout == startup.Continue:
		return open, "timeout"
	case late:
		return giveUp, "timeout"
	default:
		return hold, missing(seen)
	}
}

// missing says for people what is known of a container that is not there yet.
func missing(s state.Seen) string {
	switch {
	case !s.Known:
		return "nothing heard of it"
	case s.Failed():
		return "it failed"
	case s.Phase == state.Waiting:
		return "it waits itself"
	case s.Phase == state.Ended:
		return "it ended"
	default:
		return "it runs"
	}
}

// cameBack says whether From was started again since To began, when it had been started
// base times. Its first start is no restart, even if To began before it.
func cameBack(seen state.Seen, base int) bool {
	return seen.Starts > base && seen.Starts > 1
}

// needs says whether the container of that record must end before name may stop.
func needs(s state.Seen, name string) bool {
	if s.Gone() || s.Phase == state.Waiting {
		return false // one that only waits ends at once
	}
	for _, from := range s.After {
		if from == name {
			return true
		}
	}
	return false
}

// stopLimit is how long a command is kept for those who need it. What is left is for the
// command itself, as much as the kubelet leaves to the last (minimumGracePeriodInSeconds
// in kubelet v1.34.4 pkg/kubelet/kuberuntime: 2 s).
func stopLimit(grace time.Duration) time.Duration {
	const rest = 2 * time.Second
	return max(grace-rest, grace/2, 0)
}
