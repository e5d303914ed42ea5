package telemetry

import "strings"

// Names of Envoy's statistics of requests, as Envoy exposes them to Prometheus. The agent renames them to Istio's
// metrics, and adds labels that are the same for all requests of a proxy: see internal/core/agent/status.
const (
	StatPrefix   = "istio" // Envoy puts "envoy_" before it
	ExposedStart = "envoy_istio_"

	// OldTLS is the scope of the count of clients that use TLS 1.2, OldTLSTotal the counter in it, and OldTLSCaller the
	// begin of a line that Envoy exposes.
	OldTLS       = "outrider"
	OldTLSTotal  = "tls_1_2_connections_total"
	OldTLSCaller = "envoy_" + OldTLS + "_" + OldTLSTotal + "{" + TagPrincipal + `="`

	TagReporter  = "reporter"  // source or destination
	TagWorkload  = "workload"  // workload of the server, in the statistics of the client: a [Workload]
	TagService   = "service"   // a [Service]
	TagPrincipal = "principal" // identity of the peer, from mutual TLS
)

// A Workload is the workload at the other end of a request, as a label of metrics. It is also in the metadata of
// an endpoint, under the same key and in the same format as in Istio.
type Workload struct{ Name, Namespace, CanonicalName, CanonicalRevision, Cluster string }

// Keys of the metadata of endpoints and clusters. A [Workload] is in the metadata of an endpoint, under
// MetadataNamespace and MetadataWorkload.
const (
	MetadataNamespace = "istio"
	MetadataWorkload  = "workload"
	MetadataService   = "service" // a [Service], in the metadata of a cluster; not a key of Istio
)

// String is the inverse of ParseWorkload.
func (w Workload) String() string {
	return joined(w.Name, w.Namespace, w.CanonicalName, w.CanonicalRevision, w.Cluster)
}

// ParseWorkload parses the result of [Workload.String]. Missing parts are empty.
func ParseWorkload(s string) Workload {
	p := parts(s, 5)
	return Workload{p[0], p[1], p[2], p[3], p[4]}
}

// A Service is the service to which a request was sent, as a label of metrics.
type Service struct{ Name, Namespace, Host string }

// String is the inverse of ParseService.
func (s Service) String() string { return joined(s.Name, s.Namespace, s.Host) }

// ParseService parses the result of [Service.String]. Missing parts are empty.
func ParseService(s string) Service {
	p := parts(s, 3)
	return Service{p[0], p[1], p[2]}
}

// joined joins the parts with the separator ";". Kubernetes names cannot contain it; in other parts it becomes
// "_".
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
