package kube

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

var policies = schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "requestauthentications"}

func policy(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication", "metadata": map[string]any{"namespace": "shop", "name": name},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}},
	}}
}

func podOf(proxy string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}, {Name: proxy}}},
	}
}

// fakeCluster returns a cluster with some CustomResourceDefinitions. Its fake clients forbid nothing.
func fakeCluster(t *testing.T, pod *corev1.Pod, crds []string, objects ...runtime.Object) (*Cluster, *dynamicfake.FakeDynamicClient, *metadatafake.FakeMetadataClient) {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}:  "HTTPRouteList",
		{Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"}: "PeerAuthenticationList",
		{Group: "outrider.dev", Version: "v1", Resource: "hosts"}:                    "HostList",
		policies: "RequestAuthenticationList",
		{Group: "security.istio.io", Version: "v1", Resource: "authorizationpolicies"}:      "AuthorizationPolicyList",
		{Group: "security.istio.io", Version: "v1beta1", Resource: "authorizationpolicies"}: "AuthorizationPolicyList",
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var defined []runtime.Object
	for _, name := range crds {
		defined = append(defined, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		})
	}
	d := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
	m := metadatafake.NewSimpleMetadataClient(scheme, defined...)
	// The fake client ignores field selectors for names.
	m.PrependReactor("list", "customresourcedefinitions", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name, _ := a.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		out := &metav1.List{}
		if slices.Contains(crds, name) {
			out.Items = append(out.Items, runtime.RawExtension{Object: defined[slices.Index(crds, name)]})
		}
		return true, out, nil
	})
	c := &Cluster{core: fake.NewClientset(pod), dynamic: d, metadata: m, log: slog.New(slog.DiscardHandler)}
	c.trouble.log = c.log
	return c, d, m
}

func problemsOf(t *testing.T, s *Source, want func([]string) bool) {
	t.Helper()
	end := time.After(time.Minute)
	for {
		problems, changed := s.Problems()
		if want(problems) {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("problems: %q", problems)
		}
	}
}

// If no pod has Outrider's proxy, a policy that only another mesh supports is not reported.
func TestPolicyOfAnotherMesh(t *testing.T) {
	c, d, _ := fakeCluster(t, podOf(contract.IstioProxyContainer), []string{"requestauthentications.security.istio.io"}, policy("deny"))
	read := make(chan struct{}, 1)
	d.PrependWatchReactor("requestauthentications", func(clienttesting.Action) (bool, watch.Interface, error) {
		select {
		case read <- struct{}{}:
		default:
		}
		return false, nil, nil
	})
	s := c.Source(t.Context(), mesh.Config{})
	<-s.Synced()
	<-read // once the watch begins, the list has been applied
	s.publish()
	if all, _ := s.Problems(); len(all) > 0 {
		t.Errorf("problems: %q", all)
	}
}

// If the role does not allow a read of an ignored kind, the mesh is not delayed, and a problem reports the
// kind.
func TestIgnoredKindsThatMayNotBeRead(t *testing.T) {
	c, _, m := fakeCluster(t, podOf(contract.ProxyContainer), nil)
	m.PrependReactor("list", "customresourcedefinitions", func(a clienttesting.Action) (bool, runtime.Object, error) {
		name, _ := a.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		if !strings.HasPrefix(name, "wasmplugins.") {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, name, nil)
	})
	s := c.Source(t.Context(), mesh.Config{})
	<-s.Synced()
	problemsOf(t, s, func(all []string) bool {
		return len(all) == 1 && strings.HasPrefix(all[0], "warning: not known whether") && strings.Contains(all[0], "may not read wasmplugins.extensions.istio.io;")
	})
}

// If a kind is skipped, neither its objects nor its definition are read, so no permission is needed.
func TestSkippedKinds(t *testing.T) {
	c, d, m := fakeCluster(t, podOf(contract.ProxyContainer), []string{"hosts.outrider.dev", "peerauthentications.security.istio.io"})
	s := c.Source(t.Context(), mesh.Config{}, "hosts", "httproutes", "authorizationpolicies", "backendpolicies", skipIgnored)
	<-s.Synced()
	for _, a := range d.Actions() {
		if r := a.GetResource().Resource; r != "peerauthentications" {
			t.Errorf("%s %s", a.GetVerb(), r)
		}
	}
	for _, a := range m.Actions() {
		list, ok := a.(clienttesting.ListAction)
		if !ok {
			continue
		}
		if name, _ := list.GetListRestrictions().Fields.RequiresExactMatch("metadata.name"); name != "peerauthentications.security.istio.io" {
			t.Errorf("the definition %s is listed", name)
		}
	}
	if len(d.Actions()) == 0 || len(m.Actions()) == 0 {
		t.Error("nothing is read")
	}
}

// A forbidden read is tried again after a minute. In an outage of the API server the pauses are shorter.
func TestForbiddenFeedsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := fed()
		s.unread = map[string]bool{}
		tries, began := 0, time.Now()
		f := s.patient("x.y", feed{list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if tries++; tries <= 3 {
				return nil, apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
			}
			return nil, nil
		}})
		if _, err := f.list(t.Context(), metav1.ListOptions{}); err != nil || time.Since(began) != 3*forbiddenWait || len(s.unread) > 0 {
			t.Errorf("%v after %s and %d tries, unread %v", err, time.Since(began), tries, s.unread)
		}
	})
}
