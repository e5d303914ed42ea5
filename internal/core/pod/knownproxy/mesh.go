package knownproxy

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
)

// A Mesh is a service mesh. It is recognised by its proxy, to which it redirects connections.
type Mesh struct {
	Proxy string
	User  int64    // ID of the proxy's user and of its group; their connections are not captured
	Init  []string // init containers that write or check the capture rules

	Native string // annotation by which the mesh makes its proxy a native sidecar; empty if there is none
}

// Meshes lists the known meshes. Sources: istio
// manifests/charts/istio-control/istio-discovery/files/injection-template.yaml; linkerd2
// charts/partials/templates/_proxy.tpl and _proxy-init.tpl; linkerd.io/2/reference/proxy-configuration, where the same
// annotation with config.alpha is deprecated.
var Meshes = []Mesh{
	{contract.ProxyContainer, contract.ProxyUser, []string{contract.InitContainer}, contract.NativeSidecar},
	{"istio-proxy", contract.ProxyUser, []string{"istio-init", "istio-validation"}, contract.NativeSidecar},
	{"linkerd-proxy", 2102, []string{"linkerd-init", "linkerd-network-validator"}, "config.beta.linkerd.io/proxy-enable-native-sidecar"},
	{"kuma-sidecar", 5678, []string{"kuma-init"}, ""},
}

// MeshOf returns the mesh that injects a proxy of that name; false if none is known.
func MeshOf(proxy string) (Mesh, bool) {
	i := slices.IndexFunc(Meshes, func(m Mesh) bool { return m.Proxy == proxy })
	if i < 0 {
		return Mesh{}, false
	}
	return Meshes[i], true
}

// NativeAnnotation returns the annotation, with its value, by which a mesh makes its proxy a native sidecar; empty if there
// is none.
func NativeAnnotation(proxy string) string {
	if m, _ := MeshOf(proxy); m.Native != "" {
		return m.Native + `: "true"`
	}
	return ""
}

// OfMesh reports whether a mesh adds a container of that name.
func OfMesh(name string) bool {
	return slices.ContainsFunc(Meshes, func(m Mesh) bool { return m.Proxy == name || slices.Contains(m.Init, name) })
}

// OtherMesh reports whether another mesh injects a proxy of that name.
func OtherMesh(name string) bool {
	p, known := Named(name)
	return known && !p.addressed && name != contract.ProxyContainer
}

// IsMeshProxy reports whether a container is the proxy of a mesh, to which the pod's connections are redirected: by its
// name, or because Istio's annotation names it, which has the containers of a user-defined template.
func IsMeshProxy(pod *corev1.Pod, c *corev1.Container) bool {
	if p, known := Named(c.Name); known {
		return !p.addressed
	}
	return c.Name == OfTemplate(pod)
}

// OfTemplate returns the proxy of a pod without one that is known by its name: the first container that Istio's
// annotation names. It is empty if there is none.
func OfTemplate(pod *corev1.Pod) string {
	text, ok := pod.Annotations[contract.IstioStatus]
	var injected struct{ Containers []string }
	if !ok || json.Unmarshal([]byte(text), &injected) != nil {
		return ""
	}
	var all []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, list[i].Name)
		}
	}
	if slices.ContainsFunc(all, OtherMesh) {
		return ""
	}
	i := slices.IndexFunc(injected.Containers, func(name string) bool {
		return name != contract.ProxyContainer && slices.Contains(all, name)
	})
	if i < 0 {
		return ""
	}
	return injected.Containers[i]
}
