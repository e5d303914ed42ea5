package changes

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
)

// A status is the annotation outrider.dev/status, which lists what injection added.
type status struct {
	InitContainers   []string `json:"initContainers,omitempty"`
	Containers       []string `json:"containers,omitempty"`
	Volumes          []string `json:"volumes,omitempty"`
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	Revision         string   `json:"revision"`
}

// InjectedBy reports whether a pod was injected, and by which revision. The revision is empty if the annotation
// is invalid.
func InjectedBy(pod *corev1.Pod) (injected bool, revision string) {
	text, injected := pod.Annotations[contract.Status]
	var s status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return injected, "" // another program wrote the annotation
	}
	return injected, s.Revision
}

func statusOf(given, pod *corev1.Pod, revision string) status {
	out := status{Revision: revision}
	for _, c := range pod.Spec.InitContainers {
		if containers.Ours(c.Name) {
			out.InitContainers = append(out.InitContainers, c.Name)
		}
	}
	for _, c := range pod.Spec.Containers {
		if containers.Ours(c.Name) {
			out.Containers = append(out.Containers, c.Name)
		}
	}
	had := volumesOf(given)
	for _, v := range pod.Spec.Volumes {
		if !had[v.Name] {
			out.Volumes = append(out.Volumes, v.Name)
		}
	}
	secrets := map[corev1.LocalObjectReference]bool{}
	for _, secret := range given.Spec.ImagePullSecrets {
		secrets[secret] = true
	}
	for _, secret := range pod.Spec.ImagePullSecrets {
		if !secrets[secret] {
			out.ImagePullSecrets = append(out.ImagePullSecrets, secret.Name)
		}
	}
	return out
}

// volumesOf returns the names of a pod's volumes.
func volumesOf(pod *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		out[v.Name] = true
	}
	return out
}
