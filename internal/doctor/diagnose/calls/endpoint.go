package calls

import (
	"bytes"
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/doctor"
)

// notations are the forms in which programs write an endpoint, whatever client wrote it. The groups are named: net,
// host, v6, addr, port, scheme. The first notation that matches a part of a line counts for that part.
var notations = compile(
	`(?i)(?:https?://)?(?P<host>[0-9a-z._-]+):(?P<port>\d{1,5}) \[[0-9a-z._-]*/(?P<addr>[0-9a-f.:]+)\]`, // Apache's HttpClient
	`(?i)(?:(?P<net>sock)(?:et|path)?[ :=]+)?['"](?P<host>/[^\s'"(),]+(?:\.sock|\.s\.[A-Z]+\.\d+))['"]`,
	`(?i)\b(?P<net>unix)(?:://|:/| )(?P<host>/?[^\s'"(),:]+)`,
	`(?i)(?P<net>sock)(?:et|path)?[ :=]+['"]?(?P<host>/[^\s'"(),:]+)`,
	`(?i)\b(?:(?P<net>tcp|udp)[46]? )?[0-9a-f.:\[\]]+:\d+->(?:\[(?P<v6>[0-9a-f:.%]+)\]|(?P<host>[0-9.]+)):(?P<port>\d{1,5})`, // Go: from -> to
	`(?i)\b(?P<net>tcp|udp)[46]? (?:lookup )?(?:\[(?P<v6>[0-9a-f:.%]+)\]|(?P<host>[0-9a-z._-]+)):(?P<port>\d{1,5})\b`,
	`(?i)\b(?:jdbc:)?(?P<scheme>[a-z][a-z0-9+.-]{1,20})://(?:[^\s/@'"]*@)?(?:\[(?P<v6>[0-9a-f:.%]+)\]|(?P<host>[0-9a-z._*-]+))(?::(?P<port>\d{1,5}))?`,
	`/dev/(?P<net>tcp|udp)/(?P<host>[^/\s]+)/(?P<port>\d{1,5})`,
	`(?i)\bipv[46][:#](?:\[(?P<v6>[0-9a-f:.%]+)\]|(?P<host>[0-9a-f.:]*[0-9a-f.:])):(?P<port>\d{1,5})\b`,
	`\(['"](?P<host>[0-9a-zA-Z.:_-]+)['"], *(?P<port>\d{1,5})[,)]`,
	`(?i)\bhost[= :]+['"]?(?P<host>[0-9a-z.:_-]+)['"]?(?: *\((?P<addr>[0-9a-f.:]+)\))?(?:,? (?:and |accepting |TCP/IP |connections |on )*| *, *)port[= :]*(?P<port>\d{1,5})`,
	`(?i)\b(?:host|server|data source)=(?:tcp:)?(?P<host>[0-9a-z._-]+)[; ](?:[a-z_ ]{1,20}=[^;'"\s]{0,40}[; ]){0,4}?port=(?P<port>\d{1,5})\b`, // PDO, libpq, ADO.NET: settings one after the other
	`(?i)\b(?:server|data source)=(?:tcp:)?(?P<host>[0-9a-z._-]+),(?P<port>\d{1,5})\b`,                                                        // SQL Server
	`(?i)\bhost=(?P<host>[0-9a-z._-]+)\)\(port=(?P<port>\d{1,5})\)`,                                                                           // MariaDB
	`(?i)\bDomain\("(?P<host>[0-9a-z._-]+)"\)\), port: Some\((?P<port>\d{1,5})\)`,                                                             // Rust's url
	`(?i)\bhost *= "(?P<host>[0-9a-z._-]+)",? +port *= (?P<port>\d{1,5})`,
	`(?i)\bhost, port: (?P<host>[0-9a-z._-]+), (?P<port>\d{1,5})`,                                                                                                                                              // JavaMail
	`(?i)"(?:remote_?|peer_?)?addr(?:ess)?" ?: ?"(?:(?P<v6>[0-9a-f]*:[0-9a-f:.]*)|(?P<host>[0-9a-z._-]+))", ?(?:"\w+" ?: ?(?:"[^"]{0,60}"|-?\d+), ?){0,3}"(?:remote_?|peer_?)?port" ?: ?"?(?P<port>\d{1,5})`,   // fields of an error: Node, pino
	`(?i)"(?:remote_?|peer_?)?port" ?: ?"?(?P<port>\d{1,5})"?, ?(?:"\w+" ?: ?(?:"[^"]{0,60}"|-?\d+), ?){0,3}"(?:remote_?|peer_?)?addr(?:ess)?" ?: ?"(?:(?P<v6>[0-9a-f]*:[0-9a-f:.]*)|(?P<host>[0-9a-z._-]+))"`, // the same, in the order of the alphabet
	`(?i)address: '(?P<host>[0-9a-f.:]+)', (?:remote)?port: (?P<port>\d{1,5})`,                                                                                                                                 // Node
	`\{"(?P<host>[0-9A-Za-z._-]+)",(?P<port>\d{1,5})\}`,                                                                                                                                                        // Erlang
	`(?i)(?P<host>[0-9a-z._-]+)(?:\[(?P<addr>\d+\.\d+\.\d+\.\d+|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*)\]:| \[(?P<addr2>\d+\.\d+\.\d+\.\d+)\] )(?P<port>\d{1,5})\b`,                                                   // Postfix, nc
	`(?i)(?P<host>[0-9a-z._-]+)/(?P<addr>\d+\.\d+\.\d+\.\d+) (?:\(port )?(?P<port>\d{2,5})\b`,                                                                                                                  // OkHttp, Oracle
	`(?i)(?P<host>[0-9a-z._-]+):(?P<port>\d{1,5}) \((?P<addr>\d+\.\d+\.\d+\.\d+)\)`,                                                                                                                            // apt
	`(?i)\b(?P<host>[a-z][0-9a-z._-]*) \((?P<addr>\d+\.\d+\.\d+\.\d+):(?P<port>\d{1,5})\)`,                                                                                                                     // BusyBox
	`(?i)\b(?P<addr>\d+\.\d+\.\d+\.\d+):(?P<port>\d{1,5}) \((?P<host>[a-z][0-9a-z._-]*)\)`,                                                                                                                     // pgx
	`(?i)['"«»](?P<host>[0-9a-z.:_-]+)['"«»] ?\((?P<addr>[0-9a-f.:]+)\)\D{1,12}(?P<port>\d{2,5})\b`,                                                                                                            // libpq, in any language
	`(?i)['"]?(?P<host>[0-9a-z.:_-]+)['"]? ?(?:\((?P<addr>[0-9a-f.:]+)\))?(?:,|、)? ?(?:port|ポート|端口|puerto|porta) ?(?P<port>\d{1,5})`,
	`(?i)(?P<host>[0-9a-z._-]+) \((?P<name>[0-9a-z._-]+)\)\|(?P<addr>[0-9a-f.:]+)\|:(?P<port>\d{1,5})`,
	`(?i)(?P<host>[0-9a-z._-]+)?/\[?(?P<addr>[0-9a-f]*:[0-9a-f:.]*|\d+\.\d+\.\d+\.\d+)\]?:(?P<port>\d{1,5})\b`, // Java: name/address
	`(?i)(?P<host>[0-9a-z._-]+)/<unresolved>:(?P<port>\d{1,5})\b`,
	`\bE[A-Z]{4,} (?P<host>/[^\s'"(),:]+)`,                                                                // Node
	`\bE[A-Z]{4,} (?:\[(?P<v6>[0-9a-f:.%]+)\]|(?P<host>[0-9a-fA-F:.]*[0-9a-fA-F:.])):(?P<port>\d{1,5})\b`, // Node
	`\[(?P<v6>[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)\](?::(?P<port>\d{1,5}))?`,
	`(?i)(?P<host>[0-9a-z._-]+) \((?P<addr>\d+\.\d+\.\d+\.\d+|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*)\)`,
	`\b(?P<host>\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})(?::(?P<port>\d{1,5}))?\b`,
	`(?i)(?P<host>[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?):(?P<port>\d{1,5})\b`,
	`(?i)\bhost=(?P<host>[0-9a-z._-]+) user=`,
	`(?i)\b(?:server|host|to|at|on|reach|contact) ['"](?P<host>[0-9a-z._-]+)['"]`,
	`(?i)\b(?P<net>lookup|resolve host|not resolve|EAI_AGAIN|ENOTFOUND|UnknownHostException|resolv\w* (?:name|host)?)[:\s]+['"]?(?P<host>[a-z0-9._-]+)['"]?`,
)

func compile(texts ...string) (out []*regexp.Regexp) {
	for _, text := range texts {
		out = append(out, regexp.MustCompile(text))
	}
	return out
}

// sources are the endings of files of source code: what stands before the number of a line in a stack trace is no host.
var sources = []string{"go", "java", "kt", "scala", "py", "rb", "js", "mjs", "cjs", "ts", "php", "rs", "cs", "c", "cc", "cpp", "h", "hpp", "ex", "exs", "erl", "pl", "pm", "lua", "hs", "swift", "jar", "sh", "yaml", "yml", "conf", "log", "sql"}

// schemePorts has the ports of URLs without one.
var schemePorts = map[string]uint16{"http": 80, "https": 443, "ws": 80, "wss": 443}

// An endpoint is a destination in a text.
type endpoint struct {
	doctor.Destination
	from, to int
}

// endpoints returns the endpoints that a line without escapes names, in its order.
func endpoints(line string) (out []endpoint) {
	for _, n := range notations {
		for _, m := range n.FindAllStringSubmatchIndex(line, -1) {
			e := endpoint{from: m[0], to: m[1]}
			if slices.ContainsFunc(out, func(o endpoint) bool { return e.from < o.to && o.from < e.to }) {
				continue // a part of an endpoint that was read
			}
			group := func(name string) string {
				if i := n.SubexpIndex(name); i >= 0 && m[2*i] >= 0 {
					return line[m[2*i]:m[2*i+1]]
				}
				return ""
			}
			if e.Destination = destination(group); e.Known() && !e.isSource(line) {
				out = append(out, e)
			}
		}
	}
	slices.SortFunc(out, func(a, b endpoint) int { return a.from - b.from })
	return out
}

// destination returns the destination of a match; group returns its named groups.
func destination(group func(name string) string) (d doctor.Destination) {
	d.Host = strings.ToLower(strings.TrimRight(group("host"), ".-"))
	for _, name := range []string{"v6", "addr", "addr2"} {
		addr, err := netip.ParseAddr(group(name))
		if err != nil && group(name) != "" {
			return doctor.Destination{} // a date and a time: Mar/2026:10:00:06
		}
		if err == nil {
			if !isAddress(d.Host) && d.Host != "localhost" && !slices.Contains(noNames, d.Host) {
				d.Name = d.Host
			}
			d.Host = addr.String()
		}
	}
	if addr, err := netip.ParseAddr(d.Host); err == nil {
		d.Host = addr.Unmap().String()
	}
	switch network := strings.ToLower(group("net")); {
	case strings.HasPrefix(d.Host, "/"), network == "unix", network == "sock":
		d.Host, d.Network = strings.TrimRight(group("host"), "."), doctor.Unix
	case network == "udp":
		d.Network = doctor.UDP
	}
	n, err := strconv.ParseUint(group("port"), 10, 16)
	if group("port") != "" && (err != nil || n == 0) {
		return doctor.Destination{}
	}
	d.Port = uint16(n)
	if d.Port == 0 {
		d.Port = schemePorts[strings.ToLower(group("scheme"))]
	}
	return d
}

// isSource reports whether an endpoint is a file with the number of a line, a time, or a word of a stack trace.
func (e endpoint) isSource(line string) bool {
	if e.Network == doctor.Unix {
		return false
	}
	ending := e.Host[strings.LastIndexByte(e.Host, '.')+1:]
	if slices.Contains(sources, ending) && ending != e.Host {
		return true
	}
	if slices.Contains(noNames, e.Host) {
		return true
	}
	number := strings.Trim(e.Host, "0123456789") == "" // 09:30:05, thread:12
	rest := line[e.to:]
	return !isAddress(e.Host) && (number || strings.HasPrefix(rest, ":") && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9') // node:net:1606:16
}

// nearest returns the endpoint that is nearest to a place in a line, one before it if two are as near. Addresses of
// help pages are none.
func nearest(line string, place int) (doctor.Destination, bool) {
	best, distance := -1, 0
	all := endpoints(line)
	for i, e := range all {
		if aside.MatchString(line[:min(e.from, len(line))]) {
			continue
		}
		d := 0
		switch {
		case e.to <= place:
			d = place - e.to
		case e.from > place:
			d = e.from - place + 1
		}
		if e.Port == 0 && e.Network == "" {
			d += 1000 // a name without a port, only where nothing else is
		}
		if best < 0 || d < distance {
			best, distance = i, d
		}
	}
	if best < 0 {
		return doctor.Destination{}, false
	}
	return completed(all[best].Destination, all, line), true
}

// completed returns a destination with the name and the address that the rest of its line has for it: those of an
// endpoint with the same port, or what stands beside host= in the settings of a database.
func completed(to doctor.Destination, all []endpoint, line string) doctor.Destination {
	if to.Name != "" || to.Network == doctor.Unix {
		return to
	}
	for _, e := range all {
		setting := e.Port == 0 && strings.HasPrefix(line[min(e.from, len(line)):], "host=")
		if e.Network != to.Network || e.Port != to.Port && !setting || e.Host == "localhost" || isAddress(e.Host) == isAddress(to.Host) && e.Name == "" {
			continue
		}
		if isAddress(to.Host) {
			to.Name = cmp.Or(e.Name, e.Host)
			return to
		}
		if to.Host != "localhost" && (e.Name == "" || e.Name == to.Host) {
			to.Name, to.Host = to.Host, e.Host
			return to
		}
	}
	return to
}

// aside matches what stands before an endpoint that is not the one that was called: a page of help, this end of the
// connection, the client of a server.
var aside = regexp.MustCompile(`(?i)(?:\bsee\b[^/]{0,8}|laddr=\(?['"]?|\blocal ?address:? ['"]?|\bclient: )$`)

// isTrace reports whether a line is a frame of a stack trace, in which no call has a destination.
func isTrace(line []byte) bool {
	text := bytes.TrimSpace(line)
	return bytes.HasPrefix(text, []byte("at ")) || bytes.HasPrefix(text, []byte(`File "`)) || bytes.HasPrefix(text, []byte("goroutine "))
}
