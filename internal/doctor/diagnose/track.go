package diagnose

import (
	"cmp"
	"slices"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// lines is how many log lines a track has at most: what a picture can show, and a report can hold.
const lines = 200

// A Track is what is known of one container over time: more than the timeline has room for, and
// what a picture of it is drawn from.
type Track struct {
	Container string `json:"container"`
	Role      Role   `json:"role"`
	Runs      []Span `json:"runs,omitempty"`
	Marks     []Mark `json:"marks,omitempty"` // by time
	LeftOut   int    `json:"leftOut,omitempty"`
}

// A Role is what a container is for.
type Role string

// The roles.
const (
	ProxyRole Role = "proxy"
	AppRole   Role = "application"
	InitRole  Role = "init"
	OtherRole Role = "other" // of a mesh, or another sidecar
)

// A Span is one run.
type Span struct {
	Number   int           `json:"number"`
	Started  evidence.Time `json:"started,omitzero"`
	Finished evidence.Time `json:"finished,omitzero"`
	Running  bool          `json:"running,omitempty"`
	Failed   bool          `json:"failed,omitempty"`
	Ended    string        `json:"ended,omitempty"` // how, in words
}

// A MarkKind is what a mark stands for.
type MarkKind string

// The kinds.
const (
	MarkReady  MarkKind = "ready"       // the proxy is
	MarkCall   MarkKind = "failed call" // a line about one
	MarkedLine MarkKind = "log"         // another line that says how the proxy is
)

// A Mark is an instant, with the fact that it is known by.
type Mark struct {
	Kind MarkKind `json:"kind"`
	Quote
	About string `json:"about,omitempty"` // what the line says, in words
}

// tracks are of all containers of which anything is known, in the pod's order.
func (s *subject) tracks() (out []Track) {
	for _, c := range s.Containers {
		t := Track{Container: c.Name, Role: s.role(c)}
		for _, r := range c.Runs {
			v := Span{Number: r.Number, Started: r.Started, Finished: r.Finished, Running: r.Running}
			if !r.Running {
				v.Ended, v.Failed = runText(r), r.Exit != nil && *r.Exit != 0
			}
			t.Runs = append(t.Runs, v)
		}
		t.Marks = s.marks(c)
		if more := len(t.Marks) - lines; more > 0 {
			t.Marks, t.LeftOut = t.Marks[:lines], more
		}
		if len(t.Runs) > 0 || len(t.Marks) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func (s *subject) role(c *evidence.Container) Role {
	switch {
	case c == s.proxy:
		return ProxyRole
	case slices.Contains(s.apps, c):
		return AppRole
	case c.Kind == startup.Init:
		return InitRole
	}
	return OtherRole
}

// marks are what a container's log says, and when the proxy was ready. A line without a time by the
// node's clock is placed in its run, with the error that this has, or nowhere.
func (s *subject) marks(c *evidence.Container) (out []Mark) {
	add := func(kind MarkKind, q Quote, about string) {
		if q.At.Known() && q.At.Clock == evidence.NodeClock {
			out = append(out, Mark{kind, q, about})
		}
	}
	for _, y := range s.symptoms {
		if y.container == c.Name {
			q := y.quote
			q.At = y.at
			add(MarkCall, q, y.String())
		}
	}
	if c == s.proxy {
		for _, v := range s.serving {
			add(MarkReady, v.ready, "is ready")
		}
		for _, p := range proxyTexts {
			for _, x := range s.known.said[p.Name] {
				if !slices.ContainsFunc(out, func(m Mark) bool { return m.Source == x.quote.Source }) {
					add(MarkedLine, x.quote, "")
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Mark) int {
		return cmp.Or(a.At.At.Compare(b.At.At), cmp.Compare(a.Source.Line, b.Source.Line))
	})
	return out
}
