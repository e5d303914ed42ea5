package calls

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/evidence"
)

// A phrase is a row of the table of texts by which client programs say how a call failed. A line has the phrase if it
// contains one of the texts, and matches the form if there is one. Texts and forms are in lower case.
type phrase struct {
	failure Failure
	texts   []string
	form    *regexp.Regexp // nil: a text is enough
}

// phrases has the errors that clients in the usual languages and libraries write; testdata/wordings.txt has lines with
// what is read of them. The first phrase that a line has counts: a line with the answer of a proxy, or about the lookup
// of a name, may have the text of the refused connection too, and many errors have a time-out as a setting.
var phrases = []phrase{
	{Ended, []string{"reset reason: connection termination"}, nil},
	{Upstream, []string{"upstream connect error", "delayed connect error", "delayed_connect_error", "no healthy upstream", "upstream request timeout", "remote connection failure", "l5d-proxy-error"}, nil},

	{Unresolved, []string{"enotfound"}, regexp.MustCompile(`\benotfound\b`)}, // not: FileNotFoundException
	{Unresolved, []string{
		"no such host", "unknownhostexception", "name or service not known", "name resolution", "eai_again", "could not resolve host", "couldn't resolve", "name does not resolve", "nodename nor servname",
		"unresolvedaddressexception", "host not found in upstream", "server misbehaving", "a record lookup error", "produced zero addresses", "unable to resolve host", "dns resolution failed", "no address associated with",
		"failed to resolve", "failed to lookup address", "bad address '", "nslookup: can't resolve '", "gaierror:", "gaierror(", "servname not provided", "service not provided, or not known", "getaddrinfo failed", "getaddresses: getaddrinfo", "host not found (", "unknown mysql server host", "nxdomain", "could not translate host name",
	}, nil},
	{Unresolved, []string{"i/o timeout", "connection refused", "read udp"}, regexp.MustCompile(`\blookup \S+.*(?:i/o timeout|connection refused)|\bread udp\b`)},
	{Unresolved, []string{"resource temporarily unavailable ("}, regexp.MustCompile(`unavailable \([^\s()]+:\d+\)`)}, // .NET, for EAI_AGAIN

	{Unreachable, []string{"network is unreachable", "no route to host", "ehostunreach", "enetunreach", "noroutetohost", "host unreachable"}, nil},
	{Unreachable, []string{"errno 101", "errno 113", "os error 101", "os error 113"}, regexp.MustCompile(`\b(?:errno|os error) 1(?:01|13)\b`)},

	{Refused, []string{"connection refused", "connection_refused", "econnrefused", "connectionrefused"}, regexp.MustCompile(`\bconnection[ _]refused\b|connrefused\b|\bconnectionrefused`)},
	{Refused, []string{"errno 111", "errno: 111", "errno:111", "errno=111", "errno: -111", "os error 111", "code: 111", "error 111", "(111"}, regexp.MustCompile(`\berrno[ :=-]*111\b|\bos error 111\b|\bos \{ code: 111\b|\berror 111 connecting\b|returned error 111\b|\bsocketexception \(111\)|(?:conne|error[: ]+200[23]|\(200[23], ).*\(111\b`)},
	{Refused, []string{"actively refused", "connection was refused", " was refused - "}, nil},
	{Refused, []string{" refused"}, regexp.MustCompile(`\bconnection to \S+:\d+ refused\b`)},
	{Refused, []string{ // glibc, in other languages; letters of other alphabets are in the case in which glibc has them
		"接続を拒否されました", "拒绝连接", "连接被拒绝", "連線被拒絕", "연결이 거부", "verbindungsaufbau abgelehnt", "connexion refusée", "conexión rehusada", "conexión rechazada", "conexão recusada", "connessione rifiutata", "соединении отказано",
		"з'єднанні відмовлено", "połączenie odrzucone", "bağlantı reddedildi", "verbinding is geweigerd", "förbindelsen förvägras", "spojení odmítnuto", "forbindelse afvist", "yhteys torjuttu", "kapcsolat elutasítva",
	}, nil},
	{Refused, []string{"connect to server"}, regexp.MustCompile(`could(?:n't| not) connect to server(?:[^:]|$)`)},
	{Refused, []string{"connect call failed"}, regexp.MustCompile(`(?:^|[^\]] |\[)connect call failed`)},
	{Refused, []string{"java.net.connectexception"}, regexp.MustCompile(`java\.net\.connectexception(?:$|[)},:]*(?: null)?$|\}|: failed to connect)`)}, // the JDK's own text follows, if there is one
	{Refused, []string{ // sentences that leave the error out: the client could not connect, which is most often refused
		"could not connect to the endpoint", "can't contact ldap server", "all connection attempts failed", "client not connected", "cannot connect to the docker daemon", "connection to server on socket", "local mysql server through socket", "can't reach database server",
		"could not be established. broker may not", "could not be established. node may not", "no servers available for connection", "nobrokersavailable", "unable to connect to any of the specified", "unabletoconnect on ",
		"could not establish tcp connection to", "[http] could not connect to host", "failed to connect to all addresses", "no connection established", "ora-12541",
	}, nil},

	// The wordings of Python's urllib, Go, Node's axios, Java and curl. A proxy answers so too of a destination that it
	// does not reach: Envoy with 503, Linkerd with 502 or 504.
	{Unavailable, []string{"error 50", "code 50", "code: 50", "error: 50", "success: 50", "502 bad gateway", "503 service unavailable", "504 gateway time", "502 server error", "503 server error", "504 server error"}, regexp.MustCompile(`\b(?:http error|status code|response code:?|returned error:|(?:^|[^,:] )error|indicate success:) 50[234]\b|\b(?:502 bad gateway|503 service unavailable|504 gateway time|50[234] server error)`)},

	{Reset, []string{"connection reset"}, regexp.MustCompile(`\bconnection reset(?: by peer)?(?:$|[^\w ]| -| at\b| in\b| while\b| \(| after\b| by the\b| by server\b)|connection reset by peer`)},
	{Reset, []string{
		"econnreset", "broken pipe", "socket hang up", "unexpected eof", "premature close", "prematurely closed", "closed by the remote", "remote end closed", "connection aborted", "error reading from server: eof",
		"server closed idle connection", "eof reached while reading", "unexpected end of file from server", "unexpected end of stream", "network closed for unknown reason", "invalidchunklength", "disconnected without sending",
		"serverdisconnectederror", "server closed the connection", "lost connection to mysql", "connection closed by server", "connection unexpectedly closed", "connection terminated unexpectedly", "other side closed",
		"end of file reached", "server has gone away", "empty reply from server", "read error on connection", "response ended prematurely", "read past the end of the stream", "closed before message completed",
		"connection closed by remote host", "{error,closed}", "details = \"socket closed\"", "connection was closed before we received",
	}, nil},
	{Reset, []string{": eof", "write epipe", "failed to respond", ": connection closed"}, regexp.MustCompile(`\b(?:get|head|post|put|patch|delete) "?https?://[^\s"]+"?: eof\b|\bwrite epipe\b|:\d+ failed to respond|\S:\d+: connection closed`)},
	{Reset, []string{"errno 104", "os error 104", "code: 104", "error: 104"}, regexp.MustCompile(`\berrno 104\b|\b(?:os|system) error:? 104\b|\bos \{ code: 104\b`)},

	{TimedOut, []string{
		"connection timed out", "connect timed out", "etimedout", "i/o timeout", "context deadline exceeded", "read timed out", "tls handshake timeout", "client.timeout exceeded", "request timed out", "sockettimeoutexception",
		"socket.timeout: timed out", "timeouterror: timed out", "timeout: timed out", "(timed out)", "operation timed out", "read operation timed out", "deadline_exceeded", "deadline exceeded", "timeout connecting to", "headers timeout error",
		"network timeout at", "error: timeout expired", "execution expired", "net::readtimeout", "timeout was reached", "httpclient.timeout of", "the operation has timed out", "download timed out", "nc: timed out", "timeout occurred after waiting", "upstream timed out",
	}, nil},
	{TimedOut, []string{"connection timeout", "connect timeout", "timeout of ", "): timeout", "errno 110", "os error 110", "(110)"}, // not with a value: a setting
		regexp.MustCompile(`\bconnect(?:ion)? timeout(?:$|[^\s=:]| [a-z]|: ?[a-z])|\btimeout of \d+ ?ms exceeded|\bconnect \(\S+\): timeout|\b(?:errno|os error) 110\b|conne.*\(110\)`)},
	{TimedOut, []string{"connecttimeout", "timed out. ("}, regexp.MustCompile(`\bconnecttimeout(?:error)?[:(]|timed out\. \(connect timeout`)},
	{TimedOut, []string{"expiration du délai", "die wartezeit für die verbindung", "连接超时", "接続がタイムアウト"}, nil},
}

// failureOf returns how a call failed by the phrase that a line has, and where its text is in the line in lower case. It
// returns "" for a line without a phrase.
func failureOf(lower string) (f Failure, place int) {
	for _, p := range phrases {
		place = len(lower)
		for _, text := range p.texts {
			if i := strings.Index(lower, text); i >= 0 {
				place = min(place, i)
			}
		}
		if place < len(lower) && (p.form == nil || p.form.MatchString(lower)) {
			return p.failure, place
		}
	}
	return "", len(lower)
}

// mostOfLine is the number of first bytes of a line by which it is read.
const mostOfLine = 8192

func lowered(line []byte) string {
	return strings.ToLower(string(bytes.TrimSpace(line[:min(len(line), mostOfLine)])))
}

// wordings are the patterns of a scan for lines with a phrase, one for each failure.
var wordings = patternsOf(phrases)

func patternsOf(phrases []phrase) (out []evidence.Pattern) {
	for _, p := range phrases {
		i := slices.IndexFunc(out, func(o evidence.Pattern) bool { return o.Name == string(p.failure) })
		if i < 0 {
			i = len(out)
			out = append(out, evidence.Pattern{Name: string(p.failure), Only: func(line []byte) bool { return saysOf(line) == p.failure }})
		}
		out[i].Any = append(out[i].Any, p.texts...)
	}
	return out
}

// saysOf returns how the call of a line failed; "" if the line is no failed call of its program.
func saysOf(line []byte) Failure {
	lower := lowered(line)
	f, place := failureOf(lower)
	switch {
	case f == "" || f == Ended || f == Upstream:
		return f
	case isMention(lower, place), (f == Reset || f == TimedOut) && byClient(lower):
		return ""
	}
	return f
}

var (
	// served matches what servers say of their own clients, whose connections are no calls of theirs.
	served = regexp.MustCompile(`clientabortexception|\b(?:from|to|by) client\b|\bclient (?:connection|timed out)|waiting for request|reading client|tls handshake error from|uwsgi_response|\breset by \d|\[preauth\]`)
	// ends matches the two ends of a connection as Go writes them: this end and the other one.
	ends = regexp.MustCompile(`\b(?:read|write) tcp \S+:(\d+)->\S+:(\d+):`)
)

// byClient reports whether a connection that ended was one that a server had accepted: its program says so, or this end
// has a port below those that Linux gives to clients, and the other end has one of these.
func byClient(lower string) bool {
	if m := ends.FindStringSubmatch(lower); m != nil && !isEphemeral(m[1]) && isEphemeral(m[2]) {
		return true
	}
	return served.MatchString(lower)
}

// isEphemeral reports whether a port is in Linux's default range of ports of clients, 32768 to 60999.
func isEphemeral(port string) bool { return len(port) == 5 && port >= "32768" && port <= "60999" }

var (
	// mentioned matches words before an error that make it the subject of a sentence or of a setting.
	mentioned = regexp.MustCompile(`(?:\b(?:why|how|when|what|whether|handl\w+|explain\w*|about|troubleshoot\w*|if you see|of kind|handler for|retr(?:y|ies|ying|yable)\b[^:]{0,20} (?:on|for)|retry policy:? on|number of times)\b[^:]{0,60}|\bretryable errors\b.{0,30}|^(?:// |# |--[a-z]|hint:).{0,60})$`)
	quoted    = regexp.MustCompile(`["']connection refused["']`)
	errno     = regexp.MustCompile(`\b111\b|connectionrefused`)
	listed    = regexp.MustCompile(`\be[a-z]{5,}["']?, ?["']?e[a-z_]{5,}\b`) // ECONNREFUSED, ETIMEDOUT
	tested    = regexp.MustCompile(`\btest_\w*connection_?refused|::\w*connection_refused|\bconnection_refused(?: \.\.\.|$)`)
)

// isMention reports whether a line only mentions an error: prose, a policy, a list of errors, a test. place is where the
// error stands in it.
func isMention(lower string, place int) bool {
	return mentioned.MatchString(lower[:place]) || quoted.MatchString(lower) && !errno.MatchString(lower) || listed.MatchString(lower) || tested.MatchString(lower)
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

// addresses match lines with a URL, or about a client of an address of the pod itself.
var addresses = evidence.Pattern{Name: "address", Any: []string{"://", "127.0.0.1:", "localhost:"}, Only: func(line []byte) bool {
	begin := line[:min(len(line), 512)]
	return bytes.Contains(line, []byte("://")) || client.Match(begin) && !serves.Match(begin)
}}

var (
	client = regexp.MustCompile(`(?i)\bclient\b|\bconnect(?:ing)?\b|\bdial(?:l?ing)?\b|\b(?:waiting|wait) for\b|\bcalling\b`)
	// serves matches words about the address of the program itself, or about its own clients.
	serves = regexp.MustCompile(`(?i)listen|\bserv(?:e|er|es|ing)\b|\bstarted\b|\bbound?\b|\brunning\b|\baccept|\bfrom client`)
)
