// Package chain links causes to effects: where a failed call went, what it led to, and whether a failed call explains
// the end of a run.
package chain

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/capturescope"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// A Case is a pod with its failed calls and its capture.
type Case struct {
	*facts.Pod
	calls.Reading
	Capture capturescope.Scope
	Lacking []evidence.Missing // missing evidence, also logs that could not be read to their end
}

// Of returns the case of a pod. It fails only if ctx ends.
func Of(ctx context.Context, p *evidence.Pod, showSecrets bool) (*Case, error) {
	f, err := facts.Of(ctx, p, showSecrets)
	if err != nil {
		return nil, err
	}
	read, err := calls.Read(ctx, p, f.Proxy, showSecrets)
	proxy := ""
	if f.Proxy != nil {
		proxy = f.Proxy.Name
	}
	return &Case{f, read, capturescope.OfPart(p.Object, proxy, p.Omitted), slices.Concat(p.Missing, f.Unread, read.Unread)}, err
}

// A Fate says where a failed call went.
type Fate struct {
	Taken  doctor.Answer // by the capture, to the proxy
	WhyNot string        // unless Taken is Yes
	facts.Listening
}

// FateOf returns the fate of a call.
func (c *Case) FateOf(y calls.Call) Fate {
	f := Fate{Listening: c.Listened(y.At)}
	f.Taken, f.WhyNot = c.Capture.Takes(y.Container, y.To)
	return f
}

// DoneSince reports whether a run of a container has ended, although the evidence does not say how: a later one works, or has
// done its work; or a line of kubectl get pods says so of the pod after a restart.
func (c *Case) DoneSince(app *evidence.Container, run int) bool {
	r, last, row := app.Run(run), app.Last(), c.Row
	recovered := row != nil && row.Restarts > 0 && (row.Status == "Completed" || row.Runs())
	well := last != nil && (last.Running || last.Exit != nil && *last.Exit == 0)
	return recovered || well && (r == nil && app.Restarts > 0 || r != nil && r.Exit == nil && r.Number < last.Number)
}

// An Effect describes the consequences of a failed call.
type Effect struct {
	Failed    string          // how the call failed, after its subject
	Ended     *evidence.Run   // the run that made the call, if it ended with a failure
	Over      *evidence.Quote // the run ended with a failure later, after it had got over the call: this shows it
	Retried   bool            // the run goes on, and repeated the call until the proxy listened
	GoesOn    bool            // the run goes on
	WellSince *evidence.Quote // the start of a later run without a refused call
	Recurs    *evidence.Quote // the same call was refused when the proxy listened, or long after its start: the start is not the cause
}

// String describes what the application did after the call.
func (e Effect) String() string {
	switch {
	case e.Over != nil:
		return e.Failed + ", and got over it"
	case e.Ended != nil:
		return fmt.Sprintf("%s, and ended (%s)", e.Failed, facts.ExitText(*e.Ended))
	case e.Retried:
		return e.Failed + ", tried again, and was no longer refused once the proxy was ready"
	case e.GoesOn:
		return e.Failed + ", and goes on, perhaps without the data that it requested"
	}
	return "and " + e.Failed
}

// failed describes the failures of calls that a proxy may have caused; others are as a refusal.
var failed = map[calls.Failure]string{
	calls.Refused: "was refused", calls.Reset: "was cut off", calls.TimedOut: "got no answer", calls.Unresolved: "got no answer",
	calls.Unavailable: "was told that the destination is not available", calls.Upstream: "was told that the destination is not available",
}

// EffectOf returns the effect of a failed call.
func (c *Case) EffectOf(y calls.Call) (e Effect) {
	e.Failed = failed[y.Failure]
	app := c.Container(y.Container)
	if r := app.Run(y.Run); r != nil {
		if r.Exit != nil && *r.Exit != 0 {
			e.Ended = r
		}
		if e.Over = c.GotOver(y); e.Over != nil {
			e.Ended = nil
		}
		e.GoesOn = r.Running
		e.Retried = r.Running && y.Last.Compare(y.At) == evidence.After && c.Listened(y.Last).Answer == doctor.No
	}
	if last := app.Last(); last != nil && last.Running && last.Number > y.Run && app.Log(last.Number) != nil && len(c.Calls.Of(app.Name, last.Number, y.Failure)) == 0 {
		q := c.Quote(last.Started, "%s runs since then (run %d), and its log has no such call", app.Name, last.Number)
		e.WellSince = &q
	}
	if which := c.Listened(y.At).Run; which >= 0 {
		e.Recurs = c.recurs(y, c.Serving[which])
	}
	return e
}

// atOnce is the time after a proxy's word that it is ready within which a client may still say what it was told before.
const atOnce = 2 * time.Second

// recurs returns a refusal of the same call at a time when the proxy listened, or long after the proxy's start.
func (c *Case) recurs(y calls.Call, proxy facts.Service) *evidence.Quote {
	for _, other := range c.Calls.By(y.Container, y.Failure) {
		if other.To != y.To {
			continue
		}
		least, _, ok := other.Last.Since(proxy.Started)
		after, _, known := other.Last.Since(proxy.Ready.At)
		if known && after < atOnce {
			continue
		}
		if l := c.Listened(other.Last).Answer; l == doctor.Yes || l == doctor.Perhaps && ok && least > facts.Settled {
			q := other.Quote
			q.At = other.Last
			return &q
		}
	}
	return nil
}

// Works reports whether a container does its work by now, without a failed call, or has done it.
func (c *Case) Works(container string) bool {
	app := c.Container(container)
	if app == nil || app.Last() == nil {
		return false
	}
	last := app.Last()
	return last.Running && len(c.Calls.Of(container, last.Number)) == 0 || last.Exit != nil && *last.Exit == 0
}

// near is the time before the end of a run within which a failed call may be its cause.
const near = time.Minute

// GotOver returns evidence that the end of the run that made a call has another cause: the call succeeded later, or the
// run went on for long. It returns nil if there is none, or the run has not ended.
func (c *Case) GotOver(y calls.Call) *evidence.Quote {
	r := c.Container(y.Container).Run(y.Run)
	if r == nil {
		return nil
	}
	if r.Reason == "OOMKilled" { // which no refused call causes
		q := c.Quote(r.Finished, "%s ran out of memory", y.Container)
		return &q
	}
	if q := c.outlivedUntilStop(y, *r); q != nil {
		return q
	}
	probed := r.Signal != 0 && c.HasEvent(y.Container, "Killing", "probe") // it may have waited for the call all the time
	if least, _, ok := r.Finished.Since(y.Last); ok && !r.Running && y.Last.Error < near && least > near && !probed {
		q := c.Quote(r.Finished, "%s ended %s after the call", y.Container, facts.Duration(least))
		return &q
	}
	if q := c.livedWith(y, *r); q != nil {
		return q
	}
	for _, s := range c.Successes {
		if s.Container == y.Container && s.Run == y.Run && s.At.Compare(y.Last) == evidence.After && y.Last.Error < near &&
			(!y.To.Known() || served.MatchString(s.Quote.Text) || strings.Contains(strings.ToLower(s.Quote.Text), y.To.Host) || y.To.Name != "" && strings.Contains(strings.ToLower(s.Quote.Text), y.To.Name)) {
			return &s.Quote
		}
	}
	return nil
}

// OfConnections matches reasons of an end for which a call that failed may be a cause.
var OfConnections = regexp.MustCompile(`(?i)connect|http|request|fetch|stream|host|time-?out|timed out|deadline|unavailable|unreachable|upstream|network|reset|closed|\beof\b|gateway|\b50[234]\b|socket|i/o|reachable|(?:not|n't|to) reach\b|\bretries\b|\b(?:retry|attempts?) \d|\d attempts\b|giving up|gave up`)

// decides matches the words of a program that ends by its own decision. They say that it does, and not why.
var decides = regexp.MustCompile(`(?i)\b(?:exit|abort|stopp|quitt|terminat|shutt)ing\b`)

// patience is the least time between a warning about a call and another reason of an end that is none of its consequences.
const patience = 5 * time.Second

// livedWith returns the line that tells the end of a run if it comes after a failed call, is about no call, and the program
// had lived with the call: the call failed in the same way for long, only lost a packet, or was a mere warning, some time
// before.
func (c *Case) livedWith(y calls.Call, r evidence.Run) *evidence.Quote {
	told, says := c.Reason(y.Container, y.Run)
	if r.Running || !says || calls.Fails(told.Text) || OfConnections.MatchString(told.Text) {
		return nil
	}
	q := told.Quotes[0]
	if q.Source.File != y.Quote.Source.File || q.Source.Line <= y.Quote.Source.Line || !why.Tells([]byte(q.Text)) {
		return nil
	}
	end := q.At
	if !end.Known() || end == y.Quote.At { // a line without a time has that of the line before
		end = r.Finished
	}
	if end.Compare(y.Last) == evidence.Before {
		return nil // it comes again
	}
	lasted, _, _ := y.Last.Since(y.Likely)
	since, _, ok := end.Since(y.Last)
	if every := lasted / time.Duration(max(y.More, 1)); y.More > 0 && ok && lasted <= near && since <= 2*every && decides.MatchString(told.Text) && why.Remedy(told.Text) == "" {
		return nil // the next attempt was due, and no other reason is given
	}
	level := why.LevelOf(y.Quote.Text)
	if y.To.Network == doctor.UDP || y.More > 0 && lasted > near || ok && since >= patience && level > why.NoLevel && level < why.Error {
		return &q
	}
	return nil
}

// served matches lines about requests that an application answered well.
var served = regexp.MustCompile(`\b(?:GET|POST|PUT|HEAD|DELETE|PATCH)\b.*\b20[0-9]\b`)

// Explained reports whether a run may have ended because of a failed call or because a probe failed.
func (c *Case) Explained(container string, r evidence.Run) bool {
	return r.Signal != 0 && c.HasEvent(container, "Killing", "probe") ||
		slices.ContainsFunc(c.Calls.Of(container, r.Number), func(y calls.Call) bool { return c.GotOver(y) == nil })
}

// Starts reports whether a container starts up, and does not say in its log that it listens, but elsewhere than at a port.
func (c *Case) Starts(container string, port uint16) bool {
	age, known := c.Age()
	return c.StartsUp(container, !known || age >= facts.Young) && !slices.ContainsFunc(c.Listens, func(l calls.Listen) bool {
		return l.Container == container && len(l.Ports) > 0 && !slices.Contains(l.Ports, int(port))
	})
}

// LastLines returns the last lines of the log of a run, n at most.
func (c *Case) LastLines(container string, run, n int) []evidence.Quote {
	for _, t := range c.Tails {
		if t.Container == container && t.Run == run {
			return t.Lines[max(len(t.Lines)-n, 0):]
		}
	}
	return nil
}

// Reason returns what the log of a run says about its end.
func (c *Case) Reason(container string, run int) (evidence.Told, bool) {
	for _, t := range slices.Concat(c.Reasons, c.ProxyReasons) {
		if t.Container == container && t.Run == run {
			return t, true
		}
	}
	return evidence.Told{}, false
}

// Now returns the last moment of the evidence.
func (c *Case) Now() time.Time {
	until := c.Taken.At
	later := func(t time.Time) {
		if t.After(until) {
			until = t
		}
	}
	for _, e := range c.Events {
		later(e.Last.At)
	}
	for _, condition := range c.Object.Status.Conditions {
		later(condition.LastTransitionTime.Time)
	}
	for _, of := range c.Containers {
		for _, r := range of.Runs {
			later(r.Started.At)
			later(r.Finished.At)
		}
	}
	for _, t := range c.Tails {
		for _, q := range t.Lines {
			if q.At.Clock == evidence.NodeClock {
				later(q.At.At)
			}
		}
	}
	return until
}

// Age returns the time from the moment when the kubelet saw the pod until the last moment of the evidence, or its age in a
// line of kubectl get pods.
func (c *Case) Age() (time.Duration, bool) {
	from := c.Object.CreationTimestamp.Time
	if t := c.Object.Status.StartTime; t != nil {
		from = t.Time
	}
	return max(c.Now().Sub(from), c.Listed), !from.IsZero()
}

// InAnyZone reports whether a time without a zone lies between two others in one of the zones, which are quarters of an hour
// apart, so that few moments do by chance.
func InAnyZone(at, from, to evidence.Time) bool {
	const apart, most = 15 * time.Minute, time.Minute
	if at.Clock == from.Clock || !strings.HasPrefix(string(at.Clock), "log ") || to.Clock != from.Clock && to.Compare(from) == evidence.Before {
		return false
	}
	since, lasts := at.At.Sub(from.At)%apart, to.Latest().Sub(from.At)
	if since < 0 {
		since += apart
	}
	return lasts > 0 && lasts < most && since < lasts
}
