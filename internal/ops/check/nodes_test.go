package check

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/base/contract"
)

func TestNodePlugins(t *testing.T) {
	node := func(name, what string) runtime.Object {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		switch what {
		case "windows":
			n.Labels[corev1.LabelOSStable] = what
		case "serves", "down":
			n.Labels[contract.NodeLabel] = contract.NodeInstalled
		case contract.ValidatorOn, contract.ValidatorOff, contract.ValidatorRestart, contract.ValidatorUnknown:
			n.Labels[contract.NodeLabel], n.Labels[contract.NodeValidator] = contract.NodeInstalled, what
		}
		if name, runtime, ok := strings.Cut(what, "-"); ok && name == "lacks" {
			n.Status.NodeInfo.ContainerRuntimeVersion = strings.Replace(runtime, "-", "://", 1)
		}
		if what == "down" {
			n.Spec.Taints = []corev1.Taint{{Key: contract.NodeTaint, Effect: corev1.TaintEffectNoSchedule}}
		}
		return n
	}
	for name, tt := range map[string]struct {
		nodes      string
		want       Result
		says       string
		nodesServe bool
	}{
		"nowhere":                {"a=lacks b=windows", OK, "no node has outrider-node", false},
		"nowhere, and it could":  {"a=lacks-containerd-2.2.0 b=lacks-containerd-2.3.1+x c=windows", OK, "the container runtime of each takes it", false},
		"one runtime is older":   {"a=lacks-containerd-2.2.0 b=lacks-containerd-2.1.4", OK, "containers of the pods capture", false},
		"one runtime is another": {"a=lacks-containerd-2.2.0 b=lacks-cri-o-1.34.0", OK, "containers of the pods capture", false},
		"everywhere":             {"a=on b=on c=windows", OK, "serves on 2 nodes", true},
		"an older version":       {"a=on b=serves c=windows", Warning, "validator is on is not known of b", true},
		"no validator":           {"a=restart b=off c=on d=off", Failed, "validator is off on b, d:", true},
		"not restarted":          {"a=restart b=unknown c=on", Failed, "the runtime of a was not restarted", true},
		"a validator not read":   {"a=on b=unknown", Warning, "not known of b", true},
		"not everywhere":         {"a=serves b=lacks", Warning, "serves on 1 node, and not on b", false},
		"one does not serve":     {"a=serves b=down", Failed, "does not serve on b", true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []runtime.Object
			for text := range strings.FieldsSeq(tt.nodes) {
				name, what, _ := strings.Cut(text, "=")
				all = append(all, node(name, what))
			}
			s, _ := in(t, all...)
			if a := s.nodePlugins(t.Context()); a.result != tt.want || !strings.Contains(a.reason, tt.says) {
				t.Errorf("%+v; want %s, %q", a, tt.want, tt.says)
			}
			if got := s.nodesServe(t.Context()); got != tt.nodesServe {
				t.Errorf("all nodes have it: %t", got)
			}
		})
	}
}
