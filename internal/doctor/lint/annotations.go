package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
)

// noEffect returns the reason why an annotation of a pod has no effect. It returns an empty string if the annotation
// has an effect, or if it is not known whether it has one.
//
// complexity: one case for each reason.
func noEffect(s *subject, key, value string) string {
	forInjection := slices.Contains(request.InjectLabels, key)
	switch {
	case settings.ReadByNoMesh(key) != "":
		return settings.ReadByNoMesh(key)
	case s.Pod.Spec.HostNetwork && settings.InFamily(key) && !strings.HasSuffix(key, "/status"):
		return "a pod with hostNetwork: true is never injected"
	case request.IsEdges(key) && request.Excluded(&s.Pod) != "":
		return "injection leaves the pod as it is: " + request.Excluded(&s.Pod)
	case forInjection && value != "true" && value != "false":
		return fmt.Sprintf("%q is neither \"true\" nor \"false\": it is ignored", value)
	case forInjection && value == "true" && s.reason.Code == verdict.NotRequested && s.ns.at == nil:
		return "an annotation alone does not start injection: the API server selects pods by their labels, or those of the namespace, which is not among the files"
	case forInjection && value == "true" && s.reason.Code == verdict.NotRequested:
		return "an annotation alone does not start injection: the API server selects pods by labels; make it a label"
	case !s.injected && settings.OfIstio(key): // it may be meant for Istio
	case s.result.NoEffect[key] != "":
		return s.result.NoEffect[key]
	case key == proxyConfig && s.configOf("holdApplicationUntilProxyStarts") == true && !s.injected && s.kind() == startup.Sidecar:
		return "holdApplicationUntilProxyStarts does nothing where the proxy is a native sidecar"
	}
	return ""
}

// annotationsOfPod reports the annotations that do nothing.
func annotationsOfPod(s subject, b *builder) {
	for _, key := range slices.Sorted(maps.Keys(s.Pod.Annotations)) {
		value := s.Pod.Annotations[key]
		why := noEffect(&s, key, value)
		if why == "" {
			continue
		}
		c := clue{code: "annotation-no-effect", title: fmt.Sprintf("annotation %s has no effect", key), field: annotation(key), evidence: value, why: why,
			do: "remove it, or correct it"}
		if key == proxyConfig {
			c.evidence = "holdApplicationUntilProxyStarts"
			c.title = "holdApplicationUntilProxyStarts has no effect here"
			if !s.injected {
				c.source = "istio/istio#59690: in native mode the setting is a no-op, without notice"
			}
		} else if after := s.corrected(key); after != nil {
			if s.asksByAnnotation() && s.ns.at == nil {
				c.severity = finding.Note // the namespace may request injection
			}
			c.fix, c.do = s.to(after.pod), after.how
		}
		b.add(c)
	}
}

// A correction gives an annotation the effect that its author probably intended.
type correction struct {
	pod *corev1.Pod
	how string
}

// corrected renames a misspelt annotation, or turns it into a label. It returns nil if neither gives the annotation
// an effect. It never deletes an annotation, because the author's intention would be lost.
func (s *subject) corrected(key string) *correction {
	out, value := s.Pod.DeepCopy(), s.Pod.Annotations[key]
	delete(out.Annotations, key)
	if slices.Contains(request.InjectLabels, key) {
		if _, there := out.Labels[key]; value != "true" || s.Pod.Spec.HostNetwork || there {
			return nil
		}
		out.Labels = maps.Clone(out.Labels)
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[key] = value
		return &correction{out, "make it a label"}
	}
	meant := settings.Meant(key)
	if _, there := out.Annotations[meant]; meant == "" || there {
		return nil
	}
	out.Annotations[meant] = value
	if s.inject != nil { // nil for the proxy of another mesh, for which the correction cannot be tried
		if r, err := s.inject(out); err != nil || r.NoEffect[meant] != "" {
			return nil // the value is still invalid
		}
	}
	return &correction{out, "rename it to " + meant}
}

// annotationsElsewhere finds annotations on the object that creates the pod, or on the template of the Jobs that do.
// Injection does not read them there. Whether the controllers of other kinds copy them is not known.
func annotationsElsewhere(s subject, b *builder) {
	if s.Template == "" || s.at.Node == nil || !slices.Contains([]string{"", "apps", "batch", "v1", "extensions"}, strings.Split(s.APIVersion, "/")[0]) {
		return
	}
	for _, parent := range []path{nil, {"spec", "jobTemplate"}} {
		place := parent.plus(annotation("")[:2]...)
		list := manifest.Field(s.at.Node, place.keys()...)
		if list == nil {
			continue
		}
		on := "the " + s.Kind
		if parent != nil {
			on = "the template of its Jobs"
		}
		for i := 0; i+1 < len(list.Content); i += 2 {
			key := list.Content[i].Value
			if settings.InFamily(key) && settings.OfPods(key) && !strings.HasSuffix(key, "/status") {
				b.addAt(s.at, s.misplaced(key, manifest.Text(list, key), place.plus(key), on))
			}
		}
	}
}

// misplaced describes an annotation at a field outside the pod.
func (s *subject) misplaced(key, value string, at path, on string) clue {
	c := clue{code: "annotation-misplaced", title: fmt.Sprintf("annotation %s is on %s, not on its pods", key, on), field: at,
		why:    "injection sees only the pod: annotations of the object that creates it have no effect",
		do:     fmt.Sprintf("move it to %s", s.template.plus("metadata", "annotations")),
		source: "Istio: all annotations are on the pod"}
	if _, there := s.Pod.Annotations[key]; !there {
		before := manifest.Set(nil, at.keys(), value)
		after := manifest.Set(before, at.keys(), nil)
		c.fix = &change{before, manifest.Set(after, s.template.plus(annotation(key)...).keys(), value)}
	}
	return c
}

// labelsWithoutEffect reports injection labels that do nothing.
func labelsWithoutEffect(s subject, b *builder) {
	for _, key := range slices.Sorted(maps.Keys(s.Pod.Labels)) {
		value := s.Pod.Labels[key]
		forInjection := slices.Contains(request.InjectLabels, key)
		why, source := s.result.NoLabel[key], ""
		switch {
		case !s.injected && settings.LabelOfIstio(key): // it may be meant for Istio
			continue
		case forInjection && s.Pod.Spec.HostNetwork && value == "true":
			why = "a pod with hostNetwork: true is never injected: it would capture the node's traffic"
		case forInjection && value != "true" && value != "false":
			why = fmt.Sprintf("%q is neither \"true\" nor \"false\": it is ignored", value)
		}
		if forInjection {
			source = "istio pkg/kube/inject/inject.go injectRequired"
		}
		if why != "" {
			b.add(clue{code: "label-no-effect", title: fmt.Sprintf("label %s has no effect", key), field: path{"metadata", "labels", key}, evidence: value, why: why,
				do: "remove it, or correct it", source: source})
		}
	}
}
