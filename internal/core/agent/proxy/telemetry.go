package proxy

import (
	"cmp"
	"fmt"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/status"
)

// workloadOf returns the workload's names for metrics and traces. They come from the metadata that
// injection sets.
func workloadOf(c config.Config) status.Workload {
	text := func(key string) string {
		s, _ := c.Pod.Metadata[key].(string)
		return s
	}
	l := c.Pod.Labels
	w := status.Workload{
		Workload: telemetry.Workload{
			Name:              cmp.Or(text(contract.MetadataWorkload), c.Pod.Name),
			Namespace:         c.Pod.Namespace,
			CanonicalRevision: cmp.Or(l["service.istio.io/canonical-revision"], l["app.kubernetes.io/version"], l["version"], "latest"),
			Cluster:           cmp.Or(text("CLUSTER_ID"), "Kubernetes"), // Istio's default
		},
		App: l["app"], Version: l["version"],
		Principal: fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", c.Pod.TrustDomain, c.Pod.Namespace, c.Pod.ServiceAccount),
	}
	w.CanonicalName = cmp.Or(l["service.istio.io/canonical-name"], l["app.kubernetes.io/name"], l["app"], w.Name)
	return w
}

// resource returns the environment variable with the resource attributes of Envoy's spans. As in
// Istio, service.name is the app's name and the namespace.
func resource(c config.Config) string {
	w := workloadOf(c)
	own := []string{
		"service.name=" + cmp.Or(w.App, w.CanonicalName) + "." + w.Namespace,
		"k8s.namespace.name=" + w.Namespace, "k8s.pod.name=" + c.Pod.Name,
	}
	if c.Envoy.Resource != "" { // last, so that it takes precedence
		own = append(own, c.Envoy.Resource)
	}
	return "OTEL_RESOURCE_ATTRIBUTES=" + strings.Join(own, ",")
}
