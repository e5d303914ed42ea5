package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/knownproxy"
)

// healthURL is [knownproxy.HealthURL] of a container, with those of its probes that can succeed.
func healthURL(pod *corev1.Pod, c *corev1.Container) string {
	return knownproxy.HealthURL(c.Name, pod.Annotations, readyProbes(numbered(c))...)
}

// OnlyNamed returns the containers that have nothing of a mesh's proxy but its name: no probe, and neither an argument nor
// an image as that proxy has. Such a container may be another program, and may answer nowhere that it is healthy. The
// value is the address at which it is asked.
func OnlyNamed(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, c := range podContainers(pod) {
		p, is := knownproxy.Named(c.Name)
		if !is || c.Name == OurProxy || c.Image == "auto" || len(readyProbes(c.Container)) > 0 {
			continue
		}
		if !p.MentionedBy(c.Container) {
			out[c.Name] = healthURL(pod, c.Container)
		}
	}
	return out
}

// readyProbes returns the readiness probe and the startup probe of c, without one that cannot succeed.
func readyProbes(c *corev1.Container) (out []*corev1.Probe) {
	for _, p := range []*corev1.Probe{c.ReadinessProbe, startupProbe(c)} {
		if answers(c, p) {
			out = append(out, p)
		}
	}
	return out
}
