package chain

import (
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// stopping has the forms in which programs say that they were told to stop. A mere mention of the signal, as in a
// setting, is none.
var stopping = regexp.MustCompile(`(?i)\b(?:received|got|caught|handling|handled|processing)\b[^.]{0,40}\b(?:sig)?term(?:inated|ination)?\b` +
	`|\b(?:received|caught|got)\b[^.]{0,20}\b(?:shutdown|stop|exit|quit|interrupt) (?:signal|request)` +
	`|\b(?:sig)?term(?:ination)? (?:signal )?(?:received|caught)|\bsignal["']?[ =:]+["']?(?:sigterm|terminated|15)\b` +
	`|\b(?:signal|shutdown request) received\b|\b(?:now |is |are )?shutting down(?:\W|$)|\b(?:warm|cold|graceful) shutdown(?: \(|\.\.\.| (?:started|begins|initiated|in progress)|$)` +
	`|\b(?:commencing|initiating|starting|beginning) (?:a )?(?:graceful )?shutdown|\bstopping (?:server|worker|consumer|listener)s?\b`)

// Stops returns the first of the last lines of a container's logs that says that it was told to stop, and false if none
// does.
func (c *Case) Stops(container string) (evidence.Quote, bool) {
	for _, t := range c.Tails {
		for _, q := range t.Lines {
			if t.Container == container && stopping.MatchString(q.Text) {
				return q, true
			}
		}
	}
	return evidence.Quote{}, false
}

// BySignal matches lines that say that a signal stops the program. A program that stops for a reason of its own says the
// rest of what [stopping] matches, too.
var BySignal = regexp.MustCompile(`(?i)\bsig(?:term|int)\b|\bsignal\b|\bterm(?:inated)?\b`)

// StoppedItself returns the line by which a container says in the log of a run that it was told to stop, if it comes before
// a line of that log: by a signal, or in a run that something else ended.
func (c *Case) StoppedItself(container string, run int, before evidence.Source) (evidence.Quote, bool) {
	r := c.Container(container).Run(run)
	if r == nil {
		return evidence.Quote{}, false
	}
	outside := c.Deleted() || r.Exit != nil && *r.Exit == 0 || r.Signal != 0 || c.Disrupted() || c.Object.Status.Reason != ""
	for _, t := range c.Tails {
		for _, q := range t.Lines {
			if t.Container == container && t.Run == run && q.Source.Line < before.Line && stopping.MatchString(q.Text) && (outside || BySignal.MatchString(q.Text)) {
				return q, true
			}
		}
	}
	return evidence.Quote{}, false
}

// StoppedBefore returns the lines that show that a helper was told to stop before a failed call of another container:
// the helper's own line and, if the clocks do not tell the order, the line before the call by which the caller itself
// says that it stops, since the kubelet tells all containers at once. It returns false if they do not show it.
func (c *Case) StoppedBefore(helper string, y calls.Call) ([]evidence.Quote, bool) {
	left, told := c.Stops(helper)
	if !told {
		return nil, false
	}
	if order := y.Last.Compare(left.At); order != evidence.CannotTell {
		return []evidence.Quote{left}, order == evidence.After
	}
	own, told := c.Stops(y.Container)
	if !told || own.Source.File != y.Quote.Source.File || own.Source.Line > y.Quote.Source.Line {
		return nil, false
	}
	own.At = evidence.Time{} // which may be taken over from the line before; the place tells the order
	return []evidence.Quote{left, own}, true
}

// leaves is the least time for which a pod serves, compared with which its start is short: a refused call without a time
// belongs to the part of the log where it stands.
const leaves = 10 * time.Minute

// Stopped returns the time at which the kubelet told the containers to end, by the clock of its source, and false if
// nothing shows that it did. The time is unknown if the evidence has only the fact. A pod is to be gone, by its
// deletionTimestamp, when its grace period is over, so that the period begins with the signal.
func (c *Case) Stopped() (evidence.Quote, bool) {
	if at, stops := c.EndOfAll(); stops {
		return at, true
	}
	if t, grace := c.Object.DeletionTimestamp, c.Object.DeletionGracePeriodSeconds; t != nil {
		if grace == nil {
			return evidence.Quote{Source: c.Source}, true
		}
		at := evidence.Second(t.Add(-time.Duration(*grace)*time.Second), evidence.APIClock)
		if told, is := c.told(at); is {
			return told, true
		}
		return c.Quote(at, "the pod was deleted, with a grace period of %d s", *grace), true
	}
	for _, v := range c.Object.Status.Conditions {
		if v.Type == corev1.DisruptionTarget && v.Status == corev1.ConditionTrue {
			return c.Quote(evidence.Second(v.LastTransitionTime.Time, evidence.APIClock), "the pod was told to end: %s", v.Reason), true
		}
	}
	return evidence.Quote{Source: c.Source}, c.Object.Status.Reason != ""
}

// OnClock returns a time of the API server as one of the node, with an error of seconds: by as much do the clocks of a
// cluster differ that works.
func OnClock(t evidence.Time) evidence.Time {
	const differ = 2 * time.Second
	if t.Clock == evidence.APIClock {
		t.At, t.Error, t.Clock = t.At.Add(-differ), t.Error+2*differ, evidence.NodeClock
	}
	return t
}

// SinceStop says whether a call failed after the kubelet had told the containers to end, with the quotes that show it: by
// the line before it in which its own program says that it stops, by its time, or, if its log names no zone, by UTC, with
// which it lies within the grace period of a pod that lived much longer.
func (c *Case) SinceStop(y calls.Call) (doctor.Answer, []evidence.Quote) {
	stop, stops := c.Stopped()
	if !stops {
		return doctor.No, nil
	}
	at := OnClock(stop.At)
	if own, told := c.Stops(y.Container); told && own.Source.File == y.Quote.Source.File {
		if own.Source.Line > y.Quote.Source.Line {
			return doctor.No, nil
		}
		own.At = evidence.Time{} // which may be taken over from the line before; the place tells the order
		return doctor.Yes, []evidence.Quote{own}
	}
	switch {
	case !y.Undated && y.Last.Compare(at) == evidence.Before:
		return doctor.No, nil
	case y.At.Compare(at) == evidence.After:
		return doctor.Yes, []evidence.Quote{stop}
	}
	switch written := y.Quote.At; {
	case !at.Known() || written.Clock == evidence.NodeClock:
	case !written.Known():
		if c.lateInItsLog(y) {
			return doctor.Yes, []evidence.Quote{c.Quote(evidence.Time{}, "the call is among the last lines of a log of %s, whose times are not known", y.Container)}
		}
	default:
		written.Clock = evidence.NodeClock
		if _, most, _ := written.Since(at); written.Compare(at) == evidence.After && most <= c.Grace()+time.Minute && c.livedBefore(at) {
			return doctor.Yes, []evidence.Quote{stop, c.Quote(evidence.Time{}, "the log of %s names no zone; by UTC the call comes %s after that", y.Container, written.At.Sub(stop.At.At).Round(time.Second))}
		}
	}
	return doctor.Perhaps, nil
}

// Grace returns the time that the containers had to end.
func (c *Case) Grace() time.Duration {
	for _, s := range []*int64{c.Object.DeletionGracePeriodSeconds, c.Object.Spec.TerminationGracePeriodSeconds} {
		if s != nil {
			return time.Duration(*s) * time.Second
		}
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// livedBefore reports whether all runs of the pod are long compared with its start, so that a time that fits the stop is
// hardly of the start.
func (c *Case) livedBefore(at evidence.Time) bool {
	return !slices.ContainsFunc(c.Containers, func(of *evidence.Container) bool {
		last := of.Last()
		if of.Kind != startup.Plain || last == nil {
			return false
		}
		least, _, ok := at.Since(last.Started)
		return !ok || least < leaves
	})
}

// lateInItsLog reports whether a call of which no time is known is among the last lines of a long run's log, and others
// come before it: a call that failed at the start stands at the beginning.
func (c *Case) lateInItsLog(y calls.Call) bool {
	const last, before = 3, 2 // lines
	stop, _ := c.Stopped()
	for _, t := range c.Tails {
		if n := len(t.Lines); t.Container == y.Container && t.Run == y.Run && n > 0 {
			return y.Quote.Source.Line > before && t.Lines[n-1].Source.Line-y.Quote.Source.Line-y.More < last && c.livedBefore(OnClock(stop.At))
		}
	}
	return false
}
