package foreign_test

import (
	"testing"

	"outrider.dev/internal/core/mesh/foreign"
)

// Resources derives the names of CustomResourceDefinitions from the kinds in the table.
func TestResources(t *testing.T) {
	all := foreign.Resources()
	for _, name := range []string{
		"authorizationpolicies.security.istio.io", "requestauthentications.security.istio.io", "gateways.networking.istio.io", "serviceentries.networking.istio.io",
		"workloadentries.networking.istio.io", "telemetries.telemetry.istio.io", "backendtlspolicies.gateway.networking.k8s.io", "proxyconfigs.networking.istio.io",
	} {
		if all[name] == "" {
			t.Errorf("no %s in %v", name, all)
		}
	}
	if len(all) != 16 {
		t.Errorf("%d resources", len(all))
	}
}

// A policy of a gateway is not reported, unless it has a selector too: its author may mean pods.
func TestPoliciesOfGateways(t *testing.T) {
	gateway := []any{map[string]any{"kind": "Gateway", "name": "front"}}
	for _, kind := range [][2]string{{"security.istio.io", "RequestAuthentication"}, {"networking.istio.io", "EnvoyFilter"}, {"extensions.istio.io", "WasmPlugin"}} {
		for _, selector := range []string{"", "selector", "workloadSelector"} {
			spec := map[string]any{"targetRefs": gateway}
			if selector != "" {
				spec[selector] = map[string]any{}
			}
			got := foreign.Read(map[string]any{"apiVersion": kind[0] + "/v1", "kind": kind[1], "spec": spec})
			if (got != nil) != (selector != "") {
				t.Errorf("%s with a %q: %+v", kind[1], selector, got)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("security.istio.io/v1", "AuthorizationPolicy", "matchLabels", "x")
	f.Add("networking.istio.io/v1", "DestinationRule", "interval", "1h")
	f.Fuzz(func(t *testing.T, version, kind, key, value string) {
		for _, spec := range []any{nil, value, []any{value}, map[string]any{
			"selector": map[string]any{key: map[string]any{value: value}}, "targetRefs": []any{value, map[string]any{"kind": value}}, "outboundTrafficPolicy": value, "host": value,
			"trafficPolicy": map[string]any{key: value, "outlierDetection": map[string]any{key: value}, "connectionPool": map[string]any{"tcp": map[string]any{key: value}}, "portLevelSettings": []any{value}},
		}} {
			if s := foreign.Read(map[string]any{"apiVersion": version, "kind": kind, "metadata": spec, "spec": spec}); s != nil && s.Kind != kind {
				t.Errorf("%+v", s)
			}
		}
	})
}
