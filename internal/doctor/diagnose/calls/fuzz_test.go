package calls

import (
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/doctor/evidence"
)

// The host that is found in a line never contains a delimiter.
func FuzzDestination(f *testing.F) {
	for _, line := range []string{
		"dial tcp 10.96.8.1:8080: connect: connection refused", "connect ECONNREFUSED ::1:6379", "HTTPConnectionPool(host='prices', port=8080)", "HTTPConnectionPool(host='pri@es', port=8080)",
		"Failed to connect to /10.96.0.1:443", "jdbc:postgresql://db.shop:5432/orders?user=a", "http://user:secret@host/",
		"Now listening on: http://[::]:8080", "INFO last failure: 2026-11-19T22:10:00Z dial tcp 10.96.3.3:5432: connect: connection refused",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		ports, _ := PortsIn(line)
		if len(ports) > 16 || slices.ContainsFunc(ports, func(p int) bool { return p < 1 || p > 65535 }) {
			t.Errorf("%q listens on %v", line, ports)
		}
		l := evidence.Line{Text: line, Time: evidence.Time{At: time.Unix(1795490299, 0), Error: 1, Clock: evidence.NodeClock}}
		l.Likely = l.Time
		isStored(l)
		d := named(line)
		if strings.ContainsAny(d.Host, " /@'\"\x00\x1b") {
			t.Errorf("%q of %q", d.Host, line)
		}
	})
}
