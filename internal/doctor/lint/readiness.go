package lint

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// index notes which subjects have a label, so that a service is compared with those alone
// that have one of its selector.
func (w *world) index() {
	w.byLabel = map[string][]int{}
	for i := range w.subjects {
		s := &w.subjects[i]
		for _, key := range slices.Sorted(maps.Keys(s.Pod.Labels)) {
			at := w.labelKey(s.Ref.Namespace, key, s.Pod.Labels[key])
			w.byLabel[at] = append(w.byLabel[at], i)
		}
	}
}

func (w *world) labelKey(namespace, key, value string) string {
	return cmp.Or(namespace, w.Namespace) + "\x00" + key + "\x00" + value
}

// behind are the subjects that a service sends connections to.
func (w *world) behind(s service) []int {
	var fewest []int
	for i, key := range slices.Sorted(maps.Keys(s.Spec.Selector)) {
		if with := w.byLabel[w.labelKey(s.Ref.Namespace, key, s.Spec.Selector[key])]; i == 0 || len(with) < len(fewest) {
			fewest = with
		}
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	return slices.DeleteFunc(slices.Clone(fewest), func(i int) bool { return !selector.Matches(labels.Set(w.subjects[i].Pod.Labels)) })
}

// serviceWithoutReadiness: a pod without a readiness probe is ready as soon as it runs.
func serviceWithoutReadiness(s service, b *builder) {
	if s.Spec.PublishNotReadyAddresses || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	for _, i := range b.behind(s) {
		pod := b.subjects[i]
		if pod.ends() {
			continue
		}
		if name := pod.unprobed(s.Spec.Ports); name != "" {
			b.add(clue{code: "service-without-readiness", title: fmt.Sprintf("%s sends connections to %s of %s before it is ready", s.Ref, name, pod.Ref), field: path{"spec", "selector"}, evidence: "selector",
				why: "without a readiness probe a container is ready as soon as it runs: at each start and each rollout connections reach it before it listens",
				do:  fmt.Sprintf("give %s a readiness probe", name), source: "Kubernetes \"Pod Lifecycle\": container readiness defaults to Success"})
		}
	}
}

// unprobed is a container behind one of the ports that has neither a readiness nor a startup
// probe; empty if there is none. A container counts that declares the port; if none
// does, one probe in the pod is enough.
func (s *subject) unprobed(ports []corev1.ServicePort) string {
	own := slices.DeleteFunc(s.members(), func(m member) bool { return m.kind == startup.Init || podspec.OfMesh(m.Name) })
	probed := func(m member) bool { return m.ReadinessProbe != nil || m.StartupProbe != nil }
	for _, p := range ports {
		target := p.TargetPort
		if target == (intstr.IntOrString{}) {
			target = intstr.FromInt32(p.Port)
		}
		i := slices.IndexFunc(own, func(m member) bool { n := podspec.PortNumber(m.Container, target); return n != 0 && m.declares(n) })
		if i >= 0 && !probed(own[i]) && !own[i].scraped(p, target) {
			return own[i].Name
		}
		if i < 0 && len(own) > 0 && !slices.ContainsFunc(own, probed) && !own[0].scraped(p, target) {
			return own[0].Name
		}
	}
	return ""
}

var scrapes = regexp.MustCompile(`metrics|monitor|prometheus|exporter|kube-rbac-proxy`)

// scraped reports whether nothing is lost on a port when its container does not listen yet:
// Prometheus scrapes it again, as its names show, or the container only sleeps.
func (m member) scraped(p corev1.ServicePort, target intstr.IntOrString) bool {
	names := []string{p.Name, target.StrVal, m.Name, podspec.ImageName(m.Image)}
	n := podspec.PortNumber(m.Container, target)
	for _, own := range m.Ports {
		if int(own.ContainerPort) == n {
			names = append(names, own.Name)
		}
	}
	return slices.ContainsFunc(names, scrapes.MatchString) || m.offline()
}
