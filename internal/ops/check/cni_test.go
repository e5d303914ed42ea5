package check

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"outrider.dev/internal/base/contract"
)

func daemonSet(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "network"}}
}

func ciliumConfig(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cilium-config", Namespace: "kube-system"}, Data: data}
}

func TestCNI(t *testing.T) {
	away := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"}}}}
	both := namespace("shop", map[string]string{contract.NamespaceLabel: "enabled", "istio.io/dataplane-mode": "ambient"})
	for name, tt := range map[string]struct {
		objects []runtime.Object
		want    Result
		words   string
	}{
		"nothing is known":                    {nil, Skipped, "not recognised"},
		"one that is recognised":              {[]runtime.Object{daemonSet("kindnet")}, OK, "kindnet"},
		"two of them":                         {[]runtime.Object{daemonSet("aws-node"), daemonSet("cilium"), ciliumConfig(nil)}, OK, "Cilium, Amazon VPC CNI"},
		"a node without network":              {[]runtime.Object{daemonSet("kindnet"), away}, Failed, "n1 (NoRouteCreated)"},
		"Cilium beside kube-proxy":            {[]runtime.Object{daemonSet("cilium"), ciliumConfig(map[string]string{"kube-proxy-replacement": "false"})}, OK, "Cilium"},
		"Cilium in place of kube-proxy":       {[]runtime.Object{daemonSet("cilium"), ciliumConfig(map[string]string{"kube-proxy-replacement": "true", "bpf-lb-sock": "false"})}, Warning, "at the socket"},
		"the same of an older version":        {[]runtime.Object{daemonSet("cilium"), ciliumConfig(map[string]string{"kube-proxy-replacement": "strict"})}, Warning, "at the socket"},
		"Cilium at the socket alone":          {[]runtime.Object{daemonSet("cilium"), ciliumConfig(map[string]string{"bpf-lb-sock": "true"})}, Warning, "at the socket"},
		"Cilium at the node's sockets":        {[]runtime.Object{daemonSet("cilium"), ciliumConfig(map[string]string{"kube-proxy-replacement": "true", "bpf-lb-sock-hostns-only": "true"})}, OK, "Cilium"},
		"GKE's Cilium is not the user's":      {[]runtime.Object{daemonSet("anetd"), ciliumConfig(map[string]string{"kube-proxy-replacement": "true"})}, OK, "GKE Dataplane V2"},
		"a namespace that ztunnel has too":    {[]runtime.Object{daemonSet("kindnet"), daemonSet("ztunnel"), both}, Warning, "are shop"},
		"a label for a ztunnel that is away":  {[]runtime.Object{daemonSet("kindnet"), both}, OK, "kindnet"},
		"ztunnel for namespaces of its own":   {[]runtime.Object{daemonSet("kindnet"), daemonSet("ztunnel"), namespace("other", map[string]string{"istio.io/dataplane-mode": "ambient"})}, OK, "kindnet"},
		"a DaemonSet with another's settings": {[]runtime.Object{daemonSet("mine"), ciliumConfig(map[string]string{"kube-proxy-replacement": "true"})}, Skipped, "not recognised"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := in(t, tt.objects...)
			s.cni(t.Context()).is(t, tt.want, tt.words)
		})
	}
}

func TestCalico(t *testing.T) {
	for name, tt := range map[string]struct {
		group, version string
		spec           map[string]any
		want           Result
	}{
		"without settings":                    {want: OK},
		"by iptables":                         {"crd.projectcalico.org", "v1", map[string]any{"bpfEnabled": false}, OK},
		"by eBPF, with its defaults":          {"crd.projectcalico.org", "v1", map[string]any{"bpfEnabled": true}, Warning},
		"by eBPF, at connect time for TCP":    {"projectcalico.org", "v3", map[string]any{"bpfEnabled": true, "bpfConnectTimeLoadBalancing": "TCP"}, Warning},
		"by eBPF, not at connect time":        {"projectcalico.org", "v3", map[string]any{"bpfEnabled": true, "bpfConnectTimeLoadBalancing": "Disabled"}, OK},
		"the same by the setting of before":   {"crd.projectcalico.org", "v1", map[string]any{"bpfEnabled": true, "bpfConnectTimeLoadBalancingEnabled": false}, OK},
		"at connect time by that of before":   {"crd.projectcalico.org", "v1", map[string]any{"bpfEnabled": true, "bpfConnectTimeLoadBalancingEnabled": true}, Warning},
		"settings of what is switched off":    {"crd.projectcalico.org", "v1", map[string]any{"bpfConnectTimeLoadBalancing": "Enabled"}, OK},
		"a version whose eBPF is switched on": {"crd.projectcalico.org", "v1", map[string]any{"bpfEnabled": true, "bpfConnectTimeLoadBalancing": "Enabled"}, Warning},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := in(t, daemonSet("calico-node"))
			kinds := map[schema.GroupVersionResource]string{}
			for _, k := range felixConfigurations {
				kinds[k] = "FelixConfigurationList"
			}
			var objects []runtime.Object
			if tt.spec != nil {
				objects = []runtime.Object{&unstructured.Unstructured{Object: map[string]any{"apiVersion": tt.group + "/" + tt.version,
					"kind": "FelixConfiguration", "metadata": map[string]any{"name": "default"}, "spec": tt.spec}}}
			}
			s.Dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
			s.cni(t.Context()).is(t, tt.want)
		})
	}
}
