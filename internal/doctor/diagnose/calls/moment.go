package calls

import (
	"slices"
	"time"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// timeOf returns the time of a line. If the line has none on the node's clock, or one long before the run, it returns
// the start of the run, with the length of the run as the error.
func timeOf(p *evidence.Pod, c *evidence.Container, l *evidence.Log, of evidence.Time) evidence.Time {
	if of.Known() && of.Clock == evidence.NodeClock && !l.Before(of) {
		return of
	}
	run := c.Run(l.Run)
	if run == nil || !run.Started.Known() {
		return untilDone(c, l)
	}
	return until(run.Started, endOf(p, c, run))
}

// untilDone returns the span of the runs that failed, for a log that may be of any of them: the container has done its work
// since. It is unknown of any other container.
func untilDone(c *evidence.Container, l *evidence.Log) evidence.Time {
	last := c.Last()
	if l.Run >= 0 || last == nil || last.Exit == nil || *last.Exit != 0 {
		return evidence.Time{}
	}
	var from, to evidence.Time
	for _, r := range c.Runs {
		if r.Exit == nil || *r.Exit == 0 {
			continue
		}
		if to = r.Finished; !from.Known() {
			from = r.Started
		}
	}
	return until(from, to)
}

// endOf returns the end of a run: by its status, or the start of the next one, or else the time at which the evidence was
// taken.
func endOf(p *evidence.Pod, c *evidence.Container, run *evidence.Run) evidence.Time {
	if run.Finished.Known() {
		return run.Finished
	}
	if next := c.Run(run.Number + 1); next != nil && next.Started.Known() {
		return next.Started
	}
	return p.Taken
}

// until returns the span from one time to another one; it is unknown if one of them is.
func until(from, to evidence.Time) evidence.Time {
	if !from.Known() || !to.Known() {
		return evidence.Time{}
	}
	from.Error = max(to.Latest().Sub(from.At), 0)
	return from
}

const (
	lastWord  = time.Minute // before the end of a failed run, within which it has written its last lines
	lastLines = 12          // at the end of a log, which tell the end of its run
)

// momentOf returns the time of a failed call that a line tells. of is the time of the line. A line without a time of its own
// came between the lines with a time around it, but for one that belongs to the message of a warning or an error. The last
// lines of a run that failed are of its end.
func momentOf(p *evidence.Pod, c *evidence.Container, l *evidence.Log, h evidence.Hit, last []evidence.Line, of evidence.Time) evidence.Time {
	t := timeOf(p, c, l, of)
	run := c.Run(l.Run)
	if !t.Known() || run == nil || h.Line.Time.Known() && !borrows(h) {
		return t
	}
	rest := h.After
	if i := slices.IndexFunc(last, func(x evidence.Line) bool { return x.Number > h.Line.Number }); i >= 0 && last[0].Number <= h.Line.Number {
		rest = last[i:]
	}
	for _, x := range rest {
		if x.Time.Known() && !x.Continues && x.Likely.Clock == t.Clock {
			return shorter(t, until(t, x.Likely))
		}
	}
	if !h.Line.Time.Known() && len(rest) > lastLines {
		return t
	}
	end := endOf(p, c, run)
	t = shorter(t, until(t, end))
	if run.Exit != nil && *run.Exit != 0 && len(rest) <= lastLines && end.Known() && end.At.Sub(t.At) > lastWord {
		t = until(evidence.Time{At: end.At.Add(-lastWord), Clock: t.Clock}, end)
	}
	return t
}

// shorter returns a span, or the time that it begins with if the span is unknown.
func shorter(from, span evidence.Time) evidence.Time {
	if !span.Known() {
		return from
	}
	return span
}

// borrows reports whether a line has only the time of the line before, and is no part of its message: that line is no warning
// and no error.
func borrows(h evidence.Hit) bool {
	n := len(h.Before)
	if !h.Line.Continues || n == 0 || h.Before[n-1].Time != h.Line.Time {
		return false
	}
	for _, head := range slices.Backward(h.Before) {
		if !head.Continues {
			text := string(head.Text)
			return why.LevelOf(text) < why.Warning && !Fails(text)
		}
	}
	return false
}
