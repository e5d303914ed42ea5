package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
)

// Istio's labels that telemetry and policies read.
const (
	CanonicalName     = "service.istio.io/canonical-name"
	CanonicalRevision = "service.istio.io/canonical-revision"
	NetworkLabel      = "topology.istio.io/network"
)

// knownLabels lists the known labels of pods and namespaces.
var knownLabels = []annotation{
	{name: contract.InjectLabel, means: "\"true\" or \"false\": whether to inject"},
	{name: contract.OwnInjectLabel, means: "as " + contract.InjectLabel},
	{name: contract.NamespaceLabel, means: "of a namespace: enabled or disabled"},
	{name: contract.OwnNamespaceLabel, means: "as " + contract.NamespaceLabel},
	{name: contract.RevisionLabel, means: "the revision that injects"},
	{name: contract.TLSModeLabel, means: "istio: the pod accepts mutual TLS; written"},
	{name: CanonicalName, means: "the workload's name; written"},
	{name: CanonicalRevision, means: "the workload's version; written"},
	{name: NetworkLabel, means: "the pod's network; written if global.network is set"},
	{name: "istio.io/tag", without: "an image's tag is the value global.tag"},
	{name: "istio.io/dataplane-mode", without: noAmbient + "; Istio's would take the pod's connections too, unless the label is none", same: "none"},
	{name: "istio.io/use-waypoint", without: noAmbient, same: "none"},
	{name: "istio.io/use-waypoint-namespace", without: noAmbient},
	{name: "istio.io/use-waypoint-canary", without: noAmbient},
	{name: "istio.io/use-waypoint-canary-namespace", without: noAmbient},
	{name: "istio.io/ingress-use-waypoint", without: noAmbient},
	{name: "istio.io/waypoint-for", without: noAmbient},
	{name: "networking.istio.io/tunnel", without: "the proxy takes no HBONE"},
	{name: "networking.istio.io/enable-autoallocate-ip", without: "it belongs to a ServiceEntry, which has no effect here; use a Host"},
	{name: "networking.istio.io/gatewayPort", without: noGateways},
	{name: "gateway.istio.io/managed", without: noGateways},
	{name: "gateway.networking.k8s.io/gateway-class-name", without: noGateways},
	{name: "gateway.networking.k8s.io/gateway-name", without: noGateways},
	{name: "operator.istio.io/component", without: "it is of Istio's own workloads"},
	{name: "operator.istio.io/managed", without: "it is of Istio's own workloads"},
	{name: "operator.istio.io/version", without: "it is of Istio's own workloads"},
	{name: "service.istio.io/workload-name", without: "the workload is the pod's owner"},
	{name: "topology.istio.io/cluster", without: "the cluster is the value global.multiCluster.clusterName"},
	{name: "topology.istio.io/locality", without: "where a pod is, is its label topology.kubernetes.io/zone, else what EndpointSlices say of its node"},
	{name: "topology.istio.io/subzone", without: "where a pod is, is its label topology.kubernetes.io/zone, else what EndpointSlices say of its node"},
}

const noGateways = "there are no gateways here; use an ingress controller"

// mostLabels is the maximum number of warnings about the labels of one object, and of unknown labels that are compared. The comparison of an unknown label
// with the known ones takes 20 µs, and an object can have 30,000 labels.
const mostLabels = 50

// CheckLabels returns the labels of Istio and of Outrider that have no effect. The second parameter is the text
// with which the warnings name the object, for example " of the namespace x". If another mesh provides the proxy
// (alongside), Istio's labels may be meant for that mesh and are not checked.
func CheckLabels(given map[string]string, of string, alongside bool) []Ignored {
	var out []Ignored
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(given)) {
		why := labelWithout(name, given[name])
		if why == "" || alongside && !strings.HasPrefix(name, contract.Prefix) {
			continue
		}
		if len(out) == mostLabels {
			return append(out, Ignored{Warning: fmt.Sprintf("more than %d labels%s have no effect", mostLabels, of)})
		}
		warning := fmt.Sprintf("label %s%s has no effect: %s", name, of, why)
		if why == unknownLabel {
			if compared++; compared > mostLabels && !strings.HasPrefix(name, contract.Prefix) {
				continue
			}
			meant := didYouMean(name, append(labelNames(), alike(name)...))
			if meant == "" && !strings.HasPrefix(name, contract.Prefix) {
				continue // a label of an author's own, which other programs may select by
			}
			why += meant
			warning = fmt.Sprintf("label %s%s is not known%s; it has no effect", name, of, meant)
		}
		out = append(out, Ignored{name, why, warning})
	}
	return out
}

// labelNames returns the labels that have an effect.
func labelNames() []string {
	var out []string
	for _, l := range knownLabels {
		if l.without == "" {
			out = append(out, l.name)
		}
	}
	return out
}

const unknownLabel = "the name is not known"

// labelWithout returns the reason why a label has no effect; empty if the label has an effect or does not belong
// to a mesh.
func labelWithout(name, value string) string {
	if i := slices.IndexFunc(knownLabels, func(l annotation) bool { return l.name == name }); i >= 0 {
		if l := knownLabels[i]; l.same == "" || l.same != value {
			return l.without
		}
		return ""
	}
	if _, known := annotationIndex[name]; known {
		return "it is an annotation"
	}
	if ofMesh(name) {
		return unknownLabel
	}
	return ""
}

// LabelOfIstio reports whether Istio reads or writes a label of that name, which has no effect here.
func LabelOfIstio(name string) bool {
	return slices.ContainsFunc(knownLabels, func(l annotation) bool { return l.name == name && l.without != "" })
}

// ofMesh reports whether the domain of an annotation or label is Istio's or ours.
func ofMesh(name string) bool {
	domain, _, qualified := strings.Cut(name, "/")
	return qualified && (domain == "istio.io" || strings.HasSuffix(domain, ".istio.io") || domain+"/" == contract.Prefix)
}
