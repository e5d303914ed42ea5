package calls

import (
	"bytes"
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// destinationOf returns the destination that is named by the line, or by a line of the same stack trace.
func destinationOf(h evidence.Hit) doctor.Destination {
	if Failure(h.Pattern) == Unresolved {
		return unresolvedIn(h)
	}
	d, complete := named(h.Line.Text), func(d doctor.Destination) bool { return d.Known() && (d.Port > 0 || d.Network == doctor.Unix) }
	if complete(d) {
		return d
	}
	for _, text := range around(h) {
		if e := named([]byte(text)); e.Known() && (!d.Known() || complete(e) && (e.Host == d.Host || e.Name == d.Host)) {
			if d = e; complete(d) {
				return d
			}
		}
	}
	if n := len(h.Before); d.Known() && n > 0 { // BusyBox's wget: its first line has the port
		if e := named(h.Before[n-1].Text); e.Host == d.Host && e.Port > 0 {
			return e
		}
	}
	return d
}

// around returns the texts of a stack trace about a hit, nearest first: below it, where a cause may be named, each line
// and then all in one, since some messages have two lines; and above it up to the first line of the stack trace.
func around(h evidence.Hit) (out []string) {
	var below []string
	for _, l := range h.After {
		if !linked(l) {
			break
		}
		below = append(below, string(bytes.TrimSpace(l.Text)))
	}
	if out = slices.Clone(below); len(below) > 1 {
		out = append(out, strings.Join(below, " "))
	}
	var above []string
	for i, next := len(h.Before)-1, h.Line; i >= 0 && linked(next); i-- {
		next = h.Before[i]
		out = append(out, string(next.Text))
		above = append(above, string(bytes.TrimSpace(next.Text)))
	}
	if slices.Reverse(above); len(above) > 1 {
		out = append(out, strings.Join(above, " "))
	}
	return out
}

// linked reports whether a line belongs to the previous line: it has no time in a log whose lines have times, or it
// is part of a stack trace.
func linked(l evidence.Line) bool {
	if l.Continues {
		return true
	}
	return slices.ContainsFunc([]string{"Caused by:", " --->", "\t", "  ", "java.net.", "}", "Error has been observed"}, func(begin string) bool { return bytes.HasPrefix(l.Text, []byte(begin)) })
}

// named returns the endpoint in a line that is nearest to the words about the failure, or to the end of the line.
func named(text []byte) doctor.Destination {
	if isTrace(text) {
		return doctor.Destination{}
	}
	line := unescaped(text)
	_, place := failureOf(strings.ToLower(line))
	d, _ := nearest(line, min(place, len(line)))
	return d
}

// unescaped returns a line without the escapes of texts within texts, with addresses in the usual form.
func unescaped(text []byte) string {
	line := escapes.Replace(string(text[:min(len(text), mostOfLine)]))
	return tuples.ReplaceAllString(line, " $1.$2.$3.$4:$5 ")
}

var (
	escapes = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `%5B`, `[`, `%5D`, `]`, `%5b`, `[`, `%5d`, `]`, "`:`", ":")
	tuples  = regexp.MustCompile(`\{\{(\d{1,3}),(\d{1,3}),(\d{1,3}),(\d{1,3})\},(\d{1,5})\}`) // Erlang
)

// unresolvedName is the name that was not resolved.
var unresolvedName = regexp.MustCompile(`(?i)(?:(?:getaddrinfo )?(?:ENOTFOUND|EAI_AGAIN)|"getaddrinfo", ?"hostname" ?:|lookup|getaddrinfo for|bad address|not found in upstream|server host|target dns:|can't (?:find|resolve)|(?:Unknown ?Host(?:Exception)?|no such host|resolve (?:host(?: ?name| address)?|address)|host ?name|host address|name or service not known|translate host name|resolve)[:\s]+(?:of |for )?)\s*['"(‘]*([0-9a-z][0-9a-z._-]*)`)

// noNames are words that stand where a name could.
var noNames = []string{
	"address", "addresses", "host", "hostname", "name", "information", "in", "for", "on", "the", "a", "of", "nor", "error", "failed", "unable", "resolving", "server", "target", "remote", "lookup", "took", "tcp", "udp",
	"system", "errno", "code", "os", "generic", "refused", "reset", "closed", "timeout",
}

// unresolvedIn returns the name that was not resolved. DNS is asked for no port.
func unresolvedIn(h evidence.Hit) doctor.Destination {
	for i, text := range append([]string{string(h.Line.Text)}, around(h)...) {
		if isTrace([]byte(text)) {
			continue
		}
		line := unescaped([]byte(text))
		if f, _ := failureOf(strings.ToLower(line)); i == 0 || f == Unresolved { // not in code that a stack trace quotes
			for _, m := range unresolvedName.FindAllStringSubmatch(line, 8) {
				if name := strings.ToLower(strings.TrimRight(m[1], ".-")); !slices.Contains(noNames, name) && !isAddress(name) {
					return doctor.Destination{Host: name}
				}
			}
		}
		for _, e := range endpoints(line) {
			if name := cmp.Or(e.Name, e.Host); e.Network == "" && !isAddress(name) {
				return doctor.Destination{Host: name}
			}
		}
	}
	return doctor.Destination{}
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
