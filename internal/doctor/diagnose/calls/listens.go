package calls

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/doctor/evidence"
)

// A Listen is a line of an application's log that says on which ports it listens.
type Listen struct {
	Container string
	Run       int
	Ports     []int
	Path      string // of a unix socket; empty: none
	Loopback  bool   // on the loopback address only
	Quote     evidence.Quote
}

// ListensAt returns the first line by which a container says that it listens on a port, and false if it has none, or if
// the port is 0.
func (r *Reading) ListensAt(container string, port uint16) (evidence.Quote, bool) {
	for _, l := range r.Listens {
		if port > 0 && l.Container == container && slices.Contains(l.Ports, int(port)) {
			return l.Quote, true
		}
	}
	return evidence.Quote{}, false
}

// ListensOn reports whether a container says that it listens on a unix socket, or on one in that folder.
func (r *Reading) ListensOn(named string) bool {
	return slices.ContainsFunc(r.Listens, func(l Listen) bool {
		return l.Path != "" && (l.Path == named || strings.HasPrefix(l.Path, named+"/"))
	})
}

// Listening matches lines by which servers in the usual languages say that they listen.
var Listening = evidence.Pattern{
	Name: "listens",
	Any:  []string{"listening", "started on port", "running on", "running at", "serving on", "serving at", "serving http", "server started", "started server", "bound to", "listen on", "accepting connections"},
	Only: func(line []byte) bool { ports, _ := PortsIn(line); return len(ports) > 0 || pathOf(line) != "" },
}

var (
	listensOn = regexp.MustCompile(`(?i)(?:listening|listen on|started|running|serving|bound|accepting)\b[^\n]{0,60}?(?:\bports?(?:\(s\))?["']?[ =:]*|[\s\w\])*.":]:)(\d{2,5})\b`)
	listensAs = regexp.MustCompile(`(?i)\b(?:addr|address|port|bind)["']?[=:]["']?[\w.:\[\]]{0,40}?(\d{2,5})\b[^\n]{0,80}\b(?:listening|started|serving)`)
	listensTo = regexp.MustCompile(`(?i)\blisten(?:ing|s)? on (\d{4,5})(?:$|[\s,.;)"'])`)
	loopback  = regexp.MustCompile(`(?i)(?:127\.0\.0\.1|localhost|\[::1\]):\d`)
	notServer = regexp.MustCompile(`(?i)debugger|dt_socket|jdwp|jmx|inspector|fail|error|cannot|could not|in use|\budp\b`)
)

// PortsIn returns the ports on which a line says that its program listens, and whether only on the loopback address.
// Debuggers are left out.
func PortsIn(line []byte) (ports []int, local bool) {
	text := string(line[:min(len(line), 1024)])
	if notServer.MatchString(text) {
		return nil, false
	}
	for _, form := range []*regexp.Regexp{listensOn, listensAs, listensTo} {
		for _, m := range form.FindAllStringSubmatch(text, 8) {
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 && n < 1<<16 && !slices.Contains(ports, n) {
				ports = append(ports, n)
			}
		}
	}
	return ports, loopback.MatchString(text) && !strings.Contains(text, "0.0.0.0") && !strings.Contains(text, "[::]")
}

// listensAt matches the path of a unix socket on which a program listens.
var listensAt = regexp.MustCompile(`(?i)(?:listening|listen|accepting connections|bound) (?:on|at|to)(?: unix)?(?: socket)?:? ["']?(?:unix:(?://)?)?(/[^\s"',;]+)`)

func pathOf(line []byte) string {
	if m := listensAt.FindSubmatch(line[:min(len(line), 1024)]); m != nil && !notServer.Match(line[:min(len(line), 1024)]) {
		return string(m[1])
	}
	return ""
}
