package diagnose

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/doctor/diagnose/capturescope"
	"outrider.dev/internal/doctor/evidence"
)

// A failure is the kind of error that a failed call had, according to the caller's log.
type failure string

// The failures.
const (
	refused     failure = "refused"     // by a kernel, the caller's or the destination's: ECONNREFUSED
	reset       failure = "reset"       // the connection was established, and then reset or closed
	timedOut    failure = "timed out"   // no answer
	unresolved  failure = "unresolved"  // a name had no address
	unreachable failure = "unreachable" // no route
	upstream    failure = "upstream"    // a proxy responds that it could not reach the destination
	ended       failure = "ended"       // a proxy responds that the destination closed the connection before it answered
	unavailable failure = "unavailable" // a proxy or the destination responds with 503
)

// A symptom is a failed call in a container's log.
type symptom struct {
	kind      failure
	container string
	run       int // -1: not known
	to        capturescope.Destination
	at        evidence.Time
	likely    evidence.Time // same as the field at, but computed with the likely zone if the log's zone is not known
	last      evidence.Time // the likely time of the last similar line
	quote     Quote
	more      int // number of similar lines after the first one
}

// texts match the errors that clients in the usual languages and libraries write. The texts of a proxy's responses
// come first, because they contain texts of other patterns.
var texts = []evidence.Pattern{
	{Name: string(ended), Any: []string{"reset reason: connection termination"}},
	{Name: string(upstream), Any: []string{"upstream connect error", "delayed connect error", "no healthy upstream", "upstream request timeout", "remote connection failure"}},
	{Name: string(refused), Any: []string{"connection refused", "econnrefused", "connectionrefused", "actively refused", "errno 111", "os error 111", "couldn't connect to server", "java.net.connectexception"}, Only: isRefused},
	{Name: string(reset), Any: []string{"connection reset", "econnreset", "broken pipe", "socket hang up", "unexpected eof", "premature close", "closed by the remote", "remote end closed", "connection aborted"}, Only: notFromProxy},
	{Name: string(timedOut), Any: []string{"connection timed out", "connect timed out", "connect timeout", "etimedout", "i/o timeout", "context deadline exceeded", "read timed out", "connection timeout"}, Only: notFromProxy},
	{Name: string(unresolved), Any: []string{"no such host", "unknownhostexception", "name or service not known", "temporary failure in name resolution", "enotfound", "eai_again", "could not resolve host", "name does not resolve", "nodename nor servname", "unresolvedaddressexception", "host not found in upstream", "read udp"}},
	{Name: string(unreachable), Any: []string{"network is unreachable", "no route to host", "ehostunreach", "enetunreach"}},
	// The wordings of Python's urllib, Go, Node's axios, Java and curl.
	{Name: string(unavailable), Any: []string{"http error 503", "503 service unavailable", "status code 503", "response code: 503", "returned error: 503"}},
}

// notFromProxy reports whether a line is not the logged response of an Envoy whose own upstream connection failed.
func notFromProxy(line []byte) bool {
	l := bytes.ToLower(line)
	for _, s := range []string{"upstream connect error", "delayed connect error", "delayed_connect_error", "remote connection failure"} {
		if bytes.Contains(l, []byte(s)) {
			return false
		}
	}
	return true
}

// isRefused reports whether a line is about a refused TCP connection. It rejects three kinds of lines: refusals by a
// name server over UDP, which is not captured; a ConnectException of Java with another message; and a
// quoted "connection refused", which is the value of a setting.
func isRefused(line []byte) bool {
	l := string(bytes.ToLower(bytes.TrimSpace(line)))
	_, java, is := strings.Cut(l, "java.net.connectexception")
	switch {
	case strings.Contains(l, "read udp"), quotedWords.MatchString(l):
		return false
	case is && java != "" && !strings.Contains(java, "refused"):
		return false
	}
	return notFromProxy(line)
}

var quotedWords = regexp.MustCompile(`["']connection refused["']`)

// readLogs scans each log. If the time zone of a log is not known, it scans the log again with the likely zone, for
// the times of failed calls. It fails only if ctx ends.
func (s *subject) readLogs(ctx context.Context) error {
	for _, c := range s.Containers {
		patterns := texts
		if c == s.proxy {
			patterns = proxyTexts
		}
		for _, l := range c.Logs {
			if c == s.proxy && !l.Zone.Known && l.Zone.HasLikely {
				l, s.proxyZone = inLikelyZone(l), assumedZone(l)
			}
			found, err := l.Scan(ctx, patterns)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				s.Missing = append(s.Missing, evidence.Missing{Kind: l.Source.Kind, What: l.Source.String(), Why: err.Error()})
			}
			if c == s.proxy {
				s.known.add(s, l, found)
				continue
			}
			likely := found
			if len(found) > 0 && !l.Zone.Known && l.Zone.HasLikely {
				if likely, err = inLikelyZone(l).Scan(ctx, patterns); err != nil || len(likely) != len(found) {
					likely = found
				}
			}
			s.addSymptoms(c, l, found, likely)
		}
	}
	return ctx.Err()
}

// addSymptoms adds the failed calls of a run. Calls with the same failure and destination become one symptom, which
// has the first line and the number of the other lines.
func (s *subject) addSymptoms(c *evidence.Container, l *evidence.Log, found, likely []evidence.Hit) {
	type key struct {
		kind failure
		to   capturescope.Destination
	}
	first := map[key]int{}
	for i, h := range found {
		if bytes.Contains(h.Line.Text, []byte(contract.GateSays)) {
			continue // a gate wrote this line: it polls a container that does not listen yet
		}
		k := key{failure(h.Pattern), destinationOf(h)}
		last := s.timeOf(c, l, likely[i].Line)
		if at, seen := first[k]; seen {
			s.symptoms[at].more++
			s.symptoms[at].last = last
			continue
		}
		// The lines of a stack trace repeat its first line.
		if n := len(s.symptoms); n > 0 && h.Line.Continues && s.symptoms[n-1].container == c.Name && s.symptoms[n-1].run == l.Run && s.symptoms[n-1].kind == k.kind {
			if !s.symptoms[n-1].to.Known() {
				s.symptoms[n-1].to = k.to
			}
			continue
		}
		first[k] = len(s.symptoms)
		s.symptoms = append(s.symptoms, symptom{
			kind: k.kind, container: c.Name, run: l.Run, to: k.to, at: s.timeOf(c, l, h.Line), likely: last, last: last,
			quote: Quote{l.At(h.Line), h.Line.Time, s.show(h.Line.Text)},
		})
	}
}

// placed sets the time of a symptom by the likely zone of its log, and quotes this assumption. It returns nil, and
// changes nothing, if the zone of the log is known or no zone is likely.
func (s *subject) placed(app *evidence.Container, y *symptom) *Quote {
	l := app.Log(y.run)
	if l == nil || l.Zone.Known || !l.Zone.HasLikely || !y.likely.Known() || y.likely == y.at {
		return nil
	}
	y.at = y.likely
	return assumedZone(l)
}

// inLikelyZone returns a copy of the log for which the likely zone counts as known.
func inLikelyZone(l *evidence.Log) *evidence.Log {
	placed := *l
	placed.Zone.Offset, placed.Zone.Known = l.Zone.Likely, true
	return &placed
}

// assumedZone returns a quote that states the assumption about the time zone of a log.
func assumedZone(l *evidence.Log) *Quote {
	return &Quote{Source: l.Source, Text: fmt.Sprintf("its times have no zone: UTC%+.1f h is assumed, with which the log begins within a minute after its run", l.Zone.Likely.Hours())}
}

// timeOf returns the time of a line. If the line has none on the node's clock, it returns the start of the run, with
// the length of the run as the error.
func (s *subject) timeOf(c *evidence.Container, l *evidence.Log, line evidence.Line) evidence.Time {
	if line.Time.Known() && line.Time.Clock == evidence.NodeClock {
		return line.Time
	}
	run := c.Run(l.Run)
	if run == nil || !run.Started.Known() {
		return evidence.Time{}
	}
	t := run.Started
	switch {
	case run.Finished.Known():
		t.Error = run.Finished.Latest().Sub(t.At)
	case s.Taken.Known():
		t.Error = s.Taken.Latest().Sub(t.At)
	default:
		return evidence.Time{}
	}
	return t
}

// addresses match the destination of a call in the errors of the usual clients. The groups are host and port.
var addresses = []*regexp.Regexp{
	regexp.MustCompile(`(?i)dial (?:tcp|udp)[46]? (?:lookup )?\[?([0-9a-z.:_-]+?)\]?:(\d+)`),                                                                      // Go
	regexp.MustCompile(`(?i)connection refused \(([0-9a-z._-]+):(\d+)\)`),                                                                                         // .NET
	regexp.MustCompile(`(?i)host='([^']+)', port=(\d+)`),                                                                                                          // Python, urllib3
	regexp.MustCompile(`\('([0-9a-zA-Z.:_-]+)', (\d+)\)`),                                                                                                         // Python, asyncio
	regexp.MustCompile(`(?i)E(?:CONNREFUSED|CONNRESET|TIMEDOUT|HOSTUNREACH|NETUNREACH) \[?([0-9a-f.:]+?)\]?:(\d+)`),                                               // Node
	regexp.MustCompile(`(?i)(?:ENOTFOUND|EAI_AGAIN) ([0-9a-z._-]+)`),                                                                                              // Node
	regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.]{1,20}://(?:[^\s/@'"]*@)?\[?([0-9a-z._-]+|[0-9a-f:]+)\]?(?::(\d+))?`),                                                // a URL
	regexp.MustCompile(`(?i)(?:failed|could not|couldn't|unable|cannot|can't) (?:to )?connect to (?:server )?[/'"]?([0-9a-z._-]+)['"]?(?: port |:|, port )(\d+)`), // curl, OkHttp, libpq
	regexp.MustCompile(`(?i)(?:connect(?:ion|ing)?|call|request) (?:to|with) [/'"]?([0-9a-z._-]+)['"]?(?:/[0-9.]+)?(?: port |:)(\d+)`),
	regexp.MustCompile(`(?i)(?:UnknownHostException|no such host|resolve host|Name or service not known|name resolution)[:\s]+'?([0-9a-z._-]+)'?`),
	regexp.MustCompile(`(?i)lookup ([0-9a-z._-]+)`),
	regexp.MustCompile(`(?:^|[\s/(\["'@=])(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}):(\d{1,5})\b`),
}

// destinationOf returns the destination that is named by the line, or by a line of the same stack trace.
func destinationOf(h evidence.Hit) capturescope.Destination {
	if d, ok := named(h.Line.Text); ok {
		return d
	}
	for _, l := range h.After { // the rest of the stack trace, which may name a cause
		if !linked(l) {
			break
		}
		if d, ok := named(l.Text); ok {
			return d
		}
	}
	for i, below := len(h.Before)-1, h.Line; i >= 0 && linked(below); i-- { // upwards to the first line of the stack trace
		below = h.Before[i]
		if d, ok := named(below.Text); ok {
			return d
		}
	}
	return capturescope.Destination{}
}

// linked reports whether a line belongs to the previous line: it has no time in a log whose lines have times, or it
// is part of a stack trace.
func linked(l evidence.Line) bool {
	text := l.Text
	return l.Continues || bytes.HasPrefix(text, []byte("Caused by:")) || bytes.HasPrefix(text, []byte("\t")) || bytes.HasPrefix(text, []byte("  "))
}

func named(line []byte) (capturescope.Destination, bool) {
	for _, a := range addresses {
		m := a.FindSubmatch(line)
		if m == nil {
			continue
		}
		d := capturescope.Destination{Host: strings.ToLower(string(m[1]))}
		if len(m) > 2 {
			n, _ := strconv.ParseUint(string(m[2]), 10, 16)
			d.Port = uint16(n)
		}
		if d.Port == 0 && bytes.Contains(bytes.ToLower(line), []byte("https://")) {
			d.Port = 443
		} else if d.Port == 0 && bytes.Contains(bytes.ToLower(line), []byte("http://")) {
			d.Port = 80
		}
		return d, true
	}
	return capturescope.Destination{}, false
}

// of returns the symptoms of the given kinds in one run of a container.
func (s *subject) of(container string, run int, kinds ...failure) (out []symptom) {
	for _, y := range s.symptoms {
		for _, k := range kinds {
			if y.container == container && y.run == run && y.kind == k {
				out = append(out, y)
			}
		}
	}
	return out
}

func (y symptom) String() string {
	times := ""
	if y.more > 0 {
		times = fmt.Sprintf(", %d times", y.more+1)
	}
	return fmt.Sprintf("a call to %s: %s%s", y.to, y.kind, times)
}
