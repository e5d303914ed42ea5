package build

import (
	"testing"

	"outrider.dev/internal/core/mesh"
)

func TestPolicies(t *testing.T) {
	policy := func(namespace, name string, mode mesh.Mode, selector ...string) *mesh.PolicySpec {
		p := &mesh.PolicySpec{Namespace: namespace, Name: name, Mode: mode}
		if selector != nil {
			p.Selector = map[string]string{selector[0]: selector[1]}
		}
		return p
	}
	withPort := func(p *mesh.PolicySpec, number uint16, mode mesh.Mode) *mesh.PolicySpec {
		p.Ports = map[uint16]mesh.Mode{number: mode}
		return p
	}
	younger := policy("shop", "a", mesh.ModeDisable)
	younger.Created = younger.Created.AddDate(2020, 0, 0)
	tests := map[string]struct {
		policies []mesh.Part
		want     mesh.TLSMode
		ports    map[uint16]mesh.TLSMode
	}{
		"no declaration":                              {nil, mesh.Permissive, nil},
		"the mesh":                                    {[]mesh.Part{policy(mesh.DefaultRoot, "x", mesh.ModeStrict)}, mesh.Strict, nil},
		"the namespace, not the mesh":                 {[]mesh.Part{policy(mesh.DefaultRoot, "x", mesh.ModeStrict), policy("shop", "x", mesh.ModeDisable)}, mesh.Disable, nil},
		"another namespace":                           {[]mesh.Part{policy("pay", "x", mesh.ModeStrict)}, mesh.Permissive, nil},
		"the workload, not the namespace":             {[]mesh.Part{policy("shop", "x", mesh.ModeDisable), policy("shop", "y", mesh.ModeStrict, "app", "a")}, mesh.Strict, nil},
		"another workload":                            {[]mesh.Part{policy("shop", "y", mesh.ModeStrict, "app", "b")}, mesh.Permissive, nil},
		"a selector in the root namespace is ignored": {[]mesh.Part{policy(mesh.DefaultRoot, "y", mesh.ModeStrict, "app", "a")}, mesh.Permissive, nil},
		"the namespace leaves it to the mesh":         {[]mesh.Part{policy(mesh.DefaultRoot, "x", mesh.ModeStrict), policy("shop", "x", mesh.Unset)}, mesh.Strict, nil},
		"the workload leaves it to the namespace, but one port": {
			[]mesh.Part{policy("shop", "x", mesh.ModeStrict), withPort(policy("shop", "y", mesh.Unset, "app", "a"), 8080, mesh.ModeDisable)}, mesh.Strict,
			map[uint16]mesh.TLSMode{8080: mesh.Disable, 80: mesh.Strict}},
		"a port leaves it to the workload":       {[]mesh.Part{withPort(policy("shop", "y", mesh.ModeStrict, "app", "a"), 8080, mesh.Unset)}, mesh.Strict, map[uint16]mesh.TLSMode{8080: mesh.Strict}},
		"a permissive port of a strict workload": {[]mesh.Part{withPort(policy("shop", "y", mesh.ModeStrict, "app", "a"), 8080, mesh.ModePermissive)}, mesh.Strict, map[uint16]mesh.TLSMode{8080: mesh.Permissive}},
		"of two the older":                       {[]mesh.Part{younger, policy("shop", "b", mesh.ModeStrict)}, mesh.Strict, nil},
		"of two as old the first by name":        {[]mesh.Part{policy("shop", "b", mesh.ModeDisable), policy("shop", "a", mesh.ModeStrict)}, mesh.Strict, nil},
		"a port without a service":               {[]mesh.Part{withPort(policy("shop", "y", mesh.Unset, "app", "a"), 9999, mesh.ModeStrict)}, mesh.Permissive, map[uint16]mesh.TLSMode{9999: mesh.Strict, 8080: mesh.Permissive}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			web := selecting(svc("shop", "web", "10.0.0.1", mesh.PortSpec{Port: mesh.Port{Name: "http", Number: 80, Protocol: mesh.HTTP}, Target: 8080}), "app", "a")
			b := New(mesh.Config{})
			b.Set(web, pod("shop", "p", "10.1.0.1", "app", "a"))
			plain := b.Mesh()
			b.Set(tt.policies...)
			m := b.Mesh()
			w := m.Pod("shop", "p")
			tls := func(number uint16) mesh.TLSMode {
				p, _ := w.Port(number)
				return p.TLS
			}
			if w.TLS != tt.want || tt.ports == nil && tls(8080) != tt.want {
				t.Errorf("other ports %q, 8080 %q, want %q", w.TLS, tls(8080), tt.want)
			}
			for number, want := range tt.ports {
				if got := tls(number); got != want {
					t.Errorf("port %d: %q, want %q", number, got, want)
				}
			}
			if m.ByName("shop", "web").Endpoints[0].Workload != w {
				t.Error("the service's endpoint has another workload")
			}
			for _, p := range tt.policies {
				b.Delete(p.Key())
			}
			if diff := diffMeshes(plain, b.Mesh()); diff != "" {
				t.Errorf("policies leave something behind (-want +got):\n%s", diff)
			}
		})
	}
}
