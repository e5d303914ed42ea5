package telemetry

import "strings"

// Names of the statistics in which an Envoy counts for its agent, in the form that Prometheus
// gets from Envoy. The agent writes them as Istio's, with the labels that an Envoy need not count
// by: see internal/core/agent/status.
const (
	StatPrefix   = "istio" // Envoy puts "envoy_" before it
	ExposedStart = "envoy_istio_"

	TagReporter  = "reporter"  // source or destination
	TagWorkload  = "workload"  // of the server, at its client: a [Workload]
	TagService   = "service"   // a [Service]
	TagPrincipal = "principal" // of the peer, by mutual TLS
)

// A Workload is how the other end of a request is counted. It goes in the metadata of an
// endpoint, where Istio has the same, in the same form.
type Workload struct{ Name, Namespace, CanonicalName, CanonicalRevision, Cluster string }

// MetadataNamespace and MetadataWorkload are where it is in the metadata of an endpoint.
const (
	MetadataNamespace = "istio"
	MetadataWorkload  = "workload"
	MetadataService   = "service" // of a cluster; it is ours
)

// String is the inverse of ParseWorkload.
func (w Workload) String() string {
	return joined(w.Name, w.Namespace, w.CanonicalName, w.CanonicalRevision, w.Cluster)
}

// ParseWorkload returns the parts of a string, as far as it has them.
func ParseWorkload(s string) Workload {
	p := parts(s, 5)
	return Workload{p[0], p[1], p[2], p[3], p[4]}
}

// A Service is the destination of a request.
type Service struct{ Name, Namespace, Host string }

// String is the inverse of ParseService.
func (s Service) String() string { return joined(s.Name, s.Namespace, s.Host) }

// ParseService returns the parts of a string, as far as it has them.
func ParseService(s string) Service {
	p := parts(s, 3)
	return Service{p[0], p[1], p[2]}
}

// joined has no separator within a part: names of Kubernetes have none.
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
