package facts

import (
	"regexp"
	"strconv"
	"time"
)

// connectFailed matches a line of Envoy's access log with the flag UF: it made no connection to the destination.
var connectFailed = regexp.MustCompile(`" \d{1,3} (?:[A-Z0-9]+,)*UF(?:,[A-Z0-9]+)* `)

var (
	accessTo   = regexp.MustCompile(`"((?:\[[0-9a-f:]+\]|[\w.-]+):\d{1,5})" (?:outbound\||PassthroughCluster|BlackHoleCluster|[\w|.-]+ )`)
	accessTook = regexp.MustCompile(`" \d{1,3} [A-Z0-9,]+ (?:\S+ \S+ "[^"]*" )?\d+ \d+ (\d{1,9}) `)
)

// An Attempt is a connection that the proxy did not make, by its access log.
type Attempt struct {
	To   string // host:port; empty: the line does not name it
	Took time.Duration
}

// AttemptOf reads a line of Envoy's access log, in the format of Envoy or of Istio. It returns false if the line is
// about something else.
func AttemptOf(line string) (a Attempt, ok bool) {
	if !connectFailed.MatchString(line) {
		return Attempt{}, false
	}
	if m := accessTo.FindStringSubmatch(line); m != nil {
		a.To = m[1]
	}
	if m := accessTook.FindStringSubmatch(line); m != nil {
		n, err := strconv.Atoi(m[1])
		if err == nil {
			a.Took = time.Duration(n) * time.Millisecond
		}
	}
	return a, true
}
