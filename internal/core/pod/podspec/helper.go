package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
)

// HelperOf are the containers that c only helps, by its gate: it ends with status 0 when
// they have ended for good. None: it ends by itself, or not at all.
func HelperOf(c *corev1.Container) []string {
	if !Gated(c) {
		return nil
	}
	line, _ := contract.ParseGate(argvOf(c)[1:])
	return line.HelperOf
}

// A helping says which plain containers only serve others, and which have work of their own, as far as
// gates report their ends.
type helping struct{ serve, work map[string]bool }

// helpingIn sorts the containers of a pod in which gates keep the edges, and in which these containers
// report their ends; nothing helps in a pod that runs for ever.
//
// A container that others wait for until it is started or completed does work of its own; one that
// gets healthy is a server, which does not end by itself and would keep a Job from completing. Sidecars
// the kubelet ends itself.
func helpingIn(pod *corev1.Pod, edges []startup.Edge, reports []string) helping {
	h := helping{map[string]bool{}, map[string]bool{}}
	if policy := pod.Spec.RestartPolicy; policy == "" || policy == corev1.RestartPolicyAlways {
		return h
	}
	gated := map[string]bool{}
	for _, name := range reports {
		gated[name] = true
	}
	for _, e := range edges {
		if e.By == startup.Gate {
			gated[e.From], gated[e.To] = true, true
			h.serve[e.From] = h.serve[e.From] || e.After == startup.Healthy
		}
	}
	for _, c := range carriers(pod) {
		_, isProxy := knownProxy(c.Name)
		ends := c.kind == startup.Plain && !isProxy // by itself, or by its gate
		h.work[c.Name] = ends && gated[c.Name] && !h.serve[c.Name]
		h.serve[c.Name] = ends && h.serve[c.Name]
	}
	return h
}

// mains are the containers after whose end nothing is left for one that only helps: all with work of
// their own, also those that do not declare that they wait for it. The pod does not complete before.
func (h helping) mains(name string) []string {
	if !h.serve[name] {
		return nil
	}
	var out []string
	for c, works := range h.work {
		if works {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}
