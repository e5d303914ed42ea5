package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	ktesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
)

const istioNetworking = "networking.istio.io"

// otherMesh returns a survey of a cluster with some of Istio's kinds, the given objects of these kinds, and a pod
// with Outrider's proxy in namespace shop.
func otherMesh(t *testing.T, objects ...string) (*survey, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	s, _ := in(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: contract.ProxyContainer}}}})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: istioNetworking, Version: "v1"}, {Group: "security.istio.io", Version: "v1"}})
	lists := map[schema.GroupVersionResource]string{}
	for resource, kind := range map[string]schema.GroupVersionKind{ // any order: the kinds are independent
		"virtualservices":        {Group: istioNetworking, Version: "v1", Kind: "VirtualService"},
		"requestauthentications": {Group: "security.istio.io", Version: "v1", Kind: "RequestAuthentication"},
		"peerauthentications":    {Group: "security.istio.io", Version: "v1", Kind: "PeerAuthentication"},
		"authorizationpolicies":  {Group: "security.istio.io", Version: "v1", Kind: "AuthorizationPolicy"},
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
		lists[kind.GroupVersion().WithResource(resource)] = kind.Kind + "List"
	}
	s.Mapper = mapper
	var all []runtime.Object
	for _, text := range objects {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, all...)
	s.Dynamic = client
	return s, client
}

func virtualService(namespace, name string) string {
	return fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: %s, namespace: %s},
		spec: {hosts: [web], http: [{route: [{destination: {host: web}}], timeout: 2s}]}}`, name, namespace)
}

func tokens(namespace, app string) string {
	return fmt.Sprintf(`{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {name: tokens, namespace: %s}, spec: {selector: {matchLabels: {app: %s}}}}`, namespace, app)
}

func results(all []Check) (out []string) {
	for _, c := range all {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s: %s", c.Result, c.Object, c.Reason)))
	}
	return out
}

func TestObjectsOfOtherMeshes(t *testing.T) {
	for name, tt := range map[string]struct {
		before  bool
		objects []string
		want    []string
	}{
		"there are none": {false, nil, []string{"ok : no object for a pod with the proxy is without effect"}},
		"what forbids is first, and fails": {false, []string{virtualService("shop", "a"), tokens("shop", "web")}, []string{
			"failed RequestAuthentication shop/tokens: is not enforced by Outrider", "warning VirtualService shop/a: has no effect on pods of Outrider"}},
		"they are for no pod with a proxy": {false, []string{virtualService("other", "a"), tokens("shop", "other")}, []string{
			"ok : no object for a pod with the proxy is without effect"}},
		"Istio's root namespace is for all": {false, []string{virtualService("istio-system", "a")}, []string{"warning VirtualService istio-system/a: has no effect on pods of Outrider"}},
		"before, all are, and none fails": {true, []string{virtualService("other", "a"), tokens("other", "web")}, []string{
			"warning RequestAuthentication other/tokens: is not enforced by Outrider", "warning VirtualService other/a: has no effect on pods of Outrider"}},
		"before, there are none": {true, nil, []string{"ok : the cluster has no object that would be without effect"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := otherMesh(t, tt.objects...)
			s.Before = tt.before
			got := s.objectsOfOtherMeshes(t.Context())
			if !slices.Equal(results(got), tt.want) {
				t.Errorf("%s; want %s", strings.Join(results(got), "\n"), strings.Join(tt.want, "\n"))
			}
			for _, c := range got {
				if strings.HasPrefix(c.Object, "VirtualService") && !strings.Contains(c.Hint, `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute"`) {
					t.Errorf("%s has the hint %q, which has no HTTPRoute", c.Object, c.Hint)
				}
				if c.Blocks() {
					t.Errorf("%s is in the way of an installation", c.Object)
				}
			}
		})
	}
}

// If the caller has no permission to list one kind, the check still reports the objects of the other kinds.
func TestAKindThatMayNotBeListed(t *testing.T) {
	s, client := otherMesh(t, virtualService("shop", "a"))
	client.PrependReactor("list", "requestauthentications", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	got := results(s.objectsOfOtherMeshes(t.Context()))
	want := []string{"skipped requestauthentications.security.istio.io: listing requestauthentications.security.istio.io: forbidden",
		"warning VirtualService shop/a: has no effect on pods of Outrider"}
	if !slices.Equal(got, want) {
		t.Errorf("%s; want %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The number of unsupported objects that the check reports is limited, and so is the number that it reads of a kind.
func TestManyObjectsOfOtherMeshes(t *testing.T) {
	var objects []string
	for i := range maxReported + 3 {
		objects = append(objects, virtualService("shop", fmt.Sprint("a", i)))
	}
	s, client := otherMesh(t, objects...)
	got := s.objectsOfOtherMeshes(t.Context())
	if last := got[len(got)-1]; len(got) != maxReported+1 || last.Object != "others" || last.Reason != "3 more are without effect" {
		t.Errorf("%d, the last of which is %v", len(got), last)
	}

	pages := 0
	client.PrependReactor("list", "virtualservices", func(ktesting.Action) (bool, runtime.Object, error) {
		pages++
		l := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "VirtualServiceList", "metadata": map[string]any{"continue": "more"}}}
		for range 500 {
			l.Items = append(l.Items, unstructured.Unstructured{Object: map[string]any{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": map[string]any{"name": "a", "namespace": "other"}}})
		}
		return true, l, nil
	})
	got = s.objectsOfOtherMeshes(t.Context())
	if pages != maxObjectsOfKind/500 || len(got) != 1 || got[0].Result != Skipped || !strings.Contains(got[0].Reason, "more than 5000") {
		t.Errorf("%d pages, %s", pages, results(got))
	}
}
