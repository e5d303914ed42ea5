package status

import (
	"bytes"
	"cmp"
	"strings"

	"outrider.dev/internal/base/telemetry"
)

// A Workload describes a pod in the labels of request metrics. Empty fields become "unknown".
type Workload struct {
	telemetry.Workload
	App, Version string // from the pod's labels; default: CanonicalName and CanonicalRevision
	Principal    string // its SPIFFE ID
}

const unknown = "unknown"

// requestNames gives Envoy's statistics of requests and connections the names and labels of Istio:
// https://istio.io/latest/docs/reference/config/metrics/. Envoy's own labels contain only what Envoy alone
// knows ([telemetry]). The labels that are constant, or follow from Envoy's, are added here, so that they cost
// nothing while a request is served. Statistics whose labels differ in Envoy still have different labels here,
// so none have to be added up.
type requestNames struct {
	own Workload

	last     string // Envoy's labels in the previous line
	rendered string // Istio's labels for last
}

var typeLine = []byte("# TYPE " + telemetry.ExposedStart)

// line returns a line of Envoy's metrics with Istio's names and labels.
func (n *requestNames) line(line []byte) []byte {
	if rest, ok := bytes.CutPrefix(line, typeLine); ok {
		return append([]byte("# TYPE istio_"), rest...)
	}
	statistic, ok := bytes.CutPrefix(line, []byte(telemetry.ExposedStart))
	if !ok {
		return line
	}
	name, rest, ok := strings.Cut(string(statistic), "{")
	end := strings.LastIndexByte(rest, '}')
	if !ok || end < 0 {
		return line
	}
	labels, value := rest[:end], rest[end+1:]
	bucket := ""
	if i := strings.LastIndex(labels, `,le="`); i >= 0 { // the last label of a bucket
		labels, bucket = labels[:i], labels[i:]
	}
	if labels != n.last || n.rendered == "" {
		n.last, n.rendered = labels, n.render(parseLabels(labels))
	}
	return []byte("istio_" + name + "{" + n.rendered + bucket + "}" + value)
}

// parseLabels parses labels in Prometheus' text format. The values stay escaped.
func parseLabels(text string) map[string]string {
	out := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, `="`)
		if !ok {
			break
		}
		end := 0
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(rest))
		out[name] = rest[:end]
		text = strings.TrimPrefix(strings.TrimPrefix(rest[end:], `"`), ",")
	}
	return out
}

// render returns Istio's labels for Envoy's labels.
func (n *requestNames) render(l map[string]string) string {
	peer := l[telemetry.TagPrincipal]
	own, ownPrincipal := n.own, ""
	if peer != "" {
		ownPrincipal = n.own.Principal
	}
	service := telemetry.ParseService(l[telemetry.TagService])
	source, destination := own, own
	var sourcePrincipal, destinationPrincipal, security string
	if l[telemetry.TagReporter] == "source" {
		destination = Workload{Workload: telemetry.ParseWorkload(l[telemetry.TagWorkload])}
		sourcePrincipal, destinationPrincipal = ownPrincipal, peer
		if destination.Name != "" {
			destination.Cluster = cmp.Or(destination.Cluster, own.Cluster)
		} else if service == (telemetry.Service{}) {
			service.Name = "PassthroughCluster" // the destination is not in the mesh
		}
	} else {
		source = clientOf(peer)
		if peer != "" {
			source.Cluster = own.Cluster
		}
		sourcePrincipal, destinationPrincipal = peer, ownPrincipal
		service.Name = cmp.Or(service.Name, own.CanonicalName)
		service.Namespace = cmp.Or(service.Namespace, own.Namespace)
		if security = "none"; peer != "" {
			security = "mutual_tls"
		}
	}
	var b strings.Builder
	add := func(name, value string) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + `="` + cmp.Or(value, unknown) + `"`)
	}
	add("reporter", l[telemetry.TagReporter])
	side := func(s string, w Workload, principal string) {
		add(s+"_workload", w.Name)
		add(s+"_canonical_service", w.CanonicalName)
		add(s+"_canonical_revision", w.CanonicalRevision)
		add(s+"_workload_namespace", w.Namespace)
		add(s+"_principal", principal)
		add(s+"_app", cmp.Or(w.App, w.CanonicalName))
		add(s+"_version", cmp.Or(w.Version, w.CanonicalRevision))
		add(s+"_cluster", w.Cluster)
	}
	side("source", source, sourcePrincipal)
	side("destination", destination, destinationPrincipal)
	add("destination_service", service.Host)
	add("destination_service_name", service.Name)
	add("destination_service_namespace", service.Namespace)
	add("request_protocol", l["request_protocol"])
	if l["request_protocol"] != "tcp" {
		add("response_code", l["response_code"])
		status, isGRPC := l["grpc_response_status"]
		if b.WriteString(`,grpc_response_status="`); isGRPC {
			b.WriteString(status)
		}
		b.WriteByte('"')
	}
	add("response_flags", cmp.Or(l["response_flags"], "-"))
	add("connection_security_policy", security)
	return b.String()
}

// clientOf returns the workload of a client by the SPIFFE ID in its certificate, which contains only namespace
// and service account. The names of workload and service are unknown, so the account's name stands for both. A
// header could carry them, but any client of the mesh could write any value there, and so create any number of
// time series.
func clientOf(principal string) Workload {
	_, path, ok := strings.Cut(principal, "/ns/")
	namespace, account, found := strings.Cut(path, "/sa/")
	if !ok || !found {
		return Workload{}
	}
	return Workload{Workload: telemetry.Workload{Name: account, Namespace: namespace, CanonicalName: account}}
}
