package partial

import (
	"time"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/described"
)

// Aged is an event with the ages of its first and its last occurrence, at the time of the text.
type Aged struct {
	evidence.Event
	Oldest, Newest described.Age
}

// Dated places the events of a text. The time of the text is the start of a container plus the age of the event that
// reports it. If no such event is there, or if they contradict each other, the times stay unknown, and the events keep
// the order of the lines.
func Dated(p *evidence.Pod, events []Aged) {
	var from, until time.Time // of the text
	for _, e := range events {
		c := p.Container(e.Container)
		if c == nil || e.Reason != "Started" || e.Count != c.Restarts+1 || e.Newest.Error == 0 {
			continue
		}
		r := c.Last()
		if r == nil || !r.Started.Known() || r.Number != c.Restarts {
			continue
		}
		begin, end := r.Started.At.Add(e.Newest.Least), r.Started.Latest().Add(e.Newest.Least+e.Newest.Error)
		if from.IsZero() || begin.After(from) {
			from = begin
		}
		if until.IsZero() || end.Before(until) {
			until = end
		}
	}
	if from.IsZero() || !from.Before(until) {
		return
	}
	p.Taken = evidence.Time{At: from, Error: until.Sub(from), Clock: evidence.NodeClock}
	place := func(a described.Age) evidence.Time {
		if a.Error == 0 {
			return evidence.Time{}
		}
		begin := from.Add(-a.Least - a.Error)
		return evidence.Time{At: begin, Error: until.Add(-a.Least).Sub(begin), Clock: evidence.NodeClock}
	}
	for i := range events {
		if events[i].Reporter == "kubelet" {
			events[i].First, events[i].Last = place(events[i].Oldest), place(events[i].Newest)
		}
	}
}
