package check

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
)

const nodePlugins = "nodes"

// byPlugins returns three lists of nodes, by their labels and taints: those on which outrider-node serves, those
// without it, and those on which it has stopped serving.
func (s *survey) byPlugins(ctx context.Context) (serve, lack, down []string, err error) {
	nodes, err := s.allNodes(ctx)
	for _, n := range nodes {
		switch has, matters := contract.HasNode(n.Labels); {
		case !matters:
		case !has:
			lack = append(lack, n.Name)
		case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == contract.NodeTaint }):
			down = append(down, n.Name)
		default:
			serve = append(serve, n.Name)
		}
	}
	return serve, lack, down, err
}

// nodePlugins checks that outrider-node serves on all nodes, or that no node has it.
func (s *survey) nodePlugins(ctx context.Context) answer {
	serve, lack, down, err := s.byPlugins(ctx)
	const logs = "the log of the pod of DaemonSet outrider-node on that node has the reason"
	switch {
	case err != nil:
		return unknown(err)
	case len(down) > 0:
		return failed(logs, "outrider-node does not serve on %s: pods that need it wait", cli.Few(down))
	case len(serve) == 0 && s.takesNode(ctx, lack):
		return answer{OK, "no node has outrider-node, and the container runtime of each takes it: order without commands and privileges", "outrider upgrade --set node.enabled=true; docs/node.md says what that gives and takes"}
	case len(serve) == 0:
		return fine("no node has outrider-node: containers of the pods capture, and bring the gates")
	case len(lack) > 0:
		return warning(logs+", if it is to run there", "outrider-node serves on %s, and not on %s: pods without %s get an init container", plural(len(serve), "node", "nodes"), cli.Few(lack), contract.Init)
	}
	return s.validators(ctx, serve)
}

// validators checks, by the nodes' labels, that the container runtimes refuse a container if a plugin that its pod
// requires is missing.
func (s *survey) validators(ctx context.Context, serve []string) answer {
	nodes, err := s.allNodes(ctx)
	if err != nil {
		return unknown(err)
	}
	by := map[string][]string{}
	for _, n := range nodes {
		if slices.Contains(serve, n.Name) {
			state := cmp.Or(n.Labels[contract.NodeValidator], contract.ValidatorUnknown)
			by[state] = append(by[state], n.Name)
		}
	}
	const without = "a container that needs its gate can start without, if other pods of the node keep the plugins out"
	switch off, restart, unread := by[contract.ValidatorOff], by[contract.ValidatorRestart], by[contract.ValidatorUnknown]; {
	case len(off) > 0:
		return failed("docs/node.md has the lines for the runtime's configuration, under \"Closed, not open\"; containerd has a validator from 2.2 on", "the runtime's validator is off on %s: "+without, cli.Few(off))
	case len(restart) > 0:
		return failed("systemctl restart containerd on each; running pods go on", "the runtime of %s was not restarted since its configuration has the validator: "+without, cli.Few(restart))
	case len(unread) > 0:
		return warning("see that containerd's validator is on (docs/node.md, \"Closed, not open\"); the value node.runtimeConfig says where its configuration is, and the log of the pod of outrider-node why it is not read", "outrider-node serves on %s; whether the runtime's validator is on is not known of %s", plural(len(serve), "node", "nodes"), cli.Few(unread))
	}
	return fine("outrider-node serves on %s, and the runtime of each has its validator on", plural(len(serve), "node", "nodes"))
}

// takesNode reports whether the container runtimes of these nodes enable by default what outrider-node needs.
// containerd 2.2 and later versions are known to do so (docs/node.md).
func (s *survey) takesNode(ctx context.Context, names []string) bool {
	nodes, err := s.allNodes(ctx)
	return err == nil && len(names) > 0 && !slices.ContainsFunc(nodes, func(n corev1.Node) bool {
		name, text, _ := strings.Cut(n.Status.NodeInfo.ContainerRuntimeVersion, "://")
		v, err := version.ParseGeneric(text)
		return slices.Contains(names, n.Name) && (name != "containerd" || err != nil || v.LessThan(version.MajorMinor(2, 2)))
	})
}

// nodesServe reports whether outrider-node serves on all nodes.
func (s *survey) nodesServe(ctx context.Context) bool {
	serve, lack, down, err := s.byPlugins(ctx)
	return err == nil && len(lack) == 0 && len(serve)+len(down) > 0
}
