package localpod

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A Result is the outcome of a pod.
type Result struct {
	Pod        string              `json:"pod"`
	Status     kubelet.Status      `json:"status"` // the last published status
	Took       time.Duration       `json:"took"`
	Deleted    bool                `json:"deleted"` // the pod was deleted before it ended by itself
	Containers []Ended             `json:"containers"`
	Timeline   startup.Timeline    `json:"timeline"`
	Violations []startup.Violation `json:"violations,omitempty"`

	// Unjudged lists edges that a gate or a loop in the container keeps, but where no report tells when the real
	// command began.
	Unjudged []startup.Edge `json:"unjudged,omitempty"`

	// Failures describes what went wrong in the pod. Ends because of a deletion do not count.
	Failures []string `json:"failures,omitempty"`
}

// Ended is the outcome of one container.
type Ended struct {
	Name     string `json:"name"`
	Restarts int    `json:"restarts"`
	Started  bool   `json:"started"`            // it started at least once
	ExitCode *int   `json:"exitCode,omitempty"` // of its last exit
	Reason   string `json:"reason,omitempty"`   // why it could not be started
	Message  string `json:"message,omitempty"`  // from its termination log
}

// OK reports whether the pod did not fail and started as planned.
func (r Result) OK() bool { return len(r.Failures) == 0 && len(r.Violations) == 0 }

// An EntryKind is the kind of a journal entry.
type EntryKind string

const (
	Received EntryKind = "event"    // an event that reached the kubelet
	Did      EntryKind = "action"   // an action of the kubelet
	Happened EntryKind = "timeline" // the meaning of events and actions, in the terms of package startup
)

// An Entry is an entry in the journal of a pod.
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

// failures returns why the pod is not well now.
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

// result computes the result.
func (p *Pod) result() Result {
	r := Result{Pod: p.facts.Pod.Name, Status: p.state.Status(), Took: p.now(), Deleted: p.deleted, Timeline: p.timeline.Sorted(), Failures: p.failed}
	if !p.deleted {
		r.Failures = p.failures()
		if r.Status.Phase == kubelet.Succeeded {
			r.Failures = nil // of earlier attempts
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
