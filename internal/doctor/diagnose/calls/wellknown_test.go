package calls

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor"
)

// Addresses that clusters have in common are called by what answers there; others are not.
func TestWellKnown(t *testing.T) {
	t.Parallel()
	spec := &corev1.Container{Env: []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.59.240.1"}}}
	for _, c := range []struct {
		host string
		port uint16
		text string
		want string
	}{
		{"169.254.169.254", 80, "", "the node's metadata server"}, {"metadata.google.internal", 0, "", "the node's metadata server"}, {"169.254.169.253", 80, "", ""},
		{"10.59.240.1", 443, "", "the API server"}, {"10.59.240.1", 8443, "", ""}, {"10.59.240.2", 443, "", ""},
		{"10.96.0.1", 443, "dial tcp 10.96.0.1:443: connect: connection refused", "most likely the API server"}, {"10.96.0.1", 80, "", ""}, {"10.96.1.1", 443, "", ""},
		{"192.168.0.1", 443, "", ""}, {"8.8.0.1", 443, "", ""},
		{"10.7.8.9", 443, `Get "https://10.7.8.9:443/api/v1/nodes": dial tcp`, "the API server"}, {"10.7.8.9", 443, `Get "https://10.7.8.9/apis/apps/v1/deployments?x=1"`, "the API server"},
		{"10.7.8.9", 443, `Get "https://10.7.8.9/api/v12"`, ""}, {"10.7.8.9", 443, `Get "https://10.7.8.10/api/v1/nodes"`, ""}, {"shop.example", 443, `Post "https://shop.example/api/orders"`, ""},
		{"kubernetes.default.svc", 443, "", "the API server"}, {"kubernetes.example", 443, "", ""},
	} {
		if got := WellKnown(doctor.Destination{Host: c.host, Port: c.port}, spec, c.text); got != c.want {
			t.Errorf("%s:%d %s: %q, want %q", c.host, c.port, c.text, got, c.want)
		}
	}
	if got := WellKnown(doctor.Destination{Host: "169.254.169.254", Port: 80, Network: doctor.UDP}, nil, ""); got != "" {
		t.Error(got)
	}
	for text, want := range map[string]bool{"getaddrinfo EAI_AGAIN db": true, "lookup db: no such host": false, "getaddrinfo ENOTFOUND db": false, "lookup db on 10.96.0.10:53: read udp: i/o timeout": true} {
		if NoAnswer(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}
