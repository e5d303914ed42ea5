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

// A helping says which containers wait for the health of which by gates.
type helping struct {
	served map[string]bool
	needs  startup.Dependency
}

// helpingIn returns that of a pod; nothing helps in one that runs for ever.
func helpingIn(pod *corev1.Pod, edges []startup.Edge) helping {
	h := helping{served: map[string]bool{}}
	if policy := pod.Spec.RestartPolicy; policy == "" || policy == corev1.RestartPolicyAlways {
		return h
	}
	var p startup.Plan
	for _, c := range carriers(pod) {
		p.Containers = append(p.Containers, startup.Container{Name: c.Name})
	}
	for _, e := range edges {
		if e.By == startup.Gate && e.After == startup.Healthy {
			h.served[e.From], p.Edges = true, append(p.Edges, e)
		}
	}
	h.needs = p.Dependency()
	return h
}

// mains are the containers that c only helps: those at the end of the chain of
// containers that wait for its health by gates. There are none if the pod runs for ever,
// or if no container waits for this one's health. A container that others wait for until it
// is started or completed does work of its own; one that gets healthy is a server, which
// does not end by itself and would keep a Job from completing.
func (h helping) mains(pod *corev1.Pod, name string) []string {
	if !h.served[name] {
		return nil
	}
	var out []string
	for _, c := range carriers(pod) {
		if !h.served[c.Name] && h.needs.Needs(c.Name, name) {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}
