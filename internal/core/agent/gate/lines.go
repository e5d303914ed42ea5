package gate

import "time"

// A line about the missing dependencies is printed after sayAfter, and again each time the wait has grown by
// half, but at least once every sayAtMost. A line with a new reason is printed earlier, but at most once every
// sayAfter, and at most sayChanges times in all, so that alternating reasons cannot fill a node's disk.
const (
	sayAfter   = time.Second
	sayAtMost  = time.Minute
	sayChanges = 20
)

// lines decides when a line about the wait is printed.
type lines struct {
	at      time.Time // of the last line
	reasons string    // in that line
	changes int       // how many lines were printed early, for a new reason
}

func (l *lines) silent() time.Duration { return time.Since(l.at) }

// tooEarly reports whether no line may be printed yet, whatever the reasons are.
func (l *lines) tooEarly(waited time.Duration) bool {
	return waited < sayAfter || l.silent() < sayAfter
}

// due reports whether to print the reasons of a wait now, when it is not too early for a line.
func (l *lines) due(waited time.Duration, reasons string) bool {
	switch {
	case l.silent() >= min(max(waited/2, sayAfter), sayAtMost):
	case reasons != l.reasons && l.changes < sayChanges:
		l.changes++
	default:
		return false
	}
	l.at, l.reasons = time.Now(), reasons
	return true
}
