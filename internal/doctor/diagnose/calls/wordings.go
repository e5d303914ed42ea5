package calls

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// wordings match the errors that clients in the usual languages and libraries write. The texts of a proxy's responses
// come first, because they contain texts of other patterns.
var wordings = []evidence.Pattern{
	{Name: string(Ended), Any: []string{"reset reason: connection termination"}},
	{Name: string(Upstream), Any: []string{"upstream connect error", "delayed connect error", "no healthy upstream", "upstream request timeout", "remote connection failure", "l5d-proxy-error"}},
	{Name: string(Refused), Any: refusals, Only: isRefused},
	{Name: string(Reset), Any: []string{"connection reset", "econnreset", "broken pipe", "socket hang up", "unexpected eof", "premature close", "closed by the remote", "remote end closed", "connection aborted"}, Only: notFromProxy},
	{Name: string(TimedOut), Any: []string{"connection timed out", "connect timed out", "connect timeout", "etimedout", "i/o timeout", "context deadline exceeded", "read timed out", "connection timeout"}, Only: notFromProxy},
	{Name: string(Unresolved), Any: []string{"no such host", "unknownhostexception", "name or service not known", "temporary failure in name resolution", "enotfound", "eai_again", "could not resolve host", "name does not resolve", "nodename nor servname", "unresolvedaddressexception", "host not found in upstream", "read udp"}, Only: isUnresolved},
	{Name: string(Unreachable), Any: []string{"network is unreachable", "no route to host", "ehostunreach", "enetunreach"}},
	// The wordings of Python's urllib, Go, Node's axios, Java and curl. A proxy answers so too of a destination that it
	// does not reach: Envoy with 503, Linkerd with 502 or 504.
	{Name: string(Unavailable), Any: []string{"http error 503", "503 service unavailable", "status code 503", "response code: 503", "returned error: 503",
		"http error 502", "502 bad gateway", "status code 502", "response code: 502", "returned error: 502", "http error 504", "504 gateway time", "status code 504", "response code: 504", "returned error: 504"}},
}

// successes match lines that say that a connection or a request succeeded.
var successes = evidence.Pattern{
	Name: "success",
	Any:  []string{"connected to", "connected.", "reconnected", "connection established", "connection restored", "recovered", "success", "retry ok", " ok", "established", " 200", "status=200", `"status":200`},
	Only: func(line []byte) bool {
		l := bytes.ToLower(line)
		return !slices.ContainsFunc([]string{"not ", "fail", "unsuccess", "error", "cannot", "unable", "lost", "refused", "before"}, func(word string) bool { return bytes.Contains(l, []byte(word)) })
	},
}

// addresses match lines with a URL.
var addresses = evidence.Pattern{Name: "address", Any: []string{"://"}}

// refusals are texts of refused connections: the kernel's error by its name, its number, or its text in the languages
// of glibc, and the sentences of clients that leave it out.
var refusals = []string{
	"connection refused", "econnrefused", "connectionrefused", "actively refused", "connection was refused",
	"errno 111", "os error 111", "code: 111", "error 111", "(111)", " refused.", " was refused - ", "refused. check",
	"接続を拒否されました", "拒绝连接", "连接被拒绝", "連線被拒絕", "연결이 거부", "verbindungsaufbau abgelehnt", "connexion refusée", "conexión rehusada", "conexão recusada", "connessione rifiutata", "в соединении отказано", "połączenie odrzucone",
	"couldn't connect to server", "could not connect to the endpoint", "can't contact", "all connection attempts failed", "client not connected",
	"java.net.connectexception", "cannot connect to the docker daemon", "connection to server on socket", "local mysql server through socket",
}

// notFromProxy reports whether a line is not the logged response of an Envoy whose own upstream connection failed.
func notFromProxy(line []byte) bool {
	l := bytes.ToLower(line)
	for _, s := range []string{"upstream connect error", "delayed connect error", "delayed_connect_error", "remote connection failure", "l5d-proxy-error"} {
		if bytes.Contains(l, []byte(s)) {
			return false
		}
	}
	return true
}

// isRefused reports whether a line is about a refused connection. It rejects a ConnectException of Java with another
// message, and texts in which nothing was called: a quoted "connection refused" that is the value of a setting, a
// question, the title of a page.
func isRefused(line []byte) bool {
	l := string(bytes.ToLower(bytes.TrimSpace(line)))
	_, java, is := strings.Cut(l, "java.net.connectexception")
	switch {
	case strings.Contains(l, "read udp"), quotedWords.MatchString(l) && !errno.MatchString(l), prose.MatchString(l):
		return false
	case is && java != "" && !strings.Contains(java, "refused") && !strings.Contains(java, "failed to connect"):
		return false
	}
	return notFromProxy(line)
}

// isUnresolved reports whether a line is about a name. FileNotFoundException and ModuleNotFoundError are not, although
// they contain the letters of ENOTFOUND.
func isUnresolved(line []byte) bool {
	return unresolved.Match(bytes.ToLower(line))
}

var unresolved = regexp.MustCompile(`\benotfound\b|no such host|unknownhostexception|name or service not known|name resolution|eai_again|could not resolve host|name does not resolve|nodename nor servname|unresolvedaddress|host not found in|read udp`)

var (
	quotedWords = regexp.MustCompile(`["']connection refused["']`)
	prose       = regexp.MustCompile(`\b(?:why|how|when|what|whether|handl\w+|retr\w+ (?:on|for)|explain\w*|about|troubleshoot\w*)\b[^:]{0,60}connection refused`)
	errno       = regexp.MustCompile(`\b111\b|connectionrefused`)
)

// unresolvedName is the name that was not resolved.
var unresolvedName = regexp.MustCompile(`(?i)(?:(?:getaddrinfo )?(?:ENOTFOUND|EAI_AGAIN)|lookup|getaddrinfo for|(?:Unknown ?Host(?:Exception)?|no such host|host not found in \w+|resolve (?:host(?: ?name)?|address)|host ?name|name or service not known|translate host name|resolve)[:\s]+(?:of |for )?)\s*['"(]*([0-9a-z][0-9a-z._-]*)`)

// noNames are words that stand where a name could.
var noNames = []string{"address", "addresses", "host", "hostname", "name", "information", "in", "for", "the", "a", "of", "error", "failed"}

// destinationOf returns the destination that is named by the line, or by a line of the same stack trace.
func destinationOf(h evidence.Hit) doctor.Destination {
	if m := unresolvedName.FindSubmatch(h.Line.Text); m != nil && Failure(h.Pattern) == Unresolved && !slices.Contains(noNames, strings.ToLower(string(m[1]))) {
		return doctor.Destination{Host: strings.ToLower(strings.TrimRight(string(m[1]), "."))}
	}
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
	return l.Continues || bytes.HasPrefix(text, []byte("Caused by:")) || bytes.HasPrefix(text, []byte(" --->")) || bytes.HasPrefix(text, []byte("\t")) || bytes.HasPrefix(text, []byte("  ")) || bytes.HasPrefix(text, []byte("java.net."))
}

// named returns the endpoint in a line that is nearest to the words about the failure, if there are such words.
func named(text []byte) (doctor.Destination, bool) {
	if isTrace(text) {
		return doctor.Destination{}, false
	}
	line := escapes.Replace(string(text))
	lower, place := strings.ToLower(line), len(line)
	for _, w := range wordings {
		for _, words := range w.Any {
			if i := strings.Index(lower, words); i >= 0 && i < place {
				place = i
			}
		}
	}
	return nearest(line, place)
}
