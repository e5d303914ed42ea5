package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chartutil"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
)

// A world contains the options of an installation that keeps Helm's records in memory and objects in a fake API
// server. test/kube tests installations on a real API server.
type world struct {
	Options
	helm  *action.Configuration
	core  *fake.Clientset
	steps *bytes.Buffer // the progress output
}

func newWorld(t *testing.T, objects ...runtime.Object) world {
	t.Helper()
	w := world{core: fake.NewClientset(objects...), steps: &bytes.Buffer{}}
	w.helm = &action.Configuration{Releases: storage.Init(driver.NewMemory()), KubeClient: &kubefake.PrintingKubeClient{Out: io.Discard},
		Capabilities: chartutil.DefaultCapabilities.Copy(), Log: func(string, ...any) {}}
	w.helm.Capabilities.KubeVersion = rendered
	kinds := map[schema.GroupVersionResource]string{definitions: "CustomResourceDefinitionList", gateway("httproutes"): "HTTPRouteList", gateway("grpcroutes"): "GRPCRouteList",
		gateway("referencegrants"): "ReferenceGrantList", {Version: "v1", Resource: "configmaps"}: "ConfigMapList",
		trustBundles("v1"): "ClusterTrustBundleList", trustBundles("v1beta1"): "ClusterTrustBundleList",
		{Version: "v1", Resource: "secrets"}: "SecretList", {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}: "LeaseList"}
	w.Options = Options{Client: &kubeclient.Client{Core: w.core, Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), Namespace: installation.Namespace, Progress: cli.NewProgress(w.steps)},
		helm: func() (*action.Configuration, error) { return w.helm, nil }}
	return w
}

func (w world) apply(t *testing.T) *release.Release {
	t.Helper()
	r, err := Apply(t.Context(), w.Options)
	if err != nil {
		t.Fatalf("%v\n%s", err, w.steps)
	}
	return r
}

func TestApplyInstallsThenUpgrades(t *testing.T) {
	w := newWorld(t)
	for revision := 1; revision <= 3; revision++ {
		if r := w.apply(t); r.Version != revision || r.Info.Status != release.StatusDeployed || r.Name != "outrider" || r.Namespace != installation.Namespace {
			t.Errorf("revision %d: %s/%s %d %s", revision, r.Namespace, r.Name, r.Version, r.Info.Status)
		}
	}
	n, err := w.core.CoreV1().Namespaces().Get(t.Context(), installation.Namespace, metav1.GetOptions{})
	if err != nil || n.Labels[madeBy] != madeByUs {
		t.Errorf("namespace: %v, %v", n, err)
	}
	leases, err := w.core.CoordinationV1().Leases(installation.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 0 {
		t.Errorf("leases: %v, %v; want none", leases, err)
	}
}

// If a run was killed during an installation, upgrade or rollback, the next installation completes its work.
func TestApplyAfterAnInterruptedRun(t *testing.T) {
	for _, status := range []release.Status{release.StatusPendingInstall, release.StatusFailed} {
		w := newWorld(t)
		r := w.apply(t)
		r.SetStatus(status, "killed")
		if err := w.helm.Releases.Update(r); err != nil {
			t.Fatal(err)
		}
		if r := w.apply(t); r.Version != 2 || r.Info.Status != release.StatusDeployed {
			t.Errorf("after %s: %d %s", status, r.Version, r.Info.Status)
		}
	}
	for _, status := range []release.Status{release.StatusPendingUpgrade, release.StatusPendingRollback} {
		w := newWorld(t)
		w.apply(t)
		second := w.apply(t)
		second.SetStatus(status, "killed")
		if err := w.helm.Releases.Update(second); err != nil {
			t.Fatal(err)
		}
		if r := w.apply(t); r.Version != 3 || r.Info.Status != release.StatusDeployed {
			t.Errorf("after %s: %d %s", status, r.Version, r.Info.Status)
		}
	}
}

// If a removal was interrupted, the next installation first completes it, and then creates a new release.
func TestApplyAfterAnInterruptedRemoval(t *testing.T) {
	for _, status := range []release.Status{release.StatusUninstalling, release.StatusUninstalled} {
		w := newWorld(t)
		r := w.apply(t)
		r.SetStatus(status, "killed")
		if err := w.helm.Releases.Update(r); err != nil {
			t.Fatal(err)
		}
		r = w.apply(t)
		if r.Info.Status != release.StatusDeployed || status == release.StatusUninstalling && r.Version != 1 {
			t.Errorf("after %s: %d %s", status, r.Version, r.Info.Status)
		}
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.DryRun = true
	if r := w.apply(t); !strings.Contains(r.Manifest, "kind: Deployment") {
		t.Errorf("manifest:\n%s", r.Manifest)
	}
	for _, a := range w.core.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	if all, err := w.helm.Releases.ListReleases(); err != nil || len(all) != 0 {
		t.Errorf("releases: %v, %v", all, err)
	}
}

// Invalid values are refused before anything is changed.
func TestBadValues(t *testing.T) {
	w := newWorld(t)
	w.Values = map[string]any{"pilot": map[string]any{"resources": "many"}, "global": "none"}
	_, err := Apply(t.Context(), w.Options)
	var values *cli.UsageError
	if !errors.As(err, &values) || len(w.core.Actions()) > 0 {
		t.Errorf("%v, %v; want an error of the values, and no request", err, w.core.Actions())
	}
}

func TestDefinitions(t *testing.T) {
	c, err := Chart()
	if err != nil {
		t.Fatal(err)
	}
	all, err := definitionsOf(c)
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	others, name := all[0].DeepCopy(), all[0].GetName()
	w := newWorld(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installation.Namespace}})
	client := w.Client.Dynamic.Resource(definitions)
	w.apply(t)
	is, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || is.GetLabels()[madeBy] == "" {
		t.Fatalf("%v, %v; want it to be made and labelled", is, err)
	}
	if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	others.SetLabels(nil)
	others.SetAnnotations(map[string]string{"of": "another"})
	if _, err := client.Create(t.Context(), others, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.apply(t)
	if is, err = client.Get(t.Context(), name, metav1.GetOptions{}); err != nil || is.GetLabels()[madeBy] != "" {
		t.Errorf("%v, %v; want that of another unchanged", is, err)
	}
	// Purge would wait with a watch until the other definitions are deleted. A fake API server has no resource
	// versions, so the watch would miss the deletions.
	for _, d := range all[1:] {
		if err := client.Delete(t.Context(), d.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Purge(t.Context(), w.Options); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("purge has removed the definition of another: %v", err)
	}
}

func gateway(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: resource}
}

// Other controllers use the kinds of the Gateway API too. So Outrider never replaces or removes a definition that
// comes from the Gateway API's project, and does not remove its own definition while objects of the kind exist.
func TestTheDefinitionOfTheGatewayAPI(t *testing.T) {
	const name = "httproutes.gateway.networking.k8s.io"
	for what, tt := range map[string]struct {
		taken, used bool
		want        string // the result of a purge
	}{
		"the API's own took the place of ours": {true, false, name + ": stays, because it is the Gateway API's own"},
		"there is an HTTPRoute":                {false, true, name + ": stays, because there are objects of it, such as shop/web"},
		"it is ours, and not used":             {false, false, name + ": would be removed"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installation.Namespace}})
			w.apply(t)
			client := w.Client.Dynamic.Resource(definitions)
			is, err := client.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if tt.taken { // by kubectl apply, which keeps our label
				is.SetAnnotations(map[string]string{"gateway.networking.k8s.io/bundle-version": "v1.5.0"})
				if _, err := client.Update(t.Context(), is, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if tt.used {
				route := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": "web", "namespace": "shop"}}}
				if _, err := w.Client.Dynamic.Resource(gateway("httproutes")).Namespace("shop").Create(t.Context(), route, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			w.apply(t)
			now, err := client.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || taken(now) != tt.taken {
				t.Errorf("after an upgrade it has %v, %v", now.GetAnnotations(), err)
			}
			w.DryRun = true
			if err := Purge(t.Context(), w.Options); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(w.steps.String(), tt.want) {
				t.Errorf("want %q:\n%s", tt.want, w.steps)
			}
		})
	}
}

func TestPurge(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "outriderd-canary", Namespace: "elsewhere", Labels: map[string]string{"app": "outriderd"}}}
	w := newWorld(t, deployment)
	var use *InUseError
	if err := Purge(t.Context(), w.Options); !errors.As(err, &use) || !strings.Contains(err.Error(), "elsewhere/outriderd-canary") {
		t.Errorf("%v; want it refused because of another control plane", err)
	}
	w = newWorld(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installation.Namespace}})
	secret := func(name string, labels map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": installation.Namespace, "labels": labels}}}
	}
	client := w.Client.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(installation.Namespace)
	for _, s := range []*unstructured.Unstructured{secret("cacerts", map[string]any{}), secret("outrider-ca", map[string]any{madeBy: "outriderd"})} {
		if _, err := client.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	bundles := w.Client.Dynamic.Resource(trustBundles("v1beta1"))
	bundle := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": map[string]any{"name": contract.TrustBundle}}}
	if _, err := bundles.Create(t.Context(), bundle, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Purge(t.Context(), w.Options); err != nil {
		t.Fatal(err)
	}
	if _, err := bundles.Get(t.Context(), contract.TrustBundle, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ClusterTrustBundle is left: %v", err)
	}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "cacerts" {
		t.Errorf("%v, %v; want the Secret that is the user's alone", list, err)
	}
	if !strings.Contains(w.steps.String(), "stays, because it was there before") {
		t.Errorf("steps:\n%s", w.steps)
	}
}

// A killed run does not renew its Lease, so the next run gets the lock when the Lease expires. While a run is active
// it renews its Lease, and other runs are refused.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "outrider-install", Namespace: installation.Namespace}, Spec: coordination.LeaseSpec{HolderIdentity: new("dead_1")}}
		w := newWorld(t, killed)
		begin := time.Now()
		unlock, err := w.lock(t.Context(), "outrider")
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited < leaseFor || waited > leaseFor+2*time.Second {
			t.Errorf("waited %s for a holder that is dead, want %s", waited, leaseFor)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var busy *BusyError
		if _, err := w.lock(ctx, "outrider"); !errors.As(err, &busy) {
			t.Errorf("a second run: %v, want it refused", err)
		}
		unlock()
		unlock, err = w.lock(ctx, "outrider")
		if err != nil {
			t.Fatalf("after the first: %v", err)
		}
		unlock()
	})
}

func TestAwait(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "outriderd", Namespace: installation.Namespace, Generation: 1}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "outriderd-1", Namespace: installation.Namespace, Labels: map[string]string{"app": "outriderd"}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}}}
	// On a busy machine the limit may end before the state of the pod has been read, so it is doubled.
	var err error
	for limit := 200 * time.Millisecond; limit < time.Minute; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err = newWorld(t, d, p).awaitRollout(ctx, "outriderd")
		cancel()
		if err == nil || strings.Contains(err.Error(), "the roll-out has not begun; pod") {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "is not ready in time: the roll-out has not begun; pod outriderd-1: ImagePullBackOff: no such image") {
		t.Errorf("%v; want the reason of the pod", err)
	}
	w := newWorld(t, d)
	done := make(chan error, 1)
	go func() { done <- w.awaitRollout(t.Context(), "outriderd") }()
	ready := d.DeepCopy()
	ready.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	if _, err := w.core.AppsV1().Deployments(installation.Namespace).Update(t.Context(), ready, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWithProfile(t *testing.T) {
	files := []File{{"a.yaml", []byte("global: {tag: one, hub: h}\n")}, {"b.yaml", []byte("global: {tag: two}\n")}}
	got, err := WithProfile("", files, []string{"pilot.replicaCount=5,global.hub=x"})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(got); text != "map[global:map[hub:x tag:two] pilot:map[replicaCount:5]]" {
		t.Errorf("%s; want what comes later to win", text)
	}
	for what, err := range map[string]error{
		"must be one of": second(WithProfile("none", nil, nil)),
		"b.yaml: ":       second(WithProfile("", []File{{"b.yaml", []byte("a: 1\na: 2\n")}}, nil)),
		"--set a[x]=1":   second(WithProfile("", nil, []string{"a[x]=1"})),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v; want an error with %q", err, what)
		}
	}
	for _, p := range Profiles() {
		values, err := WithProfile(p, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", p, err)
		}
		if _, err := Manifest(installation.Namespace, values); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func second(_ map[string]any, err error) error { return err }
