package facts

import (
	"regexp"
	"time"

	"outrider.dev/internal/doctor/evidence"
)

// uptime matches the time since its program's start with which a line of Linkerd's proxy begins.
var uptime = regexp.MustCompile(`^\[ *(\d+\.\d+s)\] `)

// Between returns the least time between two lines of one log: by their times, or by the time since the start of the program
// that both begin with.
func Between(from, to evidence.Quote) (least time.Duration, known bool) {
	if least, _, known = to.At.Since(from.At); known {
		return least, true
	}
	a, b := uptime.FindStringSubmatch(from.Text), uptime.FindStringSubmatch(to.Text)
	if a == nil || b == nil {
		return 0, false
	}
	begin, err := time.ParseDuration(a[1])
	end, failed := time.ParseDuration(b[1])
	return end - begin, err == nil && failed == nil
}
