package calls

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// wordings match the errors that clients in the usual languages and libraries write. The texts of a proxy's responses
// come first, because they contain texts of other patterns.
var wordings = []evidence.Pattern{
	{Name: string(Ended), Any: []string{"reset reason: connection termination"}},
	{Name: string(Upstream), Any: []string{"upstream connect error", "delayed connect error", "no healthy upstream", "upstream request timeout", "remote connection failure"}},
	{Name: string(Refused), Any: []string{"connection refused", "econnrefused", "connectionrefused", "actively refused", "errno 111", "os error 111", "couldn't connect to server", "java.net.connectexception"}, Only: isRefused},
	{Name: string(Reset), Any: []string{"connection reset", "econnreset", "broken pipe", "socket hang up", "unexpected eof", "premature close", "closed by the remote", "remote end closed", "connection aborted"}, Only: notFromProxy},
	{Name: string(TimedOut), Any: []string{"connection timed out", "connect timed out", "connect timeout", "etimedout", "i/o timeout", "context deadline exceeded", "read timed out", "connection timeout"}, Only: notFromProxy},
	{Name: string(Unresolved), Any: []string{"no such host", "unknownhostexception", "name or service not known", "temporary failure in name resolution", "enotfound", "eai_again", "could not resolve host", "name does not resolve", "nodename nor servname", "unresolvedaddressexception", "host not found in upstream", "read udp"}},
	{Name: string(Unreachable), Any: []string{"network is unreachable", "no route to host", "ehostunreach", "enetunreach"}},
	// The wordings of Python's urllib, Go, Node's axios, Java and curl.
	{Name: string(Unavailable), Any: []string{"http error 503", "503 service unavailable", "status code 503", "response code: 503", "returned error: 503"}},
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

// addresses match the destination of a call in the errors of the usual clients. The groups are host and port.
var addresses = []*regexp.Regexp{
	regexp.MustCompile(`(?i)dial (?:tcp|udp)[46]? (?:lookup )?\[?([0-9a-z.:_-]+?)\]?:(\d+)`),                                                                      // Go
	regexp.MustCompile(`(?i)connection refused \(([0-9a-z._-]+):(\d+)\)`),                                                                                         // .NET
	regexp.MustCompile(`(?i)host='([^'/@\s"]+)', port=(\d+)`),                                                                                                     // Python, urllib3
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
func destinationOf(h evidence.Hit) doctor.Destination {
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
	return doctor.Destination{}
}

// linked reports whether a line belongs to the previous line: it has no time in a log whose lines have times, or it
// is part of a stack trace.
func linked(l evidence.Line) bool {
	text := l.Text
	return l.Continues || bytes.HasPrefix(text, []byte("Caused by:")) || bytes.HasPrefix(text, []byte("\t")) || bytes.HasPrefix(text, []byte("  "))
}

func named(line []byte) (doctor.Destination, bool) {
	for _, a := range addresses {
		m := a.FindSubmatch(line)
		if m == nil {
			continue
		}
		d := doctor.Destination{Host: strings.ToLower(string(m[1]))}
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
	return doctor.Destination{}, false
}
