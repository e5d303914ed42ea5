package request

import (
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
)

// InjectLabels lists the labels by which a pod requests or declines injection. The first of these that a pod has
// is decisive.
var InjectLabels = []string{contract.OwnInjectLabel, contract.InjectLabel}

// Injection returns the value by which the pod requests or declines injection, and its source. Labels take
// precedence over annotations, even labels with an empty value.
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

// ExcludedKind returns the reason why pods like this one are never injected, as a code and a sentence. Both are
// empty if there is none.
func ExcludedKind(pod *corev1.Pod) (code, sentence string) {
	switch {
	case pod.Spec.HostNetwork:
		return "host-network", "the pod has hostNetwork: true, and what is captured there is the node's traffic"
	case pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows || pod.Spec.NodeSelector[corev1.LabelOSStable] == "windows":
		return "not-linux", "the pod is for Windows nodes; the proxy and the capture are for Linux"
	}
	return "", ""
}

// Excluded returns the reason why injection does not change the pod, whatever the settings of its namespace and
// the mesh are. The pod's annotations then have no effect. The result is empty if there is no such reason.
func Excluded(pod *corev1.Pod) string {
	if _, sentence := ExcludedKind(pod); sentence != "" {
		return sentence
	}
	if value, where := Injection(pod); value == "false" {
		return where + " is \"false\""
	}
	return ""
}
