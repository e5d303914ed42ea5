package kube

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
)

func authorizationPolicy(version string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "security.istio.io/" + version, "kind": "AuthorizationPolicy", "metadata": map[string]any{"namespace": "shop", "name": "p"}, "spec": spec,
	}}
}

// If the API server accepts a policy that outriderd cannot parse, the policy allows nothing until it has a
// valid version. After that, its last valid version stays in use.
func TestInvalidAuthorizationPolicies(t *testing.T) {
	to := (&Source{}).storeOf(kindOf(mesh.KindAuthorization))
	rules := func(list ...any) map[string]any { return map[string]any{"rules": list} }
	var last known
	for _, step := range []struct {
		name   string
		spec   map[string]any
		closed bool
		rules  int
	}{
		{"a field of the future", rules(map[string]any{"ofTheFuture": []any{}}), true, 0},
		{"one that denies", map[string]any{"action": "DENY", "rules": "none"}, true, 1},
		{"a good one", rules(map[string]any{}), false, 1},
		{"a mistake", rules(map[string]any{}, nil), false, 1},
		{"another good one", rules(), false, 0},
	} {
		last = to.read(last, authorizationPolicy("v1", step.spec))
		p, ok := last.part.(*mesh.AuthorizationSpec)
		if !ok || p.Closed != step.closed || len(p.Rules) != step.rules || (last.invalid != "") != (step.closed || step.name == "a mistake") {
			t.Errorf("%s: %+v %q", step.name, last.part, last.invalid)
		}
	}
}

// Policies are also read in a cluster whose CustomResourceDefinition serves only the old version.
func TestOldAuthorizationPolicies(t *testing.T) {
	c, d, _ := fakeCluster(t, podOf(contract.ProxyContainer), []string{"authorizationpolicies.security.istio.io"}, authorizationPolicy("v1beta1", map[string]any{"action": "CUSTOM", "rules": []any{map[string]any{}}}))
	d.PrependReactor("list", "authorizationpolicies", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetResource().Version == "v1", nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	s := c.Source(t.Context(), mesh.Config{})
	<-s.Synced()
	problemsOf(t, s, func(all []string) bool {
		return len(all) == 1 && strings.HasPrefix(all[0], "error: AuthorizationPolicy shop/p: is not enforced as it is written: spec.action CUSTOM is not supported")
	})
	m, _ := s.Current()
	if a := m.Authorization(m.Pod("shop", "web-1"), "shop"); a == nil || len(a.Policies) != 1 || !a.Policies[0].Deny {
		t.Errorf("%+v", a)
	}
}
