package podrestart

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/kubeclient"
)

// A cluster is a fake API server. A pod that is created as a dry run gets a proxy if its namespace or the pod itself
// still requests one. If a pod template changes, its pods are replaced, as the controllers would do.
type cluster struct {
	*fake.Clientset
	lines []string
	stuck func() // if not nil, pods are not replaced, and stuck is called when the code waits for pods
}

// Write records a line of the progress output.
func (c *cluster) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if c.lines = append(c.lines, text); c.stuck != nil && strings.HasPrefix(text, "pods with a proxy") {
		c.stuck()
	}
	return len(line), nil
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{Clientset: fake.NewClientset(objects...)}
	c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		n, err := c.Tracker().Get(corev1.SchemeGroupVersion.WithResource("namespaces"), "", pod.Namespace)
		if err != nil {
			return true, nil, err
		}
		if len(requests(*n.(*corev1.Namespace))) > 0 || pod.Labels[contract.InjectLabel] == "true" {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: contract.ProxyContainer})
		}
		return true, pod, nil
	})
	c.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Group == "apps" && c.stuck == nil {
			pods := corev1.SchemeGroupVersion.WithResource("pods")
			list, err := c.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), a.GetNamespace())
			if err != nil {
				return true, nil, err
			}
			for _, p := range list.(*corev1.PodList).Items {
				if ownerOf(&p).name == a.(clienttesting.PatchAction).GetName() {
					if err := c.Tracker().Delete(pods, p.Namespace, p.Name); err != nil {
						return true, nil, err
					}
				}
			}
		}
		return false, nil, nil
	})
	return c
}

func (c *cluster) run(ctx context.Context, o Options) ([]Pod, error) {
	o.Client, o.lag = &kubeclient.Client{Core: c, Progress: cli.NewProgress(c)}, time.Nanosecond
	return Run(ctx, o)
}

func namespace(name string, labels ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	return n
}

// meshed returns a pod with a proxy. Its controller is given as KIND/NAME, and hash is the pod template's hash. Both
// may be empty.
func meshed(ns, name, controller, hash string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{}, Annotations: map[string]string{contract.Status: `{"containers":["outrider-proxy"],"revision":"default"}`, contract.Overrides: "{}"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: contract.ProxyContainer}}},
	}
	if kind, of, owned := strings.Cut(controller, "/"); owned {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: of, Controller: &yes}}
	}
	if hash != "" {
		p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	}
	return p
}

func meta(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func webhookOf(name, hook, revision string) *admission.MutatingWebhookConfiguration {
	return &admission.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{contract.RevisionLabel: revision}},
		Webhooks: []admission.MutatingWebhook{{
			Name:              hook,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.NamespaceLabel: "enabled"}},
			Rules:             []admission.RuleWithOperations{{Operations: []admission.OperationType{admission.Create}, Rule: admission.Rule{APIGroups: []string{""}, Resources: []string{"pods"}}}},
		}},
	}
}

var ours = webhookOf("outrider", "rev.namespace.inject.outrider.dev", "default")

func labelsOf(t *testing.T, c *cluster, name string) (out []string) {
	t.Helper()
	n, err := c.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range n.Labels {
		out = append(out, key+"="+value)
	}
	slices.Sort(out)
	return out
}

func TestWorkloadsAreRestartedAndTheRestIsListed(t *testing.T) {
	injected := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{contract.Status: `{"revision":"default"}`}}}
	asking := meshed("shop", "asks-1-x", "ReplicaSet/asks-1", "1")
	asking.Labels[contract.InjectLabel] = "true"
	ended := meshed("shop", "ended", "", "")
	ended.Status.Phase = corev1.PodSucceeded
	c := newCluster(ours,
		namespace("shop", "istio-injection=enabled", "team=a"), namespace("pay", "istio.io/rev=default", "outrider.dev/injection=enabled"),
		namespace("no", "istio-injection=disabled"), namespace("rest", "istio.io/rev=1-24"),
		&appsv1.Deployment{ObjectMeta: meta("shop", "web")}, meshed("shop", "web-5f-a", "ReplicaSet/web-5f", "5f"), meshed("shop", "web-5f-b", "ReplicaSet/web-5f", "5f"),
		&appsv1.StatefulSet{ObjectMeta: meta("pay", "db")}, meshed("pay", "db-0", "StatefulSet/db", ""),
		&appsv1.DaemonSet{ObjectMeta: meta("pay", "log")}, meshed("pay", "log-x", "DaemonSet/log", ""),
		&appsv1.Deployment{ObjectMeta: meta("shop", "asks")}, asking,
		&appsv1.Deployment{ObjectMeta: meta("shop", "made"), Spec: appsv1.DeploymentSpec{Template: injected}}, meshed("shop", "made-1-x", "ReplicaSet/made-1", "1"),
		&appsv1.Deployment{ObjectMeta: meta("shop", "still"), Spec: appsv1.DeploymentSpec{Paused: true}}, meshed("shop", "still-1-x", "ReplicaSet/still-1", "1"),
		&appsv1.DaemonSet{ObjectMeta: meta("shop", "node"), Spec: appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}}}, meshed("shop", "node-x", "DaemonSet/node", ""),
		meshed("shop", "alone", "", ""), meshed("shop", "batch-x", "Job/batch", ""), meshed("shop", "roll-x", "Rollout/roll", ""), meshed("shop", "gone-x", "StatefulSet/gone", ""), ended,
	)
	before := len(c.Actions())
	if _, err := c.run(t.Context(), Options{DryRun: true}); err != nil {
		t.Fatal(err)
	}
	for _, a := range c.Actions()[before:] {
		if a.GetVerb() != "list" && a.GetVerb() != "get" {
			t.Errorf("a dry run: %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	c.lines = nil
	left, err := c.run(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range left {
		got = append(got, p.Namespace+"/"+p.Name+": "+p.Reason[:min(len(p.Reason), 28)])
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{
		"shop/alone: no workload recreates it: de", "shop/asks-1-x: a new pod would get a proxy ", "shop/batch-x: a Job's pod is not replaced:",
		"shop/gone-x: its StatefulSet does not exi", "shop/made-1-x: the template itself was inje", "shop/node-x: the update strategy is OnDel",
		"shop/roll-x: a Rollout is not restarted b", "shop/still-1-x: the deployment is paused: ku",
	}, got); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"namespace pay: outrider.dev/injection, istio.io/rev removed",
		"namespace rest: istio.io/rev=1-24 stays, because no Outrider control plane has that revision",
		"namespace shop: istio-injection removed",
		"daemonset pay/log: restarted, 1 pods", "statefulset pay/db: restarted, 1 pods", "deployment shop/web: restarted, 2 pods",
		"no pod of the restarted workloads has a proxy",
	}, c.lines); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	for name, want := range map[string][]string{"shop": {"team=a"}, "pay": nil, "no": {"istio-injection=disabled"}, "rest": {"istio.io/rev=1-24"}} {
		if diff := cmp.Diff(want, labelsOf(t, c, name)); diff != "" {
			t.Errorf("labels of %s (-want +got):\n%s", name, diff)
		}
	}
	if again, err := c.run(t.Context(), Options{}); err != nil || len(again) != len(left) {
		t.Errorf("once more: %v left, %v", again, err)
	}
}

func TestAnotherInjectorsLabelsStay(t *testing.T) {
	c := newCluster(ours, webhookOf("istio-sidecar-injector", "namespace.sidecar-injector.istio.io", "default"), namespace("shop", "istio-injection=enabled", "outrider.dev/injection=enabled"))
	if _, err := c.run(t.Context(), Options{Namespace: "shop"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"istio-injection=enabled"}, labelsOf(t, c, "shop")); diff != "" {
		t.Error(diff)
	}
	if _, err := c.run(t.Context(), Options{Namespace: "none"}); err == nil {
		t.Error("no error of a namespace that does not exist")
	}
}

// A run continues the work of an interrupted run: it waits for a restart in progress without repeating it, but
// repeats a restart that has ended although pods with a proxy are left.
func TestARestartUnderWayIsNotMadeAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		updated int32
		want    string
	}{
		"under way": {1, "deployment shop/web: its restart is under way"},
		"complete":  {2, "deployment shop/web: restarted, 1 pods"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: meta("shop", "web"), Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: tt.updated}}
			d.Spec.Template.Annotations = map[string]string{restartedAt: time.Now().UTC().Format(time.RFC3339)}
			old := meshed("shop", "web-1-x", "ReplicaSet/web-1", "1")
			old.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			c := newCluster(ours, namespace("shop"), d, old)
			ctx, cancel := context.WithCancel(t.Context())
			c.stuck = cancel
			_, err := c.run(ctx, Options{Namespace: "shop"})
			if err == nil || !strings.HasPrefix(err.Error(), "pods that still have a proxy: shop/web-1-x: ") {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff([]string{tt.want, "pods with a proxy: 1"}, c.lines); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}
