package inject

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// autoImage, as the image of an author's own container, means our image.
const autoImage = "auto"

// istioNames maps Istio's names of the injected containers to ours. With the image "auto" such a container
// is not a proxy of Istio's: its author leaves the rest for the injector to fill in.
var istioNames = map[string]string{"istio-proxy": contract.ProxyContainer, "istio-init": contract.InitContainer}

// requestsUs reports whether containers with Istio's names and the image "auto" are for us. They are not if
// another injector has Istio's labels or has already injected the pod, nor if the pod requests another
// template than a sidecar's, such as a gateway's.
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
	if c.Image == autoImage {
		return istioNames[c.Name]
	}
	return ""
}

// ownContainers holds the author's own containers with our names, or Istio's: they override fields of ours.
type ownContainers struct {
	init, plain      []corev1.Container
	initOrder, order []string // names in each list that has own containers, including these
	before           int      // number of the author's plain containers before the own container of the proxy
}

func (o ownContainers) find(name string) (corev1.Container, bool) {
	for _, list := range [][]corev1.Container{o.init, o.plain} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return overridden(c) == name }); i >= 0 {
			return list[i], true
		}
	}
	return corev1.Container{}, false
}

// withoutOwn returns a copy of the pod without the author's own containers.
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

// listKeys has the fields that identify the elements of lists, as in a strategic merge patch of the API. Any
// other list is replaced as a whole.
var listKeys = map[string]string{"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}

// merged returns our container with the fields of the author's own container of that name.
func merged(ours, own corev1.Container) (corev1.Container, error) {
	if own.Image == autoImage || own.Image == "" {
		own.Image = ours.Image
		if own.ImagePullPolicy == corev1.PullAlways { // the API server sets it for an image without a tag
			own.ImagePullPolicy = ""
		}
	}
	if own.TerminationMessagePolicy == corev1.TerminationMessageReadFile { // the API server sets it by default
		own.TerminationMessagePolicy = ""
	}
	written := own.Name
	own.Name = ours.Name
	below, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&ours)
	if err != nil {
		return ours, err
	}
	above, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&own)
	if err != nil {
		return ours, err
	}
	var out corev1.Container
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(mergeMaps(below, above), &out); err != nil {
		return ours, verdict.Refuse(verdict.InvalidOverride, "", "the pod's own container %s: %v", written, err)
	}
	out.RestartPolicy = ours.RestartPolicy // the plan decides whether it is a sidecar
	withinLimits(out.Resources, own.Resources)
	withinSecurity(out.SecurityContext, own.SecurityContext)
	return out, nil
}

// handlers are fields of a probe and a hook that exclude one another.
var handlers = []string{"exec", "httpGet", "tcpSocket", "grpc", "sleep"}

// wholes are objects that are not merged. The API server sets the fields that a probe's author left out
// before the webhook sees the probe.
var wholes = []string{"readinessProbe", "livenessProbe", "startupProbe", "seccompProfile"}

func mergeMaps(below, above map[string]any) map[string]any {
	for name, v := range above {
		switch v := v.(type) {
		case map[string]any:
			b, ok := below[name].(map[string]any)
			if hasHandler := slices.ContainsFunc(handlers, func(h string) bool { return v[h] != nil }); hasHandler || !ok {
				break
			}
			if slices.Contains(wholes, name) {
				maps.DeleteFunc(b, func(field string, _ any) bool { return !slices.Contains(handlers, field) })
			}
			below[name] = mergeMaps(b, v)
			continue
		case []any:
			if b, ok := below[name].([]any); ok && listKeys[name] != "" {
				below[name] = mergeLists(b, v, listKeys[name])
				continue
			}
		}
		below[name] = v
	}
	return below
}

// mergeLists replaces elements with the same key as a whole, since a variable's value and its
// source exclude one another.
func mergeLists(below, above []any, key string) []any {
	for _, v := range above {
		a, isMap := v.(map[string]any)
		i := slices.IndexFunc(below, func(o any) bool {
			b, ok := o.(map[string]any)
			return ok && isMap && b[key] == a[key]
		})
		if i < 0 {
			below = append(below, v)
			continue
		}
		below[i] = v
	}
	return below
}
