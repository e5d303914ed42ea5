package facts

import (
	"bytes"
	"context"
	"time"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/timestamp"
)

// uptimeOf returns the time since its program's start with which a line of Linkerd's proxy begins; false: with none.
func uptimeOf(line []byte) (time.Duration, bool) {
	s, has := timestamp.Find(line)
	return s.Since, has && s.Form == timestamp.Uptime
}

// Between returns the least time between two lines of one log: by their times, or by the time since the start of the program
// that both begin with.
func Between(from, to evidence.Quote) (least time.Duration, known bool) {
	if least, _, known = to.At.Since(from.At); known {
		return least, true
	}
	begin, first := uptimeOf([]byte(from.Text))
	end, second := uptimeOf([]byte(to.Text))
	return end - begin, first && second
}

// FromStart reports whether the first lines of a log, which have the time since the start of their program, are of that start.
func FromStart(l *evidence.Log) bool {
	head, err := l.Head(context.Background(), 4096)
	for line := range bytes.Lines(head) {
		if since, has := uptimeOf(line); err == nil && has && since < time.Second {
			return true
		}
	}
	return false
}
