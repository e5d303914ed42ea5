package evidence

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence/timestamp"
)

// A Zone is the time zone of the times in a container's logs that name no zone.
type Zone struct {
	Offset time.Duration // difference to UTC; positive east of Greenwich
	Known  bool
	Why    string // reason why the zone is known or not known

	// Likely is the most plausible offset, if the logs lie within their runs for several offsets: with it, a log
	// begins within a minute after the start of its run, because most programs write a line when they start. It is an
	// assumption. A caller may use it as the Offset only if its result says so.
	Likely    time.Duration
	HasLikely bool
}

// Settle determines what follows from all evidence of the pod together: the zones of its logs and the skew of its
// clocks. It notes times that cannot all be true.
func (p *Pod) Settle(ctx context.Context) {
	p.skew()
	p.place(ctx)
	p.contradictions()
}

// place finds the zone of each container's logs: the only offset from UTC for which each log lies within its run. All
// runs of a container have the same zone, so a short run, which fewer offsets fit, also determines the zone of a long
// one. If several fit, the zone that the container's environment sets counts, unless another one places the beginning of
// a log at that of its run: an image without the time zones writes UTC whatever is set. A zone alone does not place
// times without a date in a run of days.
func (p *Pod) place(ctx context.Context) {
	for _, c := range p.Containers {
		var fits []time.Duration
		var likely, shown Zone
		tried, until, dated := 0, time.Time{}, true
		for _, l := range c.Logs {
			l.window(c.Run(l.Run), p.Taken)
			for _, t := range []time.Time{l.from, l.to} {
				if t.After(until) {
					until = t
				}
			}
			first, last, zone, ok := l.ends(ctx)
			if zone.Known {
				shown = zone
			}
			if !ok || l.from.IsZero() {
				continue
			}
			dated = dated && (!first.NoDate || !l.to.IsZero() && l.to.Sub(l.from) < 24*time.Hour)
			found := timestamp.Fits(first, last, l.from, l.to, maxSlack)
			for _, offset := range found {
				if late := first.Instant(offset, l.from.Add(-maxSlack)).Sub(l.from); late <= time.Minute {
					likely.Likely, likely.HasLikely = offset, true
				}
			}
			if tried++; tried == 1 {
				fits = found
			} else {
				fits = slices.DeleteFunc(fits, func(o time.Duration) bool { return !slices.Contains(found, o) })
			}
		}
		declared, setting, isDeclared := p.declaredZone(c.Name, until)
		switch {
		case tried == 0:
			continue
		case shown.Known && (len(fits) == 0 || slices.Contains(fits, shown.Offset)):
			c.Zone = shown
		case len(fits) > 1 && isDeclared && dated && slices.Contains(fits, declared) && (!likely.HasLikely || likely.Likely == declared):
			c.Zone = Zone{Offset: declared, Known: true, Why: setting + " in its environment"}
		case len(fits) == 1:
			c.Zone = Zone{Offset: fits[0], Known: true, Why: "the only one that fits its run"}
		case len(fits) == 0:
			c.Zone = Zone{Why: "no zone fits its run: it is the log of another container or run, or a clock is off"}
			p.Notes = append(p.Notes, Note{Source: c.Logs[0].Source, Text: fmt.Sprintf("the log of container %s has times without a zone, and %s", c.Name, c.Zone.Why)})
		default:
			c.Zone = likely
			c.Zone.Why = fmt.Sprintf("%d zones fit its run", len(fits))
			c.Zone.HasLikely = likely.HasLikely && slices.Contains(fits, likely.Likely)
			p.Notes = append(p.Notes, Note{Source: c.Logs[0].Source, Zone: c.Name, Text: fmt.Sprintf("the log of container %s has times without a zone, and %s", c.Name, c.Zone.Why)})
		}
		for _, l := range c.Logs {
			l.Zone = c.Zone
		}
	}
}

// skew computes bounds of the difference between the node's and the API server's clock. The lower bound comes from
// events: the API server records an event after it happened on the node. The upper bound comes from the pod's start:
// a kubelet handles a pod after the API server has bound the pod to the node.
func (p *Pod) skew() {
	s := &p.Skew
	for _, e := range p.Events {
		if e.First.Clock != NodeClock || !e.First.Known() || !e.Recorded.Known() || e.About != About("Pod", p.Object.Namespace, p.Object.Name) {
			continue
		}
		if ahead := e.First.At.Sub(e.Recorded.Latest()); !s.HasLeast || ahead > s.Least {
			s.Least, s.HasLeast, s.By[0] = ahead, true, e.Source
		}
	}
	started := p.Object.Status.StartTime
	if started == nil || IsStatic(p.Object) {
		return // a static pod starts before the API server has its mirror, which may be made anew
	}
	assigned := p.Object.CreationTimestamp.Time
	for _, c := range p.Object.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(assigned) {
			assigned = c.LastTransitionTime.Time
		}
	}
	if !assigned.IsZero() {
		s.Most, s.HasMost, s.By[1] = started.Sub(assigned)+time.Second, true, p.Source
	}
}
