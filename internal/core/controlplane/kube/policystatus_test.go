package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
)

func policyText(kind, name, spec, status string) string {
	version := "outrider.dev/v1alpha1"
	if kind == string(mesh.KindTrafficPolicy) {
		version = "gateway.networking.x-k8s.io/v1alpha1"
	}
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: shop, generation: 3}, spec: %s, status: %s}", version, kind, name, spec, status)
}

func TestTheStatusOfAPolicy(t *testing.T) {
	const ours, api = string(mesh.KindBackendPolicy), string(mesh.KindTrafficPolicy)
	const web = `targetRefs: [{group: "", kind: Service, name: web}]`
	const stale = `{ancestors: [{ancestorRef: {group: "", kind: Service, name: web}, controllerName: outrider.dev/outriderd, conditions: [{type: PartiallyInvalid, status: "True", reason: UnsupportedValue, message: x, lastTransitionTime: "2026-01-01T00:00:00Z"}]}]}`
	for name, tt := range map[string]struct {
		kind, name, spec, status string
		want                     []string // the beginning of each condition; nil: no status is written
	}{
		"that holds":               {ours, "p", `{` + web + `, connections: {max: 7}}`, `{}`, []string{"web Accepted True Accepted: "}},
		"that holds in part":       {ours, "p", `{` + web + `, faults: {abort: {httpStatus: 503, percent: 10}}}`, `{}`, []string{"web Accepted True Accepted: ", "web PartiallyInvalid True UnsupportedValue: spec.faults has no effect on the port 81"}},
		"a port":                   {ours, "p", `{targetRefs: [{group: "", kind: Service, name: web, sectionName: http}], faults: {delay: {duration: 1s}}}`, `{}`, []string{"web Accepted True Accepted: "}},
		"no longer in part":        {ours, "p", `{` + web + `, connections: {max: 7}}`, stale, []string{"web Accepted True Accepted: "}},
		"no such Service":          {ours, "p", `{targetRefs: [{group: "", kind: Service, name: none}], connections: {max: 7}}`, `{}`, []string{"none Accepted False TargetNotFound: there is no Service shop/none"}},
		"no such port":             {ours, "p", `{targetRefs: [{group: "", kind: Service, name: web, sectionName: x}], connections: {max: 7}}`, `{}`, []string{"web Accepted False TargetNotFound: Service shop/web has no port"}},
		"an older one":             {ours, "q", `{` + web + `, connections: {max: 7}}`, `{}`, []string{"web Accepted False Conflicted: is ignored: on the port 80 BackendPolicy shop/p counts"}},
		"invalid":                  {ours, "p", `{` + web + `, connections: {max: 0}}`, `{}`, []string{"web Accepted False Invalid: spec.connections.max: 0 is out of range: must be 1 to 2147483647; its last valid version stays in use"}},
		"invalid from the start":   {ours, "q", `{` + web + `, connections: {max: 0}}`, `{}`, []string{"web Accepted False Invalid: spec.connections.max: 0 is out of range: must be 1 to 2147483647; the policy is not used"}},
		"of another controller":    {ours, "p", `{` + web + `, connections: {max: 7}}`, `{ancestors: [{ancestorRef: {name: x}, controllerName: example.com/x, conditions: []}]}`, []string{"of example.com/x", "web Accepted True Accepted: "}},
		"a retry budget":           {api, "b", `{` + web + `, retryConstraint: {budget: {percent: 10}}}`, `{}`, []string{"web Accepted True Accepted: proxies limit how many retries are in progress", "web PartiallyInvalid True UnsupportedValue: spec.retryConstraint has no effect on the port 81"}},
		"session persistence":      {api, "b", `{` + web + `, sessionPersistence: {type: Cookie}}`, `{}`, []string{"web Accepted False Invalid: spec.sessionPersistence: is not supported"}},
		"for another controller":   {api, "b", `{targetRefs: [{group: x, kind: Backend, name: web}]}`, `{}`, nil},
		"a form that is not known": {ours, "p", `{targetRefs: web}`, `{}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := build.New(mesh.Config{})
			b.Set(&mesh.ServiceSpec{Namespace: "shop", Name: "web", Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.7")}, Ports: []mesh.PortSpec{
				{Port: mesh.Port{Name: "http", Number: 80, Protocol: mesh.HTTP}}, {Port: mesh.Port{Name: "tcp-db", Number: 81, Protocol: mesh.TCP}}}},
				&mesh.BackendPolicySpec{Kind: mesh.KindBackendPolicy, Namespace: "shop", Name: "p", Targets: []mesh.PolicyTarget{{Name: "web"}}},
				&mesh.BackendPolicySpec{Kind: mesh.KindTrafficPolicy, Namespace: "shop", Name: "b", Targets: []mesh.PolicyTarget{{Name: "web"}}})
			r := &routeObject{kindOf(mesh.Kind(tt.kind)), routeOf(t, policyText(tt.kind, tt.name, tt.spec, tt.status))}
			before := r.object.DeepCopy()
			got, err := r.judged(b.Mesh(), time.Now())
			if err != nil || (got == nil) != (tt.want == nil) {
				t.Fatalf("%v, %v; want %v", got, err, tt.want)
			}
			if got == nil {
				return
			}
			have := entries(t, got)
			if !slices.EqualFunc(have, tt.want, strings.HasPrefix) {
				t.Errorf("%q, want %q", have, tt.want)
			}
			if fmt.Sprint(before) != fmt.Sprint(r.object) {
				t.Error("the object of the cache was changed")
			}
			r.object = got
			if again, err := r.judged(b.Mesh(), time.Now().Add(time.Hour)); again != nil || err != nil {
				t.Errorf("it is written again: %v, %v", again, err)
			}
		})
	}
}

// If the API server accepts an invalid policy, a problem reports its object and field, and its last valid
// version stays in use.
func TestAMistakeInAPolicy(t *testing.T) {
	s, services := fed()
	policies := s.storeOf(kindOf(mesh.KindBackendPolicy))
	budgets := s.storeOf(kindOf(mesh.KindTrafficPolicy))
	want := func(when string, connections uint32, budget bool, problems ...string) {
		t.Helper()
		s.publish()
		m, _ := s.Current()
		p := m.ByName("shop", "web").Policy(80)
		found, _ := s.Problems()
		if p.Limits.Connections != connections || (p.Budget != nil) != budget || !slices.Equal(found, problems) {
			t.Errorf("%s: %+v, problems %q; want %d, %t, %q", when, p, found, connections, budget, problems)
		}
	}
	policy := func(max string) *unstructured.Unstructured {
		return routeOf(t, policyText("BackendPolicy", "p", `{targetRefs: [{name: web}], connections: {max: `+max+`}}`, `{}`))
	}
	budget := func(more string) *unstructured.Unstructured {
		return routeOf(t, policyText("XBackendTrafficPolicy", "b", `{targetRefs: [{group: "", kind: Service, name: web}], retryConstraint: {}`+more+`}`, `{}`))
	}
	services.Add(named("web", 80))
	policies.Add(policy("0"))
	want("wrong from the start", 0, false, "BackendPolicy shop/p: spec.connections.max: 0 is out of range: must be 1 to 2147483647")
	policies.Update(policy("7"))
	budgets.Add(budget(""))
	want("good", 7, true)
	policies.Update(policy("8, connectTimeout: 2h"))
	budgets.Update(budget(", sessionPersistence: {type: Cookie}"))
	want("wrong", 7, true,
		`BackendPolicy shop/p: spec.connections.connectTimeout: "2h" is out of range: must be 1ms to 1h`,
		"XBackendTrafficPolicy shop/b: spec.sessionPersistence: is not supported: remove it")
	policies.Delete(policy("8"))
	budgets.Update(budget(""))
	want("deleted", 0, true)
}

// A percentage may also be an integer in the objects of an API client.
func TestPoliciesOfACluster(t *testing.T) {
	p, err := backendPolicies.part(routeOf(t, policyText("BackendPolicy", "p", `{targetRefs: [{name: web}], faults: {abort: {httpStatus: 503, percent: 10}}}`, `{}`)))
	if s, ok := p.(*mesh.BackendPolicySpec); err != nil || !ok || s.Settings.Faults.AbortPercent != 10 {
		t.Errorf("%+v, %v", p, err)
	}
	if got := trafficPolicies.api().String(); got != "gateway.networking.x-k8s.io/v1alpha1, Resource=xbackendtrafficpolicies" {
		t.Error(got)
	}
}
