package states

import (
	"cmp"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
)

// An Answer is a row of the table of what a probe got.
type Answer struct {
	Form   *regexp.Regexp
	Says   string // {c}: the container, {port}, {path}, {status}, {timeout}
	Remedy string // empty: the one of the finding
}

// RefusedProbe is the answer of a kernel: nothing listens on the port.
var RefusedProbe = regexp.MustCompile(`(?i)connection refused|actively refused`)

// Answers has what a probe got, in the words of the kubelet, of Istio's agent and of grpc_health_probe; the first
// that fits counts.
var Answers = []Answer{
	{RefusedProbe, "nothing listened on port {port} then", "see whether {c} listens on port {port}; if it only needs longer to start, give it a startup probe"},
	{regexp.MustCompile(`(?i)(?:status ?code:? |HTTP status )(404)`), "it answers 404 for {path}", "correct the path of the probe, or let {c} serve {path}"},
	{regexp.MustCompile(`(?i)(?:status ?code:? |HTTP status )(40[13])`), "it answers {status} for {path}: the probe is not let in", "let {path} be asked without credentials, or use a path that can be"},
	{regexp.MustCompile(`(?i)(?:status ?code:? |HTTP status )(5\d\d)`), "it answers {status} for {path}", "see the log of {c} for what it lacks: it says itself that it is not well"},
	{regexp.MustCompile(`(?i)(?:status ?code:? |HTTP status )(\d{3})`), "it answers {status} for {path}", ""},
	{regexp.MustCompile(`(?i)context deadline exceeded|client\.timeout|i/o timeout|timed? ?out`), "it did not answer within {timeout}", "see what keeps {c} busy then (its CPU limit, its memory, what it waits for), or give the probe a longer timeoutSeconds"},
	{regexp.MustCompile(`(?i)HTTP response to HTTPS client`), "the probe speaks HTTPS, and port {port} HTTP", "correct the scheme of the probe"},
	{regexp.MustCompile(`(?i)no such file|executable file not found|command not found`), "the command of the probe is not in the image", "use a command that the image has, or a probe by HTTP, TCP or gRPC"},
	{regexp.MustCompile(`(?i)NOT_SERVING|service unhealthy`), "it answers that it does not serve", "see the log of {c} for what it lacks"},
	{regexp.MustCompile(`(?i)connection reset|: EOF`), "it closes the connection of the probe", ""},
}

// ProbeOf returns a probe of a container, or nil.
func ProbeOf(spec *corev1.Container, kind string) *corev1.Probe {
	switch {
	case spec == nil:
		return nil
	case kind == "liveness":
		return spec.LivenessProbe
	case kind == "startup":
		return spec.StartupProbe
	}
	return spec.ReadinessProbe
}

var (
	probedURL  = regexp.MustCompile(`https?://[^/\s"]*?(?::(\d{1,5}))?(/[^\s"]*)?"`)
	probedDial = regexp.MustCompile(`dial tcp (?:\S*->)?\S*?:(\d{1,5}):`)
)

// Probed returns the port and the path that a probe asked: by the message about it, or else by the pod's spec.
func Probed(text string, probe *corev1.Probe, spec *corev1.Container) (port, path string) {
	if m := probedURL.FindStringSubmatch(text); m != nil {
		port, path = m[1], m[2]
	}
	if m := probedDial.FindStringSubmatch(text); m != nil {
		port = cmp.Or(port, m[1])
	}
	if probe == nil {
		return port, path
	}
	at := ""
	switch {
	case probe.HTTPGet != nil:
		at, path = probe.HTTPGet.Port.String(), cmp.Or(path, probe.HTTPGet.Path)
	case probe.TCPSocket != nil:
		at = probe.TCPSocket.Port.String()
	case probe.GRPC != nil:
		at = fmt.Sprint(probe.GRPC.Port)
	}
	for _, p := range spec.Ports {
		if p.Name == at && p.Name != "" {
			at = fmt.Sprint(p.ContainerPort)
		}
	}
	return cmp.Or(port, at), path
}
