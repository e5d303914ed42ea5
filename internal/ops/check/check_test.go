package check

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
	"outrider.dev/test/port"
)

const own = "outrider-system"

// in returns a survey of a fake cluster with the given objects. test/kube runs the checks on a real API server.
func in(t *testing.T, objects ...runtime.Object) (*survey, *fake.Clientset) {
	t.Helper()
	core := fake.NewClientset(objects...)
	return newSurvey(&kubeclient.Client{Config: &rest.Config{}, Core: core}, Options{Namespace: own, Version: "v1"}), core
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func rootsIn(namespace, pem string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: contract.RootConfigMap, Namespace: namespace}, Data: map[string]string{contract.RootKey: pem}}
}

func configuration(t *testing.T, bundle string) *admission.MutatingWebhookConfiguration {
	t.Helper()
	c, err := webhook.Configuration(webhook.ConfigurationOptions{Bundle: []byte(bundle)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// root returns a root certificate in PEM.
func root(t *testing.T) string {
	t.Helper()
	a, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	return string(a.RootsPEM())
}

func (a answer) is(t *testing.T, want Result, words ...string) {
	t.Helper()
	if a.result != want {
		t.Errorf("%s: %s; want %s", a.result, a.reason, want)
	}
	for _, w := range words {
		if !strings.Contains(a.reason, w) {
			t.Errorf("the reason %q lacks %q", a.reason, w)
		}
	}
	if bad := a.result == Failed; bad && a.hint == "" {
		t.Errorf("%q has no hint", a.reason)
	}
}

func TestRoots(t *testing.T) {
	a, b := root(t), root(t)
	for name, tt := range map[string]struct {
		objects []runtime.Object
		want    Result
		words   string
	}{
		"they are in each namespace but those that are never injected": {[]runtime.Object{rootsIn(own, a), rootsIn("shop", a), namespace("kube-system", nil)}, OK, "2 namespaces"},
		"the control plane has written none":                           {nil, Failed, own},
		"a namespace has none":                                         {[]runtime.Object{rootsIn(own, a)}, Failed, "in shop"},
		"a namespace has others":                                       {[]runtime.Object{rootsIn(own, a), rootsIn("shop", b)}, Failed, "in shop are not those"},
		"they are no certificates":                                     {[]runtime.Object{rootsIn(own, "none"), rootsIn("shop", "none")}, Failed, "no certificate in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := in(t, append(tt.objects, namespace(own, nil), namespace("shop", nil))...)
			s.roots(t.Context()).is(t, tt.want, tt.words)
		})
	}
}

func TestWebhookCA(t *testing.T) {
	a, b := root(t), root(t)
	for name, tt := range map[string]struct {
		objects []runtime.Object
		want    Result
		words   string
	}{
		"the bundle is the roots":          {[]runtime.Object{configuration(t, a)}, OK, "1 webhook configuration"},
		"there is no configuration":        {nil, Failed, "no MutatingWebhookConfiguration"},
		"there is no bundle yet":           {[]runtime.Object{configuration(t, "")}, Failed, "has no CA bundle"},
		"the bundle is of another root":    {[]runtime.Object{configuration(t, b)}, Failed, "not the mesh's roots"},
		"only another mesh's is there":     {[]runtime.Object{istios()}, Failed, "no MutatingWebhookConfiguration"},
		"the bundle is of the rotation":    {[]runtime.Object{configuration(t, a+b)}, Failed, "not the mesh's roots"},
		"the bundle cannot be read at all": {[]runtime.Object{configuration(t, "-----BEGIN")}, Failed, "no certificate in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := in(t, append(tt.objects, rootsIn(own, a))...)
			s.webhookCA(t.Context()).is(t, tt.want, tt.words)
		})
	}
}

// istios returns a webhook configuration like that of Istio's injector.
func istios() *admission.MutatingWebhookConfiguration {
	return &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "istio-sidecar-injector"}, Webhooks: []admission.MutatingWebhook{{
		Name: "namespace.sidecar-injector.istio.io",
		Rules: []admission.RuleWithOperations{{Operations: []admission.OperationType{admission.Create},
			Rule: admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{contract.NamespaceLabel: "enabled"}},
	}}}
}

func TestOtherInjectors(t *testing.T) {
	s, _ := in(t, configuration(t, ""))
	s.otherInjectors(t.Context()).is(t, OK)
	s, _ = in(t, configuration(t, ""), istios())
	s.otherInjectors(t.Context()).is(t, Warning, "istio-sidecar-injector")
}

// If a check lacks a permission, its result is Skipped and its hint names the permission.
func TestWithoutPermissionNothingIsClaimed(t *testing.T) {
	s, core := in(t, namespace("shop", nil))
	core.PrependReactor("*", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", nil)
	})
	for _, p := range append(append([]probe{}, before...), installed...) {
		switch p.id {
		case "api-server", "kubernetes-version", "clock", "crds", "leftovers":
			continue // these checks use clients that the fake cluster does not have; test/kube tests them
		}
		a := p.ask(s, t.Context())
		a.is(t, Skipped, "forbidden")
		if a.hint == "" {
			t.Errorf("%s has no hint", p.id)
		}
	}
}

// A failed check that concerns only some namespaces or nodes does not block an installation.
func TestBlocks(t *testing.T) {
	for id, want := range map[string]bool{"permissions": true, "leftovers": true, "pod-security": false, "cni": false, "kernel": false} { // any order: the cases are independent
		if got := (Check{ID: id, Result: Failed}).Blocks(); got != want {
			t.Errorf("%s blocks: %v", id, got)
		}
	}
	if (Check{ID: "permissions", Result: Warning}).Blocks() {
		t.Error("a warning blocks")
	}
}

func TestDeployment(t *testing.T) {
	d := func(edit func(*appsv1.Deployment)) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "outriderd", Namespace: own, Generation: 2, Labels: map[string]string{"app": "outriderd"}}}
		d.Spec.Replicas = new(int32(2))
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
		edit(d)
		return d
	}
	for name, tt := range map[string]struct {
		edit  func(*appsv1.Deployment)
		want  Result
		words string
	}{
		"all replicas are ready":       {func(*appsv1.Deployment) {}, OK, "2 replicas"},
		"one is not":                   {func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }, Failed, "1 of 2 replicas are ready"},
		"the new one was not seen yet": {func(d *appsv1.Deployment) { d.Status.ObservedGeneration = 1 }, Failed, "has not begun"},
		"an old replica is left":       {func(d *appsv1.Deployment) { d.Status.Replicas = 3 }, Failed, "replicas of an older revision that have not ended: 1"},
		"half of it is rolled out":     {func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }, Failed, "1 of 2 replicas are of the newest"},
		"a quota is in the way": {func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}}
		}, Failed, "exceeded quota"},
		"it is in another namespace": {func(d *appsv1.Deployment) { d.Namespace = "elsewhere" }, Failed, "there is no Deployment"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := in(t, d(tt.edit))
			s.deployment(t.Context()).is(t, tt.want, tt.words)
		})
	}
}

func TestReplicas(t *testing.T) {
	pod := func(name, revision, digest string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: own, Labels: map[string]string{"app": "outriderd", replicas.RevisionLabel: revision}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Image: "outriderd:1", ImageID: "outriderd@" + digest}}}}
	}
	s, _ := in(t, pod("a", "default", "sha256:1"), pod("b", "default", "sha256:1"))
	s.replicas(t.Context()).is(t, OK, "2 replicas")
	s, _ = in(t, pod("a", "default", "sha256:1"), pod("b", "default", "sha256:2"))
	s.replicas(t.Context()).is(t, Warning, "a run default sha256:1; b run default sha256:2")
	s, _ = in(t, pod("a", "default", "sha256:1"), pod("b", "canary", "sha256:2"))
	s.replicas(t.Context()).is(t, OK, "2 replicas")
}

func TestPodSecurity(t *testing.T) {
	enabled := map[string]string{contract.NamespaceLabel: "enabled"}
	s, _ := in(t, namespace("shop", nil))
	s.podSecurity(t.Context()).is(t, OK, "no namespace requests")

	s, core := in(t, namespace("shop", enabled))
	refuse := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", nil)
	refuse.ErrStatus.Message = `pods "x" is forbidden: violates PodSecurity "restricted:latest": NET_ADMIN`
	core.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		if o := a.(ktesting.CreateActionImpl).GetCreateOptions(); len(o.DryRun) != 1 {
			t.Errorf("options %v: a pod would really be created", o)
		}
		return true, nil, refuse
	})
	s.podSecurity(t.Context()).is(t, Failed, "in shop", "violates PodSecurity")

	// If Istio's injector is installed too, the label istio-injection requests Istio's proxy, not Outrider's.
	s, _ = in(t, namespace("shop", enabled), istios())
	s.podSecurity(t.Context()).is(t, OK, "no namespace requests")
	s, _ = in(t, namespace("shop", map[string]string{contract.OwnNamespaceLabel: "enabled"}), istios())
	s.podSecurity(t.Context()).is(t, OK, "1 namespace with injection admits")
}

// The check accepts a namespace that refuses NET_ADMIN if no workload there needs this capability.
func TestPodSecurityWithoutCapture(t *testing.T) {
	template := func(annotations, labels map[string]string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations, Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{sampleContainer()}}}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "shop"} }
	none, off, captured := template(map[string]string{contract.Capture: "none"}, nil), template(nil, map[string]string{contract.OwnInjectLabel: "false"}), template(nil, nil)
	replicaSet := func(replicas int32, t corev1.PodTemplateSpec) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: meta("r"), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Template: t}}
	}
	for name, tt := range map[string]struct {
		objects []runtime.Object
		want    Result
		words   string
	}{
		"without workloads":          {nil, Failed, "is refused in shop"},
		"all without capture":        {[]runtime.Object{replicaSet(1, none), &appsv1.StatefulSet{ObjectMeta: meta("s"), Spec: appsv1.StatefulSetSpec{Template: off}}}, OK, "NET_ADMIN is refused in shop"},
		"one with capture":           {[]runtime.Object{replicaSet(1, none), &appsv1.DaemonSet{ObjectMeta: meta("d"), Spec: appsv1.DaemonSetSpec{Template: captured}}}, Failed, "in shop"},
		"a revision that is not run": {[]runtime.Object{replicaSet(0, captured), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop", Annotations: none.Annotations}, Spec: none.Spec}}, OK, "in shop"},
		"a pod of before":            {[]runtime.Object{&corev1.Pod{ObjectMeta: meta("p"), Spec: captured.Spec}}, Failed, "in shop"},
		"a job with capture":         {[]runtime.Object{&batchv1.Job{ObjectMeta: meta("j"), Spec: batchv1.JobSpec{Template: captured}}}, Failed, "in shop"},
		"a job that is done":         {[]runtime.Object{replicaSet(1, none), &batchv1.Job{ObjectMeta: meta("j"), Spec: batchv1.JobSpec{Template: captured}, Status: batchv1.JobStatus{CompletionTime: &metav1.Time{}}}}, OK, "in shop"},
		"a job of each night":        {[]runtime.Object{&batchv1.CronJob{ObjectMeta: meta("c"), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: captured}}}}}, Failed, "in shop"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, labels := range []map[string]string{ // the level "restricted" comes from a label, or is the cluster's default
				{contract.NamespaceLabel: "enabled", contract.PodSecurityLabel: "restricted"}, {contract.NamespaceLabel: "enabled"},
			} {
				s, core := in(t, append(tt.objects, namespace("shop", labels))...)
				core.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("violates PodSecurity"))
				})
				s.podSecurity(t.Context()).is(t, tt.want, tt.words)
			}
		})
	}
}

func TestWebhook(t *testing.T) {
	create := func(react func(*corev1.Pod) (*corev1.Pod, error)) answer {
		s, core := in(t, namespace("shop", map[string]string{contract.NamespaceLabel: "enabled"}))
		core.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
			p, err := react(a.(ktesting.CreateAction).GetObject().(*corev1.Pod))
			return true, p, err
		})
		return s.webhook(t.Context())
	}
	create(func(p *corev1.Pod) (*corev1.Pod, error) {
		p.Spec.InitContainers = []corev1.Container{{Name: contract.ProxyContainer}}
		return p, nil
	}).is(t, OK, "in namespace shop was injected")
	create(func(p *corev1.Pod) (*corev1.Pod, error) { return p, nil }).is(t, Failed, "without a proxy")
	create(func(*corev1.Pod) (*corev1.Pod, error) {
		return nil, apierrors.NewInternalError(context.DeadlineExceeded)
	}).is(t, Skipped, "deadline")
	says := func(text string) answer {
		return create(func(*corev1.Pod) (*corev1.Pod, error) {
			e := apierrors.NewInternalError(context.Canceled)
			e.ErrStatus.Message = text
			return nil, e
		})
	}
	const denied = `admission webhook "namespace.inject.outrider.dev" denied the request: outrider: `
	says(`failed calling webhook "namespace.inject.outrider.dev": connection refused`).is(t, Failed, "is refused", "connection refused")
	says(denied+"the namespace shop has the label pod-security.kubernetes.io/enforce=restricted").is(t, Skipped, "the webhook answers", "pod-security")
	says(denied+"start-up cycle").is(t, Failed, "is refused", "start-up cycle")
}

func TestSynced(t *testing.T) {
	proxy := func(name string, s debugapi.Subscription) debugapi.Proxy {
		return debugapi.Proxy{ID: "sidecar~10.0.0.1~" + name + "~cluster.local", Types: []debugapi.Subscription{s}}
	}
	pod := func(name string, ready bool) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: contract.ProxyContainer, Image: "agent:1"}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: contract.ProxyContainer, Ready: ready,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
	}
	fine := proxy("a.shop", debugapi.Subscription{Sent: "1", Acked: "1"})
	synced([]debugapi.Proxy{fine}, []corev1.Pod{pod("a", true), pod("starting", false)}).is(t, OK, "1 proxy")
	synced([]debugapi.Proxy{fine}, []corev1.Pod{pod("a", true), pod("b", true)}).is(t, Warning, "connected to no replica: b.shop")
	synced([]debugapi.Proxy{proxy("a.shop", debugapi.Subscription{Pending: 1})}, nil).is(t, Warning, "not answered yet by a.shop")
	bad := fine
	bad.Notes = []string{contract.ErrorPrefix + "AuthorizationPolicy shop/deny: is not enforced"}
	synced([]debugapi.Proxy{bad}, nil).is(t, Failed, "a.shop")
	gap := proxy("gap.shop", debugapi.Subscription{Sent: "1", Acked: "1"})
	gap.Notes = []string{contract.WarningPrefix + "calls to agent.shop.svc.cluster.local, port 80, fail"}
	synced([]debugapi.Proxy{fine, gap}, nil).is(t, Warning, "its endpoints are for other clients: gap.shop")

	imagesOf([]corev1.Pod{pod("a", true)}, "agent:1", "v1").is(t, OK, "1 proxy has the image agent:1")
	imagesOf([]corev1.Pod{pod("a", true)}, "agent:2", "v1").is(t, Warning, "shop/a", "agent:1", "agent:2")
}

func TestClock(t *testing.T) {
	clockAnswer(nil, 4*time.Second).is(t, OK)
	clockAnswer(nil, -time.Hour).is(t, Warning, "this machine is 1h0m0s behind the API server's")
	clockAnswer(map[string]time.Duration{"a": time.Second, "b": 10 * time.Second}, 0).is(t, Warning, "the clock of b is 10s ahead of")
	clockAnswer(map[string]time.Duration{"a": -2 * time.Minute, "b": time.Second}, 0).is(t, Failed, "the clock of a is 2m0s behind")
}

func TestLifetimes(t *testing.T) {
	now := time.Now()
	c := func(days int) *x509.Certificate {
		return &x509.Certificate{NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(0, 0, days)}
	}
	lifetimes([]*x509.Certificate{c(365)}, now).is(t, OK)
	lifetimes([]*x509.Certificate{c(-1), c(365)}, now).is(t, OK) // an old and a new root, as after a rotation
	lifetimes([]*x509.Certificate{c(10)}, now).is(t, Warning, "expires on")
	lifetimes([]*x509.Certificate{c(-1)}, now).is(t, Failed, "expired on")
}

// Unsupported versions of Kubernetes are reported. If the API server does not answer, all other checks are skipped.
func TestRunBeforeInstallation(t *testing.T) {
	for version, want := range map[string]Result{"v1.28.15": Failed, "v1.29.0": OK, "v1.34.4+k3s1": OK, "v1.36.2-gke.1": OK, "v1.37.0": Warning, "unknown": Skipped} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == "/version" {
				w.Write([]byte(`{"gitVersion": "` + version + `"}`))
				return
			}
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, http.StatusForbidden)
		}))
		all := runAt(t, server.URL)
		server.Close()
		if all[0].Result != OK || all[1].ID != "kubernetes-version" || all[1].Result != want {
			t.Errorf("%s: %v; want %s", version, all[:2], want)
		}
		down := runAt(t, "http://"+port.Hold(t).String())
		if down[0].Result != Failed || len(down) != len(before) {
			t.Errorf("without a server: %v", down)
		}
		for _, c := range down[1:] {
			if c.Result != Skipped {
				t.Errorf("without a server: %v", c)
			}
		}
	}
}
