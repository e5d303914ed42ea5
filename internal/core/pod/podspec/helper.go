package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
)

// HelperOf returns the containers that c only serves, as its gate says: c ends with status 0 when they have
// ended for good. If there are none, c ends by itself, or not at all.
func HelperOf(c *corev1.Container) []string {
	if !Gated(c) {
		return nil
	}
	line, _ := contract.ParseGate(argvOf(c)[1:])
	return line.HelperOf
}

// helpers says which plain containers only serve others, and which do work of their own. It includes only
// containers whose ends gates report.
type helpers struct{ serve, work map[string]bool }

// helpersIn sorts the containers of a pod with these gate edges, where the containers in reports report
// their ends too. In a pod that runs for ever no container is a helper.
//
// A container that others wait for until it is started or completed does work of its own. A container that
// others wait for until it is healthy is a server: it does not end by itself, and would keep a Job from
// completing. The kubelet itself ends sidecars.
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
		_, isProxy := knownProxy(c.Name)
		ends := c.kind == startup.Plain && !isProxy // by itself, or by its gate
		h.work[c.Name] = ends && gated[c.Name] && !h.serve[c.Name]
		h.serve[c.Name] = ends && h.serve[c.Name]
	}
	return h
}

// served returns the containers after whose end a helper has nothing left to do: all containers that do work
// of their own, including those that do not declare that they wait for the helper. The pod does not complete
// before they have ended.
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
