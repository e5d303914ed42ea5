package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"outrider.dev/internal/podspec"
	"outrider.dev/startup"
)

// families are the beginnings of annotations that are about injection.
var families = []string{"outrider.dev/", "sidecar.istio.io/", "traffic.sidecar.istio.io/", "status.sidecar.istio.io/",
	"readiness.status.sidecar.istio.io/", "proxy.istio.io/", "inject.istio.io/", "prometheus.istio.io/"}

func inFamily(key string) bool {
	return slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(key, f) })
}

// withoutEffect are annotations that nobody acts on, with the reason. Sources:
// istio pkg/kube/inject at 86c9f01f; the reference of annotations in this repository.
var withoutEffect = map[string]string{
	"sidecar.istio.io/native-side":                       "the name is sidecar.istio.io/nativeSidecar",
	"readiness.status.sidecar.istio.io/applicationPorts": "readiness of the proxy does not depend on the application",
	"sidecar.istio.io/controlPlaneAuthPolicy":            "it is controlPlaneAuthPolicy of " + proxyConfig,
	"sidecar.istio.io/enableCoreDump":                    "core dumps are the container runtime's",
	"sidecar.istio.io/holdApplicationUntilProxyStarts":   "it is holdApplicationUntilProxyStarts of " + proxyConfig,
	"proxy.istio.io/holdApplicationUntilProxyStarts":     "it is holdApplicationUntilProxyStarts of " + proxyConfig,
	"sidecar.istio.io/terminationDrainDuration":          "it is terminationDrainDuration of " + proxyConfig,
	"sidecar.istio.io/terminationGracePeriodSeconds":     "it is the pod's own spec.terminationGracePeriodSeconds",
}

// noEffect says why an annotation of a pod does nothing; empty if it does something, or if
// that is not known. It is the one place that a table of all annotations replaces.
func noEffect(s *subject, key, value string) string {
	switch {
	case withoutEffect[key] != "":
		return withoutEffect[key]
	case s.Pod.Spec.HostNetwork && inFamily(key) && !strings.HasSuffix(key, "/status"):
		return "a pod with hostNetwork: true is never injected"
	case slices.Contains(podLabels, key) && value != "true" && value != "false":
		return fmt.Sprintf("%q is neither \"true\" nor \"false\": it is as if it was not there", value)
	case slices.Contains(podLabels, key) && value == "true" && s.proxy == "" && s.ns.source != nil:
		return "an annotation alone does not start injection: the API server goes by labels; make it a label"
	case key == nativeKey && value != "true" && value != "false":
		return fmt.Sprintf("%q is neither \"true\" nor \"false\"", value)
	case key == nativeKey && value == "true" && s.on < 29:
		return fmt.Sprintf("restartable init containers need Kubernetes 1.29, and this is 1.%d", s.on)
	case key == nativeKey && slices.Contains([]podspec.Start{"hold", podspec.StartOff}, s.reading.Start):
		return podspec.StartAnnotation + ": " + string(s.reading.Start) + " is more specific"
	case key == proxyConfig && s.configOf("holdApplicationUntilProxyStarts") == true && !s.injected && s.kind() == startup.Sidecar:
		return "holdApplicationUntilProxyStarts does nothing where the proxy is a native sidecar"
	}
	return ""
}

// annotationsOfPod says which of them do nothing.
func annotationsOfPod(s subject, b *builder) {
	for _, key := range slices.Sorted(maps.Keys(s.Pod.Annotations)) {
		value := s.Pod.Annotations[key]
		why := noEffect(&s, key, value)
		if why == "" {
			continue
		}
		c := clue{code: "annotation-no-effect", title: fmt.Sprintf("annotation %s has no effect", key), field: annotation(key), evidence: value, why: why,
			do: "take it away, or write what is meant"}
		if key == proxyConfig {
			c.evidence = "holdApplicationUntilProxyStarts"
			c.title = "holdApplicationUntilProxyStarts has no effect here"
			c.source = "istio/istio#59690: in native mode the setting is a no-op, without notice"
		} else {
			after := s.Pod.DeepCopy()
			delete(after.Annotations, key)
			if slices.Contains(podLabels, key) && value == "true" && !s.Pod.Spec.HostNetwork {
				if after.Labels == nil {
					after.Labels = map[string]string{}
				}
				after.Labels[key] = value
			}
			c.fix = podOps(&s.Pod, after, s.template)
		}
		b.add(c)
	}
}

// annotationsElsewhere: injection reads those of the pod, not those of what makes it.
func annotationsElsewhere(s subject, b *builder) {
	if s.Template == "" || s.root < 0 {
		return
	}
	holder, _, ok := find(s.source.roots[s.root], path{"metadata", "annotations"})
	if !ok || holder == nil {
		return
	}
	_, list, _ := find(s.source.roots[s.root], path{"metadata", "annotations"})
	list = target(list)
	for i := 0; i+1 < len(list.Content); i += 2 {
		key := list.Content[i].Value
		if !inFamily(key) || strings.HasSuffix(key, "/status") {
			continue
		}
		value := target(list.Content[i+1]).Value
		c := clue{code: "annotation-misplaced", title: fmt.Sprintf("annotation %s is on the %s, not on its pods", key, s.Kind), field: annotation(key),
			why:    "injection sees the pod alone: what stands on the object that makes it has no effect",
			do:     fmt.Sprintf("move it to %s", s.template.plus("metadata", "annotations")),
			source: "istio surface 1.2: all annotations are on the pod"}
		if _, there := s.Pod.Annotations[key]; !there {
			c.fix = []op{{annotation(key), nil}, {s.template.plus(annotation(key)...), value}}
		}
		b.addAt(s.source, s.root, c)
	}
}

// injectionWithoutEffect: a label asks for what cannot be.
func injectionWithoutEffect(s subject, b *builder) {
	for _, key := range podLabels {
		value, ok := s.Pod.Labels[key]
		why := ""
		switch {
		case !ok:
			continue
		case s.Pod.Spec.HostNetwork && value == "true":
			why = "a pod with hostNetwork: true is never injected: what it captured would be the node's traffic"
		case value != "true" && value != "false":
			why = fmt.Sprintf("%q is neither \"true\" nor \"false\": it is as if it was not there", value)
		}
		if why != "" {
			b.add(clue{code: "label-no-effect", title: fmt.Sprintf("label %s has no effect", key), field: path{"metadata", "labels", key}, evidence: value, why: why,
				do: "take it away, or write what is meant", source: "istio pkg/kube/inject/inject.go injectRequired"})
		}
	}
}
