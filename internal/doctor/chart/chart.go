package chart

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"outrider.dev/startup"
)

// A Chart is the picture of one pod's timeline, with one lane for each container.
type Chart struct {
	Title string        `json:"title,omitempty"`
	Steps bool          `json:"steps,omitempty"` // the axis shows the events' numbers instead of times; each event takes one second of the axis
	End   time.Duration `json:"end"`
	Lanes []Lane        `json:"lanes"`
	Pod   []Mark        `json:"pod,omitempty"`   // events of the pod itself, not of one container
	Notes []string      `json:"notes,omitempty"` // sentences below the chart, broken edges first

	Description string `json:"description,omitempty"` // a text for screen readers

	axis    time.Duration // end of the axis shared with other charts; 0: the chart has its own axis
	letters int           // length of the longest name in the charts that share the axis; 0: in this chart
}

// A Lane is the row of one container.
type Lane struct {
	Name  string `json:"name"`
	Spans []Span `json:"spans"`
	Marks []Mark `json:"marks,omitempty"`
}

// A Span is an interval in which the state of a container did not change.
type Span struct {
	Phase  Phase         `json:"phase"`
	From   time.Duration `json:"from"`
	To     time.Duration `json:"to"`
	Detail string        `json:"detail,omitempty"`
}

// A Mark is an event without a duration.
type Mark struct {
	Kind   MarkKind      `json:"kind"`
	At     time.Duration `json:"at"`
	Detail string        `json:"detail,omitempty"`
}

// Phase is the state of a container during a span.
type Phase string

const (
	Pulling  Phase = "pulling"  // its image is pulled
	Waiting  Phase = "waiting"  // its gate is closed
	Running  Phase = "running"  // it runs, and is not healthy
	Alive    Phase = "alive"    // it runs; its health is not known
	Healthy  Phase = "healthy"  //
	Stopping Phase = "stopping" // it received its stop signal, and still runs
	BackOff  Phase = "back-off" // the kubelet delays its next start
)

// MarkKind is the kind of event that a mark shows.
type MarkKind string

const (
	Crashed    MarkKind = "crashed"
	NoImage    MarkKind = "no-image"
	Completed  MarkKind = "completed"
	Refused    MarkKind = "refused"     // a connection that the container made was refused
	CallFailed MarkKind = "call-failed" // a call that the container made failed in another way
	Ready      MarkKind = "ready"       //
	Line       MarkKind = "line"        // a line of its log
	HookFailed MarkKind = "hook-failed" //
	Notified   MarkKind = "notified"
	TooEarly   MarkKind = "too-early" // an edge was broken here
	Deleted    MarkKind = "deleted"   // the pod was deleted
	Sandbox    MarkKind = "sandbox"   // the pod got a new sandbox
	Address    MarkKind = "address"   // the pod's IP appeared in the API
)

// A Pull is an interval in which a container waited for its image.
type Pull struct {
	Container string        `json:"container"`
	From      time.Duration `json:"from"`
	To        time.Duration `json:"to"`
	Failed    bool          `json:"failed,omitempty"`
}

// New returns the chart of a timeline: one lane for each container in names, in the order of names, with the
// violations marked. Timelines contain no image pulls, so these are passed separately; pulls may be empty.
func New(names []string, t startup.Timeline, pulls []Pull, broken []startup.Violation) Chart {
	t = t.Sorted()
	c := Chart{End: end(t, pulls)}
	for _, name := range names {
		l := laner{end: c.End, lane: Lane{Name: name}}
		l.pulls(pulls)
		for _, ev := range t {
			l.observe(ev)
		}
		l.open(c.End, "", "")
		for _, v := range broken {
			if v.Edge.To == name {
				l.mark(TooEarly, v.At, Note(v))
			}
		}
		c.Lanes = append(c.Lanes, l.lane)
	}
	c.Pod = podMarks(t)
	for _, v := range broken {
		c.Notes = append(c.Notes, Note(v))
	}
	return c
}

// Steps returns a chart whose axis shows the numbers of the events, from 1, instead of times. It is for a timeline
// in which many events happen at one instant.
func Steps(names []string, t startup.Timeline, broken []startup.Violation) Chart {
	t = t.Sorted()
	stepped := slices.Clone(t)
	for i := range stepped {
		stepped[i].At = time.Duration(i+1) * time.Second
	}
	marks := slices.Clone(broken)
	for i, v := range broken {
		marks[i].At = time.Duration(stepOf(t, v)+1) * time.Second
	}
	c := New(names, stepped, nil, marks)
	end := time.Duration(len(t)+1) * time.Second
	for _, l := range c.Lanes {
		if n := len(l.Spans); n > 0 && l.Spans[n-1].To == c.End {
			l.Spans[n-1].To = end // an open span lasts to the end of the chart
		}
	}
	c.Steps, c.End, c.Notes = true, end, nil
	for _, v := range broken {
		c.Notes = append(c.Notes, Note(v))
	}
	return c
}

// stepOf returns the index of the event at which the violation happened, or 0 if the timeline does not contain that
// event.
func stepOf(t startup.Timeline, v startup.Violation) int {
	return max(slices.IndexFunc(t, func(ev startup.Event) bool {
		switch v.How {
		case startup.StartedTooEarly:
			return ev.Container == v.Edge.To && ev.What == startup.IsStarted && ev.At == v.At && ev.Incarnation == v.Incarnation
		case startup.RestartNotPropagated:
			return ev.Container == v.Edge.From && ev.What == startup.IsStarted && ev.At == v.At
		}
		ended := ev.What == startup.IsCompleted || ev.What == startup.HasFailed
		return ended && ev.Container == v.Edge.From && ev.At == v.At
	}), 0)
}

// label returns a time in the form in which the axis shows it.
func (c Chart) label(t time.Duration) string {
	if c.Steps {
		return strconv.Itoa(int(t / time.Second))
	}
	return t.String()
}

// Note describes a violation in one line: its time and what happened.
func Note(v startup.Violation) string {
	at := v.At
	if at >= time.Millisecond {
		at = at.Round(time.Millisecond)
	}
	return fmt.Sprintf("at %s %s", at, v.Sentence())
}

// end returns the end of the axis, which is a little later than the last event.
func end(t startup.Timeline, pulls []Pull) time.Duration {
	last := time.Duration(0)
	for _, ev := range t {
		last = max(last, ev.At)
	}
	for _, p := range pulls {
		last = max(last, p.To)
	}
	return max(last+last/8, time.Second).Round(10 * time.Millisecond)
}

func podMarks(t startup.Timeline) (out []Mark) {
	kinds := map[startup.What]MarkKind{startup.PodDeleted: Deleted, startup.NewSandbox: Sandbox, startup.HasAddress: Address}
	for _, ev := range t {
		if k, ok := kinds[ev.What]; ok {
			out = append(out, Mark{Kind: k, At: ev.At, Detail: ev.Detail})
		}
	}
	return out
}

// A laner builds one lane.
type laner struct {
	lane   Lane
	end    time.Duration
	phase  Phase // phase of the open span; empty: the container does not run
	since  time.Duration
	detail string
}

func (l *laner) pulls(pulls []Pull) {
	for _, p := range pulls {
		if p.Container != l.lane.Name {
			continue
		}
		if p.To > p.From {
			l.lane.Spans = append(l.lane.Spans, Span{Phase: Pulling, From: p.From, To: p.To})
		}
		if p.Failed {
			l.mark(NoImage, p.To, "")
		}
	}
}

// open begins a new span, and completes the one that was open until then.
func (l *laner) open(at time.Duration, p Phase, detail string) {
	if l.phase != "" && at > l.since {
		l.lane.Spans = append(l.lane.Spans, Span{Phase: l.phase, From: l.since, To: at, Detail: l.detail})
	}
	l.phase, l.since, l.detail = p, at, detail
}

func (l *laner) mark(k MarkKind, at time.Duration, detail string) {
	l.lane.Marks = append(l.lane.Marks, Mark{Kind: k, At: at, Detail: detail})
}

func (l *laner) observe(ev startup.Event) {
	if ev.Container != l.lane.Name {
		return
	}
	running := l.phase == Running || l.phase == Healthy
	switch ev.What {
	case startup.IsWaiting:
		phase := Waiting
		if ev.Detail != "" && isBackOff(ev.Detail) {
			phase = BackOff
		}
		l.open(ev.At, phase, ev.Detail)
	case startup.IsStarted, startup.IsUnhealthy:
		l.open(ev.At, Running, ev.Detail)
	case startup.IsHealthy:
		l.open(ev.At, Healthy, ev.Detail)
	case startup.IsStopping:
		if running {
			l.open(ev.At, Stopping, ev.Detail)
		}
	case startup.IsCompleted:
		l.open(ev.At, "", "")
		l.mark(Completed, ev.At, ev.Detail)
	case startup.HasFailed:
		l.open(ev.At, "", "")
		l.mark(Crashed, ev.At, ev.Detail)
	case startup.IsRefused:
		l.mark(Refused, ev.At, ev.Detail)
	case startup.HookFailed:
		l.mark(HookFailed, ev.At, ev.Detail)
	case startup.IsNotified:
		l.mark(Notified, ev.At, ev.Detail)
	}
}
