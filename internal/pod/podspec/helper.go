package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/contract"
	"outrider.dev/startup"
)

// HelperOf are the containers that c only helps, by its gate: it ends with status 0 when
// they have ended for good. None: it ends by itself, or not at all.
func HelperOf(c *corev1.Container) []string {
	if !Gated(c) {
		return nil
	}
	line, _ := contract.ParseGate(slices.Concat(c.Command, c.Args)[1:])
	return line.HelperOf
}

// mains are the containers that a container only helps: those at the end of the chain of
// containers that wait for its health by gates. There are none if the pod runs for ever,
// or if no container waits for this one's health. A container that others wait for until it
// is started or completed does work of its own; one that gets healthy is a server, which
// does not end by itself and would keep a Job from completing.
func mains(pod *corev1.Pod, name string, edges []startup.Edge) []string {
	if policy := pod.Spec.RestartPolicy; policy == "" || policy == corev1.RestartPolicyAlways {
		return nil
	}
	served := func(name string) (by []string) {
		for _, e := range edges {
			if e.By == startup.Gate && e.From == name && e.After == startup.Healthy {
				by = append(by, e.To)
			}
		}
		return by
	}
	var out []string
	var visit func(string)
	seen := map[string]bool{}
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		by := served(name)
		if len(by) == 0 {
			out = append(out, name)
		}
		for _, next := range by {
			visit(next)
		}
	}
	visit(name)
	if slices.Equal(out, []string{name}) {
		return nil
	}
	slices.Sort(out)
	return out
}
