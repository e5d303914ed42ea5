package request

import (
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
)

// InjectLabels are the labels by which a pod requests or declines injection. If a pod has several, the first
// in this list decides.
var InjectLabels = []string{contract.OwnInjectLabel, contract.InjectLabel}

// Injection returns the value of the pod's own label, even if it is empty; if there is no label, of
// the pod's annotation.
func Injection(pod *corev1.Pod) (value, where string) {
	for _, key := range InjectLabels {
		if v, ok := pod.Labels[key]; ok {
			return v, "label " + key
		}
	}
	for _, key := range InjectLabels {
		if v, ok := pod.Annotations[key]; ok {
			return v, "annotation " + key
		}
	}
	return "", ""
}

// ExcludedKind returns why no pod of this kind is injected, as a code and a sentence; both are empty if such
// pods are injected.
func ExcludedKind(pod *corev1.Pod) (code, sentence string) {
	switch {
	case pod.Spec.HostNetwork:
		return "host-network", "the pod has hostNetwork: true, and what is captured there is the node's traffic"
	case pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows || pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows":
		return "not-linux", "the pod is for Windows nodes; the proxy and the capture are for Linux"
	}
	return "", ""
}

// Excluded returns why injection does not change the pod, whatever its namespace and the mesh say. The pod's
// annotations then have no effect. It returns an empty string if injection may change the pod.
func Excluded(pod *corev1.Pod) string {
	if _, sentence := ExcludedKind(pod); sentence != "" {
		return sentence
	}
	if value, where := Injection(pod); value == "false" {
		return where + " is \"false\""
	}
	return ""
}
