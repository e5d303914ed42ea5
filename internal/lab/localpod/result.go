package localpod

import (
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
)

// A Result is how a pod went.
type Result struct {
	Pod        string              `json:"pod"`
	Status     kubelet.Status      `json:"status"` // as last published
	Took       time.Duration       `json:"took"`
	Deleted    bool                `json:"deleted"` // it did not end by itself
	Containers []Ended             `json:"containers"`
	Timeline   startup.Timeline    `json:"timeline"`
	Violations []startup.Violation `json:"violations,omitempty"`

	// Unjudged are edges that something within the container keeps, a gate or a loop,
	// which did not report when the real command began.
	Unjudged []startup.Edge `json:"unjudged,omitempty"`

	// Failures are what went wrong in the pod; what a deletion ended is none.
	Failures []string `json:"failures,omitempty"`
}

// Ended is how one container went.
type Ended struct {
	Name     string `json:"name"`
	Restarts int    `json:"restarts"`
	Started  bool   `json:"started"`            // at least once
	ExitCode *int   `json:"exitCode,omitempty"` // of its last end
	Reason   string `json:"reason,omitempty"`   // that it could not be started
	Message  string `json:"message,omitempty"`  // that it left in its termination log
}

// OK reports that the pod did not fail and that its start was as planned.
func (r Result) OK() bool { return len(r.Failures) == 0 && len(r.Violations) == 0 }

// An EntryKind is what an entry of the journal is about.
type EntryKind string

const (
	Received EntryKind = "event"    // an event that reached the kubelet
	Did      EntryKind = "action"   // what it did
	Happened EntryKind = "timeline" // what that means, in the words of package startup
)

// An Entry is one thing in the journal of a pod.
type Entry struct {
	At        time.Duration `json:"at"` // since the kubelet was given the pod
	Kind      EntryKind     `json:"kind"`
	Container string        `json:"container,omitempty"`
	What      string        `json:"what"`
	Which     kubelet.Which `json:"which,omitempty"` // hook or probe
	Failed    bool          `json:"failed,omitempty"`
	ExitCode  *int          `json:"exitCode,omitempty"`
	Detail    string        `json:"detail,omitempty"`
}

// failures are why the pod is not well now.
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

// result sums up.
func (p *Pod) result() Result {
	r := Result{Pod: p.facts.Pod.Name, Status: p.state.Status(), Took: p.now(), Deleted: p.deleted, Timeline: p.timeline.Sorted(), Failures: p.failed}
	if !p.deleted {
		r.Failures = p.failures()
		if r.Status.Phase == kubelet.Succeeded {
			r.Failures = nil // an earlier attempt may have failed
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
