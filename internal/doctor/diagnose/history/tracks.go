// Package history has what happened in a pod, container by container and in the order of time, for people and pictures.
package history

import (
	"cmp"
	"slices"

	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// MostMarks is the largest number of marks in a track, so that a picture stays readable and a report small.
const MostMarks = 200

// Tracks returns the tracks of all containers that have a run or a mark, in the pod's order.
func Tracks(s *facts.Pod, failed calls.Calls) (out []result.Track) {
	for _, c := range s.Containers {
		t := result.Track{Container: c.Name, Role: role(s, c)}
		for _, r := range c.Runs {
			v := result.Span{Number: r.Number, Started: r.Started, Finished: r.Finished, Running: r.Running}
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

func role(s *facts.Pod, c *evidence.Container) result.Role {
	switch {
	case c == s.Proxy:
		return result.ProxyRole
	case slices.Contains(s.Apps, c):
		return result.AppRole
	case c.Kind == startup.Init:
		return result.InitRole
	}
	return result.OtherRole
}

// marks returns the failed calls in a container's log; for the proxy, also its lines about its state and the
// moments when it became ready. Lines without a known time on the node's clock are left out.
func marks(s *facts.Pod, failed calls.Calls, c *evidence.Container) (out []result.Mark) {
	add := func(kind result.MarkKind, q evidence.Quote, about string) {
		if q.At.Known() && q.At.Clock == evidence.NodeClock {
			out = append(out, result.Mark{Kind: kind, Quote: q, About: about})
		}
	}
	for _, y := range failed.By(c.Name) {
		q := y.Quote
		q.At = y.At
		add(result.MarkCall, q, y.String())
	}
	if c == s.Proxy {
		for _, v := range s.Serving {
			add(result.MarkReady, v.Ready, "is ready")
		}
		for _, q := range s.Said.All() {
			if !slices.ContainsFunc(out, func(m result.Mark) bool { return m.Source == q.Source }) {
				add(result.MarkedLine, q, "")
			}
		}
	}
	slices.SortStableFunc(out, func(a, b result.Mark) int {
		return cmp.Or(a.At.At.Compare(b.At.At), cmp.Compare(a.Source.Line, b.Source.Line))
	})
	return out
}
