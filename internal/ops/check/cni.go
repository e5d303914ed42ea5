package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outrider.dev/internal/base/cli"
)

// A network is a network plugin (CNI). It is recognised by the name of the DaemonSet in its official manifests. judge
// checks the plugin's settings; it may be nil.
type network struct {
	daemonSet, name string
	judge           func(*survey, context.Context) (answer, bool)
}

// networks lists the plugins that the check recognises. Others may work too, but the check does not know.
var networks = []network{
	{"cilium", "Cilium", (*survey).cilium},
	{"calico-node", "Calico", (*survey).calico},
	{"anetd", "GKE Dataplane V2", nil}, // users cannot change its settings
	{"aws-node", "Amazon VPC CNI", nil},
	{"azure-cns", "Azure CNI", nil},
	{"kube-flannel-ds", "Flannel", nil},
	{"kindnet", "kindnet", nil},
	{"antrea-agent", "Antrea", nil},
	{"kube-router", "kube-router", nil},
	{"ovnkube-node", "OVN-Kubernetes", nil},
	{"weave-net", "Weave Net", nil},
}

// cni checks the settings of the network plugin, as far as the API server has them. It cannot prove that capture
// works with the plugin; only a pod on the node can (--nodes).
func (s *survey) cni(ctx context.Context) answer {
	if a, bad := s.unavailable(ctx); bad {
		return a
	}
	l, err := s.Core.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return unknown(tried("listing daemonsets", err))
	}
	var names []string
	for _, n := range networks {
		if !slices.ContainsFunc(l.Items, func(d appsv1.DaemonSet) bool { return d.Name == n.daemonSet }) {
			continue
		}
		names = append(names, n.name)
		if n.judge == nil {
			continue
		}
		if a, bad := n.judge(s, ctx); bad {
			return a
		}
	}
	if a, bad := s.ambient(ctx, l.Items); bad {
		return a
	}
	if len(names) == 0 {
		return skipped("the network plugin is not recognised: no DaemonSet has a name that is known; a pod shows whether capture works: outrider check --nodes")
	}
	return fine("%s: no setting that hinders capture is known of, or found", strings.Join(names, ", "))
}

// unavailable finds nodes that report NetworkUnavailable, a condition that the network's controller
// sets (https://kubernetes.io/docs/reference/node/node-status/).
func (s *survey) unavailable(ctx context.Context) (answer, bool) {
	nodes, err := s.allNodes(ctx)
	if err != nil {
		return unknown(err), true
	}
	var bad []string
	for _, n := range nodes {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue {
				bad = append(bad, fmt.Sprintf("%s (%s)", n.Name, c.Reason))
			}
		}
	}
	if len(bad) > 0 {
		return failed("kubectl describe node NAME shows its conditions", "%s NetworkUnavailable: %s", plural(len(bad), "node reports", "nodes report"), cli.Few(bad)), true
	}
	return answer{}, false
}

// loadBalancedEarly describes the effect of load balancing at the socket on a mesh.
const loadBalancedEarly = "replaces a service's address and port by a pod's when the application connects, before the capture: proxies cannot tell the service by them, and may apply none of its rules"

// cilium finds socket load balancing inside pods. Cilium's page about Istio requires
// bpf-lb-sock-hostns-only=true for sidecars (https://docs.cilium.io/en/stable/network/servicemesh/istio/).
// With kube-proxy-replacement Cilium's agent load balances at the socket even if bpf-lb-sock is
// "false" (https://github.com/cilium/cilium/issues/47417).
func (s *survey) cilium(ctx context.Context) (answer, bool) {
	m, err := s.Core.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "cilium-config", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return answer{}, false // the settings may be in another place, so nothing is known about them
	case err != nil:
		return unknown(tried("reading ConfigMap kube-system/cilium-config", err)), true
	}
	replaces := slices.Contains([]string{"true", "strict"}, m.Data["kube-proxy-replacement"])
	if (replaces || m.Data["bpf-lb-sock"] == "true") && m.Data["bpf-lb-sock-hostns-only"] != "true" {
		return warning("cilium config set bpf-lb-sock-hostns-only true; or Cilium's Helm value socketLB.hostNamespaceOnly=true",
			"Cilium's load balancing at the socket %s", loadBalancedEarly), true
	}
	return answer{}, false
}

// felixConfigurations lists the two resources that contain Calico's settings. Calico's API server serves the first
// one, and a CustomResourceDefinition defines the second one.
var felixConfigurations = []schema.GroupVersionResource{
	{Group: "projectcalico.org", Version: "v3", Resource: "felixconfigurations"},
	{Group: "crd.projectcalico.org", Version: "v1", Resource: "felixconfigurations"},
}

// calico finds Calico's eBPF data plane with load balancing of TCP at connect time, which is its
// default. It must be off for a service mesh
// (https://docs.tigera.io/calico/latest/operations/ebpf/use-cases-ebpf, "Building a service mesh
// control plane"; https://github.com/projectcalico/calico/issues/8495;
// https://github.com/istio/istio/pull/54176). Before 3.27 the setting was a boolean with another name.
func (s *survey) calico(ctx context.Context) (answer, bool) {
	for _, kind := range felixConfigurations {
		o, err := s.Dynamic.Resource(kind).Get(ctx, "default", metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return unknown(tried("reading FelixConfiguration default", err)), true
		}
		field := func(name string) any {
			v, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", name)
			return v
		}
		if field("bpfEnabled") == true && field("bpfConnectTimeLoadBalancing") != "Disabled" && field("bpfConnectTimeLoadBalancingEnabled") != false {
			return warning(`kubectl patch felixconfiguration default --type=merge --patch '{"spec": {"bpfConnectTimeLoadBalancing": "Disabled", "bpfHostNetworkedNATWithoutCTLB": "Enabled"}}' (Calico 3.27 or newer)`,
				"Calico's load balancing at connect time %s", loadBalancedEarly), true
		}
		return answer{}, false
	}
	return answer{}, false
}

// ambient finds namespaces whose pods both Istio's ztunnel and Outrider would redirect. That cannot work, because
// ztunnel listens on the same ports in the pod's network namespace, 15001 and 15006
// (https://istio.io/latest/docs/ambient/architecture/traffic-redirection/).
func (s *survey) ambient(ctx context.Context, all []appsv1.DaemonSet) (answer, bool) {
	if !slices.ContainsFunc(all, func(d appsv1.DaemonSet) bool { return d.Name == "ztunnel" }) {
		return answer{}, false
	}
	requested, err := s.requested(ctx)
	if err != nil {
		return unknown(err), true
	}
	var both []string
	for _, n := range requested {
		if n.Labels["istio.io/dataplane-mode"] == "ambient" {
			both = append(both, n.Name)
		}
	}
	if len(both) > 0 {
		return warning("kubectl label namespace NAME istio.io/dataplane-mode-", "Istio's ztunnel redirects the same pods, to listeners on the ports of Outrider's proxy: namespaces with the label istio.io/dataplane-mode=ambient and with injection are %s", cli.Few(both)), true
	}
	return answer{}, false
}
