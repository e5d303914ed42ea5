package verify

import "outrider.dev/startup"

// LeavesDeletionOut is what is left out of [Starts], and not of [Stops].
const LeavesDeletionOut = "deletion: ask for the promise to stop in order"

// leftOut says what the answer does not cover.
func leftOut(q Question) []string {
	out := []string{
		"whether a container runs at all, or a gate tells it of a restart: only that nothing happens too early",
		"instants between two of the kubelet's own deadlines: everything happens at one of them, in any order",
		"time in the containers: whatever they do they may do at once, late or never; a probe answers at once",
		"readiness probes, and a back-off forgotten after ten minutes without a crash",
		"what package kubelet leaves out: eviction, restart of the kubelet, in-place resize, restart rules by exit code",
	}
	for _, e := range q.Plan.Edges {
		if e.By == startup.Gate || e.By == startup.Wrapper || e.By == startup.HealthLoop {
			out = append(out, "the instant between a gate's last look and its command, and between a change and its publication")
			break
		}
	}
	if q.Promise == Stops {
		out = append(out, "faults after the deletion")
	} else {
		out = append(out, LeavesDeletionOut)
	}
	return out
}
