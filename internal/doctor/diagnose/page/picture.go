package page

import (
	"fmt"
	"time"

	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/diagnose/result"
)

// SVG formats the reports as one self-contained picture with a lane for each container. All pods share one time axis,
// on which 0 is the earliest time of each pod.
func SVG(reports []result.Report) string {
	var all []chart.Chart
	for _, r := range reports[:min(len(reports), mostPods)] {
		all = append(all, picture(r))
	}
	if more := len(reports) - mostPods; more > 0 {
		all = append(all, chart.Chart{Title: fmt.Sprintf("%d more pods are not shown", more)})
	}
	return chart.SVG(all)
}

// picture returns the chart of a report.
func picture(r result.Report) chart.Chart {
	zero := firstMoment(r)
	c := chart.Chart{Title: oneLine(cut(r.Pod, longestName)), Description: cut(r.Sentence, longestLine) + "\n" + timeline(r)}
	if r.Verdict != result.Nothing {
		c.Notes = []string{oneLine(cut(r.Sentence, 160))}
	}
	last := time.Duration(0)
	for _, t := range r.Tracks {
		for _, v := range t.Runs {
			last = max(last, after(v.Started.At, zero), after(v.Finished.At, zero))
		}
		for _, m := range t.Marks {
			last = max(last, after(m.At.At, zero))
		}
	}
	c.End = max(last+last/8, time.Second).Round(10 * time.Millisecond)
	for _, t := range r.Tracks {
		c.Lanes = append(c.Lanes, lane(t, zero, c.End))
	}
	return c
}

// firstMoment returns the earliest time in the tracks.
func firstMoment(r result.Report) (zero time.Time) {
	first := func(t time.Time) {
		if !t.IsZero() && (zero.IsZero() || t.Before(zero)) {
			zero = t
		}
	}
	for _, t := range r.Tracks {
		for _, v := range t.Runs {
			first(v.Started.At)
			first(v.Finished.At)
		}
		for _, m := range t.Marks {
			first(m.At.At)
		}
	}
	return zero
}

// after returns the time since zero, or 0 if t is not known.
func after(t, zero time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return t.Sub(zero).Round(time.Millisecond)
}

func lane(t result.Track, zero time.Time, end time.Duration) chart.Lane {
	l := chart.Lane{Name: oneLine(cut(t.Container, longestName))}
	for _, v := range t.Runs {
		run := fmt.Sprintf("run %d", v.Number)
		if v.Ended != "" {
			run += ", " + oneLine(cut(v.Ended, longestLine))
		}
		from, to := after(v.Started.At, zero), end
		if v.Finished.Known() {
			to = after(v.Finished.At, zero)
			kind := chart.Completed
			if v.Failed {
				kind = chart.Crashed
			}
			l.Marks = append(l.Marks, chart.Mark{Kind: kind, At: to, Detail: run})
		}
		if !v.Started.Known() || !v.Finished.Known() && !v.Running {
			continue // the start or the end of this run is not known
		}
		l.Spans = append(l.Spans, spans(t, from, to, zero, run)...)
	}
	for _, m := range t.Marks[:min(len(t.Marks), mostMarks)] {
		kind := map[result.MarkKind]chart.MarkKind{result.MarkReady: chart.Ready, result.MarkCall: chart.CallFailed, result.MarkedLine: chart.Line}[m.Kind]
		l.Marks = append(l.Marks, chart.Mark{Kind: kind, At: after(m.At.At, zero), Detail: oneLine(cut(m.Text, longestLine))})
	}
	return l
}

// spans returns the spans of one run. If a mark shows when the container was ready, the run is divided there; only
// proxies have such marks, from their logs.
func spans(t result.Track, from, to time.Duration, zero time.Time, detail string) []chart.Span {
	for _, m := range t.Marks {
		if ready := after(m.At.At, zero); m.Kind == result.MarkReady && ready >= from && ready <= to {
			return []chart.Span{{Phase: chart.Running, From: from, To: ready, Detail: detail}, {Phase: chart.Healthy, From: ready, To: to, Detail: detail}}
		}
	}
	return []chart.Span{{Phase: chart.Alive, From: from, To: to, Detail: detail}}
}
