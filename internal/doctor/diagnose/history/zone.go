package history

import (
	"slices"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// ZoneMatters reports whether a reader has to know that the times of a container's logs have no zone: a finding quotes
// a time of them without saying which zone it assumes, or the container is suspected and the times cannot decide.
func ZoneMatters(c *evidence.Container, verdict result.Verdict, findings []result.Finding) bool {
	if c == nil {
		return false
	}
	ofLog := func(q evidence.Quote) bool {
		return slices.ContainsFunc(c.Logs, func(l *evidence.Log) bool { return q.Source.File == l.Source.File })
	}
	assumed := func(q evidence.Quote) bool {
		return slices.ContainsFunc(c.Logs, func(l *evidence.Log) bool {
			_, a := l.InLikelyZone()
			return a != nil && *a == q
		})
	}
	return slices.ContainsFunc(findings, func(f result.Finding) bool {
		if f.Code == "shutdown-race" {
			return false // it says by what it places the call
		}
		if verdict == result.Undecided && f.Container == c.Name && len(c.Logs) > 0 {
			return true
		}
		return !slices.ContainsFunc(f.Evidence, assumed) &&
			slices.ContainsFunc(f.Evidence, func(q evidence.Quote) bool { return ofLog(q) && q.At.Known() && q.At.Clock != evidence.NodeClock })
	})
}
