package check

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/contract"
)

const nodePlugins = "nodes"

// nodePlugins reports on which nodes outrider-node is, and whether it serves there, as the nodes
// themselves say.
func (s *survey) nodePlugins(ctx context.Context) answer {
	nodes, err := s.allNodes(ctx)
	if err != nil {
		return unknown(err)
	}
	var have, lack, down []string
	for _, n := range nodes {
		switch has, matters := contract.HasNode(n.Labels); {
		case !matters:
		case !has:
			lack = append(lack, n.Name)
		case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == contract.NodeTaint }):
			down = append(down, n.Name)
		default:
			have = append(have, n.Name)
		}
	}
	const logs = "the log of the pod of DaemonSet outrider-node on that node has the reason"
	switch {
	case len(down) > 0:
		return failed(logs, "outrider-node does not serve on %s: pods that need it wait", few(down))
	case len(have) == 0:
		return fine("no node has outrider-node: containers of the pods capture, and bring the gates")
	case len(lack) > 0:
		return warning(logs+", if it is to run there", "outrider-node serves on %s, and not on %s: pods without %s get an init container", plural(len(have), "node", "nodes"), few(lack), contract.Init)
	}
	return fine("outrider-node serves on %s", plural(len(have), "node", "nodes"))
}

// nodesServe reports whether all nodes have outrider-node.
func (s *survey) nodesServe(ctx context.Context) bool {
	nodes, err := s.allNodes(ctx)
	some := false
	for _, n := range nodes {
		has, matters := contract.HasNode(n.Labels)
		if matters && !has {
			return false
		}
		some = some || matters
	}
	return some && err == nil
}
