package resource_test

import (
	"slices"
	"testing"

	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbac "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	bytes "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

// A proxy whose workload is unknown accepts no connection if a policy may apply to it.
func TestAuthorizationOfAnUnknownWorkload(t *testing.T) {
	unknown := client(func(p *xds.Proxy) { p.ID, p.Addresses = "sidecar~10.244.9.9~new-1.shop~x", addresses("10.244.9.9") })
	policy := func(namespace string) mesh.Part {
		return &mesh.AuthorizationSpec{Name: "p", Namespace: namespace, Selector: map[string]string{"app": "another"}, Rules: []mesh.AuthorizationRule{{}}}
	}
	for name, tt := range map[string]struct {
		parts []mesh.Part
		deny  bool
	}{
		"no policies":               {nil, false},
		"one of another namespace":  {[]mesh.Part{policy("bank")}, false},
		"one of its namespace":      {[]mesh.Part{policy("shop")}, true},
		"one of the root namespace": {[]mesh.Part{policy(mesh.DefaultRoot)}, true},
	} {
		v := snapshot(t, append(parts(), tt.parts...)...)
		for _, l := range []string{"virtualInbound", "virtualInbound-early"} {
			chains := message(t, v.Named(unknown, xds.ListenerType, l).Resource).(*listener.Listener).FilterChains
			app := chains[slices.IndexFunc(chains, func(c *listener.FilterChain) bool { return c.Name == "app-mesh" })]
			m := &bytes.RBAC{}
			denies := app.Filters[0].GetTypedConfig().UnmarshalTo(m) == nil && m.Rules.Action == rbac.RBAC_ALLOW && len(m.Rules.Policies) == 0
			if denies != tt.deny || len(chains) != len(mesh.ProxyPorts)+1 {
				t.Errorf("%s: %s: %d chains, the application's has %v", name, l, len(chains), app.Filters)
			}
		}
	}
}

// A policy changes only the listeners of the workloads that it selects.
func TestAuthorizationReachesWhatItSelects(t *testing.T) {
	h := newTestMesh(parts()...)
	source := resource.New(h)
	before, _ := source.Current()
	h.builder.Set(&mesh.AuthorizationSpec{Name: "p", Namespace: "shop", Selector: map[string]string{"app": "db"}, Rules: []mesh.AuthorizationRule{{}}})
	after, _ := source.Current()
	// Both proxies get their secrets from an agent, so only policies can distinguish their listeners.
	for name, p := range map[string]*xds.Proxy{"web": client(withAgent), "db": dbClient(withAgent)} {
		inbound := func(v xds.Snapshot) string { return v.Named(p, xds.ListenerType, "virtualInbound").Resource.Version }
		if changed := inbound(before) != inbound(after); changed != (name == "db") {
			t.Errorf("the listeners of %s change: %t", name, changed)
		}
	}
}
