package calls

import (
	"strings"
	"testing"
)

// The host that is found in a line never contains a delimiter.
func FuzzDestination(f *testing.F) {
	for _, line := range []string{
		"dial tcp 10.96.8.1:8080: connect: connection refused", "connect ECONNREFUSED ::1:6379", "HTTPConnectionPool(host='prices', port=8080)", "HTTPConnectionPool(host='pri@es', port=8080)",
		"Failed to connect to /10.96.0.1:443", "jdbc:postgresql://db.shop:5432/orders?user=a", "http://user:secret@host/",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		d, ok := named(line)
		if ok != d.Known() || strings.ContainsAny(d.Host, " /@'\"\x00\x1b") {
			t.Errorf("%q, %t of %q", d.Host, ok, line)
		}
	})
}
