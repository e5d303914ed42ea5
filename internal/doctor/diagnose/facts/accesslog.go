package facts

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// connectFailed matches a line of Envoy's access log with the flag UF: it made no connection to the destination.
var connectFailed = regexp.MustCompile(`" \d{1,3} (?:[A-Z0-9]+,)*UF(?:,[A-Z0-9]+)* `)

var (
	accessTo   = regexp.MustCompile(`"([\w.:-]*)" "((?:\[[0-9a-f:]+\]|[\w.-]+):\d{1,5})"(?: (?:outbound\||PassthroughCluster|BlackHoleCluster|[\w|.-]+ )|\s*$)`)
	accessTook = regexp.MustCompile(`" \d{1,3} [A-Z0-9,]+ (?:\S+ \S+ "[^"]*" )?\d+ \d+ (\d{1,9}) `)
	// ofLinkerd matches what Linkerd's proxy says of an endpoint, and of the service that it is of.
	ofLinkerd = regexp.MustCompile(`\boutbound:.*?(?:service\{ns=([\w.-]+) name=([\w.-]+) port=(\d{1,5})\}:)?endpoint\{addr=((?:\[[0-9a-f:]+\]|[0-9.]+):\d{1,5})\}: linkerd_reconnect: Failed to connect error=(.*)`)
	timedOut  = regexp.MustCompile(`timed out after (\d{1,4})s`)
)

// An Attempt is a connection that the proxy did not make, by its log.
type Attempt struct {
	To   string // name (address:port), or one of them; empty: the line does not name it
	Took time.Duration
}

// AttemptOf reads a line of Envoy's access log, in the format of Envoy or of Istio, or one of Linkerd's proxy. It returns
// false if the line is about something else.
func AttemptOf(line string) (a Attempt, ok bool) {
	if m := ofLinkerd.FindStringSubmatch(line); m != nil {
		if a.To = m[4]; m[2] != "" {
			a.To = fmt.Sprintf("%s.%s:%s (%s)", m[2], m[1], m[3], m[4])
		}
		if m := timedOut.FindStringSubmatch(m[5]); m != nil {
			a.Took = milliseconds(m[1] + "000")
		}
		return a, true
	}
	if !connectFailed.MatchString(line) {
		return Attempt{}, false
	}
	if m := accessTo.FindStringSubmatch(line); m != nil {
		if a.To = m[2]; strings.Trim(m[1], "-") != "" && !strings.HasPrefix(m[2], m[1]) {
			a.To = fmt.Sprintf("%s (%s)", m[1], m[2])
		}
	}
	if m := accessTook.FindStringSubmatch(line); m != nil {
		a.Took = milliseconds(m[1])
	}
	return a, true
}

func milliseconds(digits string) time.Duration {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}
