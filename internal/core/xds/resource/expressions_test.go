package resource_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"outrider.dev/internal/core/mesh/objects"
	"outrider.dev/internal/core/xds"
	"outrider.dev/test/process"
)

// If one regular expression is too large, Envoy rejects all routes of a service. So routes accept only
// expressions that are small enough; here are the largest of several forms.
func TestEnvoyAcceptsTheLargestExpressions(t *testing.T) {
	binary := process.Envoy(t)
	route := func(expressions ...string) *gatewayv1.HTTPRoute {
		r := &gatewayv1.HTTPRoute{}
		r.Namespace, r.Name = "shop", "large"
		r.Spec.ParentRefs = []gatewayv1.ParentReference{{Group: ptr.To(gatewayv1.Group("")), Kind: ptr.To(gatewayv1.Kind("Service")), Name: "routed"}}
		for _, e := range expressions {
			r.Spec.Rules = append(r.Spec.Rules, gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{{
				Headers: []gatewayv1.HTTPHeaderMatch{{Type: ptr.To(gatewayv1.HeaderMatchRegularExpression), Name: "x", Value: e}},
			}}})
		}
		return r
	}
	var largest []string
	for _, class := range []string{".", "(?s:.)", `\pL`, `\PL`, "[^/]", "a", "(?i)k", "[é-ü]", "(?:ab|cd|[0-9]+)", `(?:\w*)`} {
		of := func(n int) string { return strings.Repeat(class+"{100}", n/100) + fmt.Sprintf("%s{%d}", class, n%100) }
		accepted := func(n int) bool { _, err := objects.HTTPRoute(route(of(n))); return err == nil }
		low, high := 1, 40_000
		for low+1 < high { // finds the largest that is accepted
			if middle := (low + high) / 2; accepted(middle) {
				low = middle
			} else {
				high = middle
			}
		}
		if !accepted(low) || low == 1 {
			t.Fatalf("%s: none is accepted", class)
		}
		t.Logf("%s: %d times", class, low)
		largest = append(largest, of(low))
	}
	spec, err := objects.HTTPRoute(route(largest...))
	if err != nil {
		t.Fatal(err)
	}
	host := snapshot(t, append(parts(), spec)...).Named(client(), xds.VirtualHostType, "routed/80.routed.shop.svc.cluster.local").Resource
	dir := t.TempDir()
	file := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(file, static(t, dir, []xds.Dependency{{Type: xds.VirtualHostType, Resource: host}}), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary, "--mode", "validate", "-c", file, "-l", "error").CombinedOutput(); err != nil {
		t.Errorf("%v: %.2000s", err, out)
	}
}
