package chain

import (
	"regexp"

	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/evidence"
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

// bySignal matches lines that say that a signal stops the program. A program that stops for a reason of its own says the
// rest of what [stopping] matches, too.
var bySignal = regexp.MustCompile(`(?i)\bsig(?:term|int)\b|\bsignal\b|\bterm(?:inated)?\b`)

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
			if t.Container == container && t.Run == run && q.Source.Line < before.Line && stopping.MatchString(q.Text) && (outside || bySignal.MatchString(q.Text)) {
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
