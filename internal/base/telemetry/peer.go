package telemetry

import "strings"

// Names of the statistics that an Envoy counts for its agent, in the form in which Envoy exposes them to
// Prometheus. The agent renames them to Istio's, and adds the labels that Envoy does not need to count by:
// see internal/core/agent/status.
const (
	StatPrefix   = "istio" // Envoy puts "envoy_" before it
	ExposedStart = "envoy_istio_"

	TagReporter  = "reporter"  // source or destination
	TagWorkload  = "workload"  // workload of the server, on the client's side: a [Workload]
	TagService   = "service"   // a [Service]
	TagPrincipal = "principal" // identity of the peer, from mutual TLS
)

// A Workload describes the other end of a request in metrics. It is in the metadata of an endpoint, in the
// same place and form as Istio's.
type Workload struct{ Name, Namespace, CanonicalName, CanonicalRevision, Cluster string }

// MetadataNamespace and MetadataWorkload locate it in the metadata of an endpoint.
const (
	MetadataNamespace = "istio"
	MetadataWorkload  = "workload"
	MetadataService   = "service" // on a cluster; our own name
)

// String is the inverse of ParseWorkload.
func (w Workload) String() string {
	return joined(w.Name, w.Namespace, w.CanonicalName, w.CanonicalRevision, w.Cluster)
}

// ParseWorkload parses a string. Missing parts stay empty.
func ParseWorkload(s string) Workload {
	p := parts(s, 5)
	return Workload{p[0], p[1], p[2], p[3], p[4]}
}

// A Service is the destination of a request.
type Service struct{ Name, Namespace, Host string }

// String is the inverse of ParseService.
func (s Service) String() string { return joined(s.Name, s.Namespace, s.Host) }

// ParseService parses a string. Missing parts stay empty.
func ParseService(s string) Service {
	p := parts(s, 3)
	return Service{p[0], p[1], p[2]}
}

// joined joins the parts of a name. No part contains the separator, because Kubernetes names cannot.
func joined(parts ...string) string {
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], ";", "_")
	}
	return strings.Join(parts, ";")
}

func parts(s string, n int) []string {
	out := strings.SplitN(s, ";", n)
	for len(out) < n {
		out = append(out, "")
	}
	return out
}
