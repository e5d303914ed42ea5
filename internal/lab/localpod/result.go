package localpod

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A Result describes a pod that has ended.
type Result struct {
	Pod        string              `json:"pod"`
	Status     kubelet.Status      `json:"status"` // the last published status
	Took       time.Duration       `json:"took"`
	Deleted    bool                `json:"deleted"` // Delete or Kill ended the pod
	Containers []Ended             `json:"containers"`
	Timeline   startup.Timeline    `json:"timeline"`
	Violations []startup.Violation `json:"violations,omitempty"`

	// Unjudged lists edges that could not be checked: a gate or a loop in the container enforces them, and
	// there is no report of the time at which the real command began.
	Unjudged []startup.Edge `json:"unjudged,omitempty"`

	// Failures are the failures of containers and of the pod. A container that ended because of the deletion has
	// not failed.
	Failures []string `json:"failures,omitempty"`
}

// Ended describes the runs of one container.
type Ended struct {
	Name     string `json:"name"`
	Restarts int    `json:"restarts"`
	Started  bool   `json:"started"`            // it started at least once
	ExitCode *int   `json:"exitCode,omitempty"` // of its last exit
	Reason   string `json:"reason,omitempty"`   // why its last start failed
	Message  string `json:"message,omitempty"`  // from its termination log
}

// OK reports whether there are neither failures nor violations of the plan.
func (r Result) OK() bool { return len(r.Failures) == 0 && len(r.Violations) == 0 }

// An EntryKind is the kind of a journal entry.
type EntryKind string

const (
	Received EntryKind = "event"    // an event that reached the kubelet
	Did      EntryKind = "action"   // an action of the kubelet
	Happened EntryKind = "timeline" // an event of package startup that follows from events and actions
)

// An Entry is an entry of the journal that [Options].Journal receives.
type Entry struct {
	At        time.Duration `json:"at"` // time since the kubelet received the pod
	Kind      EntryKind     `json:"kind"`
	Container string        `json:"container,omitempty"`
	What      string        `json:"what"`
	Which     kubelet.Which `json:"which,omitempty"` // of a hook or probe
	Failed    bool          `json:"failed,omitempty"`
	ExitCode  *int          `json:"exitCode,omitempty"`
	Detail    string        `json:"detail,omitempty"`
}

// failures returns the failures that the pod has now.
func (p *Pod) failures() []string {
	var out []string
	for _, c := range containersOf(&p.facts.Pod) {
		view, ended := p.state.View(c.Name), p.ended[c.Name]
		switch {
		case view.Running, p.starting[c.Name]:
		case ended.Reason != "":
			out = append(out, c.Name+" could not be started: "+ended.Reason)
		case ended.ExitCode != nil && *ended.ExitCode != 0:
			out = append(out, fmt.Sprintf("%s ended with exit code %d", c.Name, *ended.ExitCode))
		case ended.ExitCode == nil && !ended.Started:
			out = append(out, c.Name+" was never started")
		}
	}
	if len(out) == 0 && p.state.Status().Phase == kubelet.Failed {
		out = append(out, "the pod failed")
	}
	return out
}

func (p *Pod) result() Result {
	r := Result{Pod: p.facts.Pod.Name, Status: p.state.Status(), Took: p.now(), Deleted: p.deleted, Timeline: p.timeline.Sorted(), Failures: p.failed}
	if !p.deleted {
		r.Failures = p.failures()
		if r.Status.Phase == kubelet.Succeeded {
			r.Failures = nil // these are failures of earlier attempts
		}
	}
	for _, c := range containersOf(&p.facts.Pod) {
		e := p.ended[c.Name]
		e.Name, e.Restarts = c.Name, max(p.state.View(c.Name).Incarnation, 0)
		r.Containers = append(r.Containers, e)
	}
	for _, e := range p.plan.Edges {
		if p.hidden[e.To] && !p.reported[e.To] && !slices.Contains(r.Unjudged, e) {
			r.Unjudged = append(r.Unjudged, e)
		}
	}
	r.Violations = startup.Check(p.plan, r.Timeline)
	return r
}
