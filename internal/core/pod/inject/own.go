package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/merge"
	"outrider.dev/internal/core/pod/inject/settings"
)

// istioNames maps Istio's names of the injected containers to ours. A container with such a name and the image
// "auto" is not a proxy of Istio: its author expects the injector to fill in the rest.
var istioNames = map[string]string{"istio-proxy": contract.ProxyContainer, "istio-init": contract.InitContainer}

// requestsUs reports whether containers with Istio's names and the image "auto" are meant for us. They are not if
// Istio's labels belong to another injector, if another injector has already injected the pod, or if the pod
// requests a template other than "sidecar", such as a gateway's.
func requestsUs(pod *corev1.Pod, o Options) bool {
	_, injected := pod.Annotations[contract.IstioStatus]
	template, named := pod.Annotations[settings.TemplatesKey]
	return !o.OwnLabels && !injected && pod.Annotations[contract.Proxy] != "none" && (!named || template == "sidecar")
}

// Requests reports whether a container with the name of Istio's proxy is a request for our proxy.
func Requests(pod *corev1.Pod, o Options) bool {
	return requestsUs(pod, o) && slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return !containers.Ours(c.Name) && overridden(c) == contract.ProxyContainer
	})
}

// overridden returns the name of our container that c overrides; empty if it overrides none.
func overridden(c corev1.Container) string {
	if containers.Ours(c.Name) {
		return c.Name
	}
	if c.Image == merge.AutoImage {
		return istioNames[c.Name]
	}
	return ""
}

// ownContainers holds the author's own containers with our names or Istio's names: their fields override the
// fields of our containers.
type ownContainers struct {
	init, plain      []corev1.Container
	initOrder, order []string // names of all containers of the list, in order; only if it contains own containers
	before           int      // number of the author's regular containers that precede the own container of the proxy
}

func (o ownContainers) find(name string) (corev1.Container, bool) {
	for _, list := range [][]corev1.Container{o.init, o.plain} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return overridden(c) == name }); i >= 0 {
			return list[i], true
		}
	}
	return corev1.Container{}, false
}

// withoutOwn returns a copy of the pod without the author's own containers, and returns these containers
// separately.
func withoutOwn(pod *corev1.Pod, o Options) (*corev1.Pod, ownContainers) {
	var own ownContainers
	istios := requestsUs(pod, o)
	split := func(list []corev1.Container, own *[]corev1.Container) []corev1.Container {
		var out []corev1.Container
		for _, c := range list {
			if containers.Ours(c.Name) || istios && overridden(c) != "" {
				*own = append(*own, c)
			} else {
				out = append(out, c)
			}
		}
		return out
	}
	out := *pod
	out.Spec.InitContainers = split(pod.Spec.InitContainers, &own.init)
	out.Spec.Containers = split(pod.Spec.Containers, &own.plain)
	all := func(list []corev1.Container) (out []string) {
		for _, c := range list {
			out = append(out, c.Name)
		}
		return out
	}
	if len(own.init) > 0 {
		own.initOrder = all(pod.Spec.InitContainers)
	}
	if len(own.plain) > 0 {
		own.order = all(pod.Spec.Containers)
	}
	if at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return overridden(c) == contract.ProxyContainer && (istios || containers.Ours(c.Name))
	}); at > 0 {
		own.before = len(split(pod.Spec.Containers[:at], new([]corev1.Container)))
	}
	return &out, own
}
