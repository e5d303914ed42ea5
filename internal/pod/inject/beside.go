package inject

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// A pod of another mesh keeps its proxy. Ours then adds order, and parking by
// outrider-init, which writes no capture; what the other injector made, and what is said
// to it, stays as it is. It may have been there before us, or come after us: then the API
// server asks again (reinvocationPolicy: IfNeeded), and the pod is injected anew.

// otherMeshes are the proxies of other meshes' injectors.
var otherMeshes = []string{"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane"}

// istioStatus is Istio's mark of what it injected.
const istioStatus = "sidecar.istio.io/status"

// otherMesh names the other mesh's proxy in the pod; empty if there is none.
func otherMesh(pod *corev1.Pod) string {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if slices.Contains(otherMeshes, c.Name) {
				return c.Name
			}
		}
	}
	var injected struct{ Containers []string }
	if text, ok := pod.Annotations[istioStatus]; ok && json.Unmarshal([]byte(text), &injected) == nil {
		for _, name := range injected.Containers { // of a template of one's own
			if find(pod, name) != nil && name != proxyName {
				return name
			}
		}
	}
	return ""
}

// asksForOurs says whether pod or namespace ask for injection by a label of ours, which no
// other injector listens to.
func asksForOurs(pod *corev1.Pod, ns Namespace) bool {
	if v, ok := pod.Labels[ownInjectLabel]; ok {
		return v == "true"
	}
	return pod.Annotations[ownInjectLabel] == "true" || ns.Labels[ownNamespace] == "enabled"
}

// heard is what counts of a pod and its namespace where Istio's labels are another
// injector's.
func (o Options) heard(pod *corev1.Pod, ns Namespace) (*corev1.Pod, Namespace) {
	without := func(m map[string]string, keys ...string) map[string]string {
		m = maps.Clone(m) // one that is nil stays so
		for _, key := range keys {
			delete(m, key)
		}
		return m
	}
	out := *pod
	out.Labels, out.Annotations = without(pod.Labels, injectLabel, revisionLabel), without(pod.Annotations, injectLabel)
	ns.Labels = without(ns.Labels, namespaceLabel, revisionLabel)
	return &out, ns
}

// forOthers says whether Istio's labels ask for injection.
func (o Options) forOthers(pod *corev1.Pod, ns Namespace) bool {
	o.OwnLabels = false
	reason, _ := byLabels(pod, ns, o)
	return reason.Code == Injected
}

// ours are the annotations that are said to us: all, or beside another mesh those of our
// family, and what is said of order and capture in general.
func (in *injection) ours() map[string]string {
	if !in.beside {
		return in.pod.Annotations
	}
	out := maps.Clone(in.pod.Annotations)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return !strings.HasPrefix(key, ownFamily) && key != proxyConfigKey && key != modeKey
	})
	return out
}

// stillToCome takes the edges from another mesh's proxy that its injector has not added
// yet out of those asked for. They are asked for again when it has.
func (in *injection) stillToCome(r podspec.Reading) []startup.Edge {
	return slices.DeleteFunc(slices.Clone(r.Asked), func(e startup.Edge) bool {
		if !in.beside || !slices.Contains(otherMeshes, e.From) || find(in.pod, e.From) != nil {
			return false
		}
		in.warn("%s is to wait for %s, which is not in the pod: nobody waits until its mesh has added it and the pod is injected again", e.To, e.From)
		return true
	})
}

// untouched are the mechanisms that would change the other mesh's proxy: it becomes no
// sidecar, and gets no hook, unless somebody asks for that by name.
func untouched(r podspec.Reading, proxy string) []startup.Mechanism {
	var out []startup.Mechanism
	at := slices.IndexFunc(r.Containers, func(c startup.Container) bool { return c.Name == proxy })
	if at >= 0 && r.Containers[at].Kind == startup.Plain {
		out = append(out, startup.Native)
	}
	holds := func(f podspec.Found) bool { return f.Mechanism == startup.Hold && f.Container == proxy }
	if !slices.ContainsFunc(r.Found, holds) {
		out = append(out, startup.Hold)
	}
	return out
}
