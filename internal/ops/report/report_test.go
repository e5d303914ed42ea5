package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

const own = "outrider-system"

// installed returns a control plane's Deployment, its values and its webhook.
func installed(t *testing.T, values string, args ...string) []runtime.Object {
	t.Helper()
	c, err := webhook.Configuration(webhook.ConfigurationOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "outriderd", Namespace: own, Labels: map[string]string{"app": "outriderd", "outrider.dev/revision": "default"}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "outriderd", Args: args}}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "outriderd-injection", Namespace: own}, Data: map[string]string{"values.yaml": values}}
	return []runtime.Object{c, d, m}
}

func pod(edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app-1", Namespace: "shop", UID: "1", Labels: map[string]string{}}}
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app", Command: []string{"/app"}}}
	if edit != nil {
		edit(p)
	}
	return p
}

// injected returns a pod after injection with the given values.
func injected(t *testing.T, values string) *corev1.Pod {
	t.Helper()
	v, _, err := settings.ParseValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	r, err := inject.Pod(pod(nil), enabled, inject.Options{Values: v})
	if err != nil || !r.Injected {
		t.Fatal(r.Reason, err)
	}
	return r.Pod
}

var enabled = inject.Namespace{Name: "shop", Labels: map[string]string{contract.NamespaceLabel: "enabled"}}

const oldImage, newImage = "global: {tag: old}", "global: {tag: new}"

func describe(t *testing.T, p *corev1.Pod, labels map[string]string, connected []debugapi.Proxy, objects ...runtime.Object) Pod {
	t.Helper()
	core := fake.NewClientset(append(objects, p, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}})...)
	mesh, all, err := InCluster(t.Context(), &replicas.Set{Core: core, Namespace: own}, p.Namespace, "", []string{p.Name})
	if err != nil || len(mesh.Notes) != 1 || !strings.Contains(mesh.Notes[0], replicas.ErrNone.Error()) {
		t.Fatal(mesh.Notes, err)
	}
	all[0].Asked, all[0].Connected = true, replicas.Newest(connected)
	d, err := mesh.Describe(all[0])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// For a pod that was not injected, the report names the rule that prevented it.
func TestWhyAPodIsNotInjected(t *testing.T) {
	on := map[string]string{contract.NamespaceLabel: "enabled"}
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		labels  map[string]string
		objects []runtime.Object
		code    verdict.Code
		words   string
	}{
		"the namespace has no label":        {pod(nil), nil, installed(t, newImage), verdict.NotRequested, "namespace shop"},
		"the namespace declines":            {pod(nil), map[string]string{contract.NamespaceLabel: "disabled"}, installed(t, newImage), verdict.NamespaceOptsOut, "istio-injection=disabled"},
		"the pod declines":                  {pod(func(p *corev1.Pod) { p.Labels[contract.InjectLabel] = "false" }), on, installed(t, newImage), verdict.PodOptsOut, contract.InjectLabel},
		"the host's network":                {pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), on, installed(t, newImage), verdict.HostNetwork, "hostNetwork"},
		"another revision":                  {pod(nil), map[string]string{contract.RevisionLabel: "canary"}, installed(t, newImage), verdict.OtherRevision, "canary"},
		"the policy":                        {pod(nil), on, installed(t, "global: {proxy: {autoInject: disabled}}"), verdict.PolicyDisabled, "autoInject"},
		"Outrider's labels alone count":     {pod(nil), on, installed(t, newImage, "--own-labels=on"), verdict.OtherInjector, contract.OwnNamespaceLabel},
		"it is older than the label":        {pod(nil), on, installed(t, newImage), NotAtCreation, "would be injected today"},
		"a setting is wrong":                {pod(func(p *corev1.Pod) { p.Annotations = map[string]string{contract.Start: "maybe"} }), on, installed(t, newImage), verdict.InvalidAnnotation, "would be refused today"},
		"no webhook":                        {pod(nil), on, installed(t, newImage)[1:], NoWebhook, "sends it no pod"},
		"no control plane":                  {pod(nil), on, nil, NoRevision, own},
		"a control plane without injection": {pod(nil), on, installed(t, newImage, "--webhook=off"), NoRevision, own},
		"beside the control plane":          {pod(func(p *corev1.Pod) { p.Namespace = own }), on, installed(t, newImage), ControlPlaneNamespace, "own"},
	} {
		t.Run(name, func(t *testing.T) {
			d := describe(t, tt.pod, tt.labels, nil, tt.objects...)
			if i := d.Injection; i.State != NotInjected || i.Code != tt.code || !strings.Contains(i.Reason, tt.words) || d.Order != nil || d.Proxy != nil {
				t.Errorf("%+v; want %s with %q", i, tt.code, tt.words)
			}
		})
	}
}

func TestAnInjectedPod(t *testing.T) {
	on := enabled.Labels
	p := injected(t, oldImage)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: contract.ProxyContainer, Ready: true, RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	proxy := debugapi.Proxy{ID: "sidecar~10.0.0.1~app-1.shop~d", Namespace: "shop", Agent: "v1", Envoy: "1.39.0", Since: since, Replica: "outriderd-a",
		ControlPlane: contract.Version{Version: "v2", Envoy: "1.40.0"}, Types: []debugapi.Subscription{{Type: "Cluster", Sent: "7", Acked: "7"}}}
	before := proxy
	before.Since, before.Replica = since.Add(-time.Hour), "outriderd-b"

	d := describe(t, p, on, []debugapi.Proxy{proxy, before}, installed(t, newImage)...)
	if i := d.Injection; i.State != Injected || i.Revision != "default" || i.Code != verdict.Injected {
		t.Errorf("injection %+v", i)
	}
	if o := d.Order; o == nil || !slices.Equal(o.Start, []string{"outrider-init", "outrider-proxy", "app"}) || len(o.Ways) != 1 || o.Ways[0] != "gate" || len(o.Why) == 0 {
		t.Errorf("order %+v", o)
	}
	if c := d.Capture; c == nil || c.By != contract.InitContainer || c.Mode != "REDIRECT" || c.InboundPorts != "*" || c.OutboundRanges != "*" || !strings.Contains(c.ExcludeInboundPorts, "15020") {
		t.Errorf("capture %+v", c)
	}
	if x := d.Proxy; x == nil || x.State != Ready || x.Restarts != 2 || !strings.HasSuffix(x.Image, ":old") || !strings.HasSuffix(x.Next, ":new") || !strings.Contains(x.Skew, "agent v1, control plane v2") {
		t.Errorf("proxy %+v", x)
	}
	if c := d.ControlPlane; c == nil || !c.Synced || c.Replica != "outriderd-a" {
		t.Errorf("connection %+v: the newest is meant", c)
	}

	proxy.Types[0].Pending = 1
	proxy.Notes = []string{contract.ErrorPrefix + "AuthorizationPolicy shop/deny"}
	if c := describe(t, p, on, []debugapi.Proxy{proxy}, installed(t, newImage)...).ControlPlane; c.Synced || len(c.Problems) != 2 {
		t.Errorf("connection %+v", c)
	}
	if c := describe(t, p, on, nil, installed(t, newImage)...).ControlPlane; c.Synced || c.Replica != "" || len(c.Problems) != 1 {
		t.Errorf("connection %+v", c)
	}
	waiting := p.DeepCopy()
	waiting.Status.ContainerStatuses[0].State = corev1.ContainerState{}
	if d := describe(t, waiting, on, nil, installed(t, newImage)...); d.Proxy.State != "does not run" || d.ControlPlane.Problems[0] != "the proxy does not run" {
		t.Errorf("%+v, %+v", d.Proxy, d.ControlPlane)
	}
	d = describe(t, p, nil, nil, installed(t, newImage)...)
	if i := d.Injection; i.State != Injected || i.Code != verdict.NotRequested || !strings.Contains(i.Reason, "would not be today") {
		t.Errorf("without the label: %+v", i)
	}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
}

// If the proxy container itself sets up the capture, without an init container, the report takes the capture flags
// from the proxy's arguments.
func TestCaptureOfAStagedProxy(t *testing.T) {
	given := pod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{contract.Init: "none", "traffic.sidecar.istio.io/excludeOutboundPorts": "5432", contract.Park: "off"}
		user := int64(1000)
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user}
	})
	r, err := inject.Pod(given, enabled, inject.Options{})
	if err != nil || !r.Injected || kubeclient.Container(r.Pod, contract.InitContainer) != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	c, err := captureOf(r.Pod)
	if err != nil || c == nil || c.By != contract.ProxyContainer || c.ExcludeOutboundPorts != "5432" || c.Park != "off" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestProxiesAreCounted(t *testing.T) {
	a, b, c := *injected(t, oldImage), *injected(t, oldImage), *injected(t, newImage)
	b.Name, c.Name = "app-2", "app-3"
	got := proxyVersions([]corev1.Pod{c, a, b}, []debugapi.Proxy{{ID: "sidecar~1~app-1.shop~d", Agent: "v1"}, {ID: "sidecar~1~app-2.shop~d", Agent: "v1"}})
	if len(got) != 2 || got[0].Pods != 2 || got[0].Agent != "v1" || got[1].Pods != 1 || got[1].Agent != "" || !strings.HasSuffix(got[1].Image, ":new") {
		t.Errorf("%+v", got)
	}
}
