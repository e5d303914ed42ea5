// Package history has what happened in a pod, container by container and in the order of time, for people and pictures.
package history

import (
	"cmp"
	"slices"

	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// MostMarks is the largest number of marks in a track, so that a picture stays readable and a report small.
const MostMarks = 200

// A Track contains all that is known of the history of one container. Pictures are drawn from it.
type Track struct {
	Container string `json:"container"`
	Role      Role   `json:"role"`
	Runs      []Span `json:"runs,omitempty"`
	Marks     []Mark `json:"marks,omitempty"` // by time
	LeftOut   int    `json:"leftOut,omitempty"`
}

// A Role is the purpose of a container.
type Role string

// The roles.
const (
	Proxy Role = "proxy"
	App   Role = "application"
	Init  Role = "init"
	Other Role = "other" // belongs to a mesh, or is another sidecar
)

// A Span is one run of a container.
type Span struct {
	Number   int           `json:"number"`
	Started  evidence.Time `json:"started,omitzero"`
	Finished evidence.Time `json:"finished,omitzero"`
	Running  bool          `json:"running,omitempty"`
	Failed   bool          `json:"failed,omitempty"`
	Ended    string        `json:"ended,omitempty"` // how the run ended
}

// A MarkKind is the kind of event that a mark shows.
type MarkKind string

// The kinds.
const (
	MarkReady  MarkKind = "ready"       // the proxy became ready
	MarkCall   MarkKind = "failed call" // a line about a failed call
	MarkedLine MarkKind = "log"         // another line about the state of the proxy
)

// A Mark is an event of a container, with the quote that shows it.
type Mark struct {
	Kind MarkKind `json:"kind"`
	evidence.Quote
	About string `json:"about,omitempty"` // the meaning of the line
}

// Tracks returns the tracks of all containers that have a run or a mark, in the pod's order.
func Tracks(s *facts.Pod, failed calls.Calls) (out []Track) {
	for _, c := range s.Containers {
		t := Track{Container: c.Name, Role: role(s, c)}
		for _, r := range c.Runs {
			v := Span{Number: r.Number, Started: r.Started, Finished: r.Finished, Running: r.Running}
			if !r.Running {
				v.Ended, v.Failed = facts.RunText(r), r.Exit != nil && *r.Exit != 0
			}
			t.Runs = append(t.Runs, v)
		}
		t.Marks = marks(s, failed, c)
		if more := len(t.Marks) - MostMarks; more > 0 {
			t.Marks, t.LeftOut = t.Marks[:MostMarks], more
		}
		if len(t.Runs) > 0 || len(t.Marks) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func role(s *facts.Pod, c *evidence.Container) Role {
	switch {
	case c == s.Proxy:
		return Proxy
	case slices.Contains(s.Apps, c):
		return App
	case c.Kind == startup.Init:
		return Init
	}
	return Other
}

// marks returns the failed calls in a container's log; for the proxy, also its lines about its state and the
// moments when it became ready. Lines without a known time on the node's clock are left out.
func marks(s *facts.Pod, failed calls.Calls, c *evidence.Container) (out []Mark) {
	add := func(kind MarkKind, q evidence.Quote, about string) {
		if q.At.Known() && q.At.Clock == evidence.NodeClock {
			out = append(out, Mark{kind, q, about})
		}
	}
	for _, y := range failed.By(c.Name) {
		q := y.Quote
		q.At = y.At
		add(MarkCall, q, y.String())
	}
	if c == s.Proxy {
		for _, v := range s.Serving {
			add(MarkReady, v.Ready, "is ready")
		}
		for _, q := range s.Said.All() {
			if !slices.ContainsFunc(out, func(m Mark) bool { return m.Source == q.Source }) {
				add(MarkedLine, q, "")
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Mark) int {
		return cmp.Or(a.At.At.Compare(b.At.At), cmp.Compare(a.Source.Line, b.Source.Line))
	})
	return out
}
