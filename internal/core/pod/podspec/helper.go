package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/startup"
)

// HelperOf returns the containers that c serves, from the command line of its gate: the gate ends c with status 0
// when they have ended for good. If there are none, the gate does not end c.
func HelperOf(c *corev1.Container) []string {
	if !Gated(c) {
		return nil
	}
	line, _ := contract.ParseGate(argvOf(c)[1:])
	return line.HelperOf
}

// helpers divides regular containers into those that only serve others and those that do the work of the pod. It
// contains only containers whose gates report their ends.
type helpers struct{ serve, work map[string]bool }

// helpersIn returns the helpers of a pod with these gate edges. The containers listed in reports report their
// ends too. A pod that never completes has no helpers.
//
// A container does work of its own if others wait until it is started or completed. If others wait until it is
// healthy, it is a server: it does not end by itself and would keep a Job from completing. Sidecars are not
// included, because the kubelet ends them.
func helpersIn(pod *corev1.Pod, edges []startup.Edge, reports []string) helpers {
	h := helpers{map[string]bool{}, map[string]bool{}}
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
	for _, c := range podContainers(pod) {
		_, isProxy := knownproxy.Named(c.Name)
		ends := c.kind == startup.Plain && !isProxy // all other kinds are ended by the kubelet or the mesh
		h.work[c.Name] = ends && gated[c.Name] && !h.serve[c.Name]
		h.serve[c.Name] = ends && h.serve[c.Name]
	}
	return h
}

// served returns the containers for which a helper must keep running: all containers that do work of their own,
// even if they do not declare that they wait for the helper, since the pod does not complete before they have
// ended.
func (h helpers) served(name string) []string {
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
