// Package containers finds the containers of a pod: the author's and the injected ones.
package containers

import (
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/base/contract"
)

// Find returns a container of the pod by its name; nil if there is none.
func Find(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		if i := slices.IndexFunc(list, Named(name)); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// Named returns a predicate for containers with that name.
func Named(name string) func(corev1.Container) bool {
	return func(c corev1.Container) bool { return c.Name == name }
}

// Ours reports whether injection adds a container of that name.
func Ours(name string) bool { return name == contract.ProxyContainer || name == contract.InitContainer }

// Authors returns the containers of the pod that are not ours, the init containers first.
func Authors(pod *corev1.Pod) []*corev1.Container {
	var out []*corev1.Container
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !Ours(list[i].Name) {
				out = append(out, &list[i])
			}
		}
	}
	return out
}

// Names returns the names of a list of containers, except our proxy.
func Names(list []corev1.Container) []string {
	var out []string
	for _, c := range list {
		if c.Name != contract.ProxyContainer {
			out = append(out, c.Name)
		}
	}
	return out
}

// EndsOnce reports whether a pod can complete, as the pod of a Job does. Its proxy must then end too.
func EndsOnce(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}

// WithLists returns a shallow copy of the pod with its own lists of containers, so that elements can be added,
// removed and replaced. What a container refers to is still shared.
func WithLists(pod *corev1.Pod) *corev1.Pod {
	out := *pod
	out.Spec.InitContainers, out.Spec.Containers = slices.Clone(pod.Spec.InitContainers), slices.Clone(pod.Spec.Containers)
	return &out
}

// PortOf returns the number of a port that is given by name or number; 0 if the container declares no port of
// that name.
func PortOf(c *corev1.Container, p intstr.IntOrString) int32 {
	if p.Type == intstr.Int {
		return p.IntVal
	}
	for _, own := range c.Ports {
		if own.Name == p.StrVal {
			return own.ContainerPort
		}
	}
	n, _ := strconv.ParseUint(p.StrVal, 10, 16) // a number as a string: "8080"
	return int32(n)
}

// DeclaredPorts returns the ports that the regular containers declare, as JSON.
func DeclaredPorts(pod *corev1.Pod) string {
	type port struct {
		Name          string          `json:"name,omitempty"`
		ContainerPort int32           `json:"containerPort"`
		Protocol      corev1.Protocol `json:"protocol,omitempty"`
	}
	out := []port{}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			out = append(out, port{p.Name, p.ContainerPort, p.Protocol})
		}
	}
	text, _ := json.Marshal(out) // no error: only names and numbers
	return string(text)
}
