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

// noHealthy matches a line of Envoy's access log with the flag UH: it knew no healthy endpoint of the destination, and
// tried none.
var noHealthy = regexp.MustCompile(`" \d{1,3} (?:[A-Z0-9]+,)*UH(?:,[A-Z0-9]+)* `)

var (
	accessOf   = regexp.MustCompile(` outbound\|(\d{1,5})\|[^|\s]*\|([\w.-]+)`)
	accessFor  = regexp.MustCompile(`"([a-zA-Z0-9][\w.:-]*)" "-"(?:\s|$)`)
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
	None bool // it knew no healthy endpoint, and so tried none
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
	if noHealthy.MatchString(line) && !strings.Contains(line, " inbound|") {
		if m := accessOf.FindStringSubmatch(line); m != nil {
			a.To = m[2] + ":" + m[1]
		} else if m := accessFor.FindStringSubmatch(line); m != nil {
			a.To = m[1]
		}
		a.None = true
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

// refusedInbound match what proxies say of a port of their own pod that refused them: Linkerd's, also in versions
// before 2.10, and Envoy's access log in the formats of Istio, Kuma and Consul, which name the cluster or the local
// address.
var refusedInbound = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\binbound\S*?:server\{port=(\d{1,5})\}.*connection refused`),
	regexp.MustCompile(`(?i)error occurred trying to connect: connection refused[^\n]*\(address: (?:127\.0\.0\.1|\[::1\]):(\d{1,5})\)`),
	regexp.MustCompile(`(?i)\b(?:UF|delayed.connect.error|connection refused)\b.*\binbound\|(\d{1,5})\|`),
	regexp.MustCompile(`(?i)\b(?:UF|delayed.connect.error|connection refused)\b.*\b(?:localhost|local_app|127\.0\.0\.1)[:_](\d{1,5})\b`),
}

// RefusedInbound returns the port of its own pod that refused a proxy, by a line of its log, and false if the line says
// something else.
func RefusedInbound(line string) (port string, is bool) {
	for _, form := range refusedInbound {
		if m := form.FindStringSubmatch(line); m != nil {
			return m[1], true
		}
	}
	return "", false
}

func milliseconds(digits string) time.Duration {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}
