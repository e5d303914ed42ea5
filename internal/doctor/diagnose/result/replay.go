package result

import (
	"fmt"
	"time"

	"outrider.dev/startup"
)

// A Replay is the result of two simulations of the pod's start in the model of the kubelet, with the durations that
// the evidence shows: one of the pod as it was, and one with the remedy.
type Replay struct {
	Mechanism startup.Mechanism `json:"mechanism"` // the mechanism of the remedy
	AsItWas   Replayed          `json:"asItWas"`
	Remedied  Replayed          `json:"remedied"`
	Assumed   []string          `json:"assumed,omitempty"` // durations that the evidence does not show
}

// Replayed is the result of one simulation for the application.
type Replayed struct {
	Runs     time.Duration `json:"runs"` // start of its last run, in nanoseconds since the kubelet received the pod
	Refused  int           `json:"refused"`
	Restarts int           `json:"restarts"`
}

func (r Replayed) String() string {
	return fmt.Sprintf("%s, %s, the last run from +%.1f s", Count(r.Refused, "refused call"), Count(r.Restarts, "restart"), r.Runs.Seconds())
}

// Count returns a number with a noun in the right form: "1 pod", "2 pods".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Tried describes the replay and its assumptions.
func (r *Replay) Tried() string {
	by := map[startup.Mechanism]string{startup.Gate: "a gate", startup.Hold: "the hold", startup.Native: "a native sidecar"}
	text := fmt.Sprintf("In the model of the kubelet, with the times above: without it %s; with %s %s", r.AsItWas, by[r.Mechanism], r.Remedied)
	for _, a := range r.Assumed {
		text += "; assumed: " + a
	}
	return text
}
