package diagnose

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence"
)

// What a log names is a host without what ends one, whatever the line.
func FuzzDestination(f *testing.F) {
	for _, line := range []string{
		"dial tcp 10.96.8.1:8080: connect: connection refused", "connect ECONNREFUSED ::1:6379", "HTTPConnectionPool(host='prices', port=8080)",
		"Failed to connect to /10.96.0.1:443", "jdbc:postgresql://db.shop:5432/orders?user=a", "http://user:secret@host/",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		d, ok := named(line)
		if ok != d.known() || strings.ContainsAny(d.host, " /@'\"\x00\x1b") {
			t.Errorf("%q, %t of %q", d.host, ok, line)
		}
	})
}

// Settings that are not understood make an answer unsure, and nothing worse.
func FuzzCapture(f *testing.F) {
	f.Add("istio-iptables -p 15001 -u 1337 -i * -x  -o 12345", "prices", uint16(8080))
	f.Add("--outbound-ports-to-ignore=4567,x", "127.0.0.1", uint16(0))
	f.Fuzz(func(t *testing.T, arguments, host string, port uint16) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "istio-init", Args: strings.Split(arguments, " ")}}}}
		c := readCapture(pod, &evidence.Container{Name: "istio-proxy"})
		takes, why := c.takes("app", destination{host, port})
		if (takes == yes) != (why == "") {
			t.Errorf("%d, %q", takes, why)
		}
	})
}
