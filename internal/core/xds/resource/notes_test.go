package resource_test

import (
	"strings"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// If a proxy lacks a feature and no error shows it, its status says so.
func TestNotesOnAProxy(t *testing.T) {
	ours := pod("db-1", "db", "10.244.0.4", func(w *mesh.WorkloadSpec) { w.Own = true })
	v := snapshot(t, append(parts(), ours,
		&mesh.IgnoredSpec{Kind: "AuthorizationPolicy", Namespace: "shop", Name: "deny", Guards: true, Selector: map[string]string{"app": "db"}},
		&mesh.IgnoredSpec{Kind: "VirtualService", Namespace: "shop", Name: "db"})...)
	with := func(metadata map[string]string) *xds.Proxy {
		return client(func(p *xds.Proxy) { p.Metadata = metadata })
	}
	for name, tt := range map[string]struct {
		proxy *xds.Proxy
		want  []string
	}{
		"our agent":            {client(withAgent), nil},
		"files":                {client(), nil},
		"Istio's agent":        {with(map[string]string{contract.MetadataIstioVersion: "1.32"}), nil},
		"Istio's, DNS capture": {with(map[string]string{contract.MetadataIstioVersion: "1.32", contract.MetadataDNSCapture: "true"}), []string{"knows no name of the mesh"}},
		"Istio's, files":       {with(map[string]string{contract.MetadataIstioVersion: "1.32", contract.MetadataClientCert: "./etc/certs/cert-chain.pem"}), nil},
		"Istio's, other files": {with(map[string]string{contract.MetadataIstioVersion: "1.32", contract.MetadataServerCert: "/vault/cert.pem"}), []string{"wait for certificates in /etc/certs"}},
		"our agent, the same":  {client(withAgent, func(p *xds.Proxy) { p.Metadata[contract.MetadataDNSCapture] = "true" }), nil},
		"no secrets":           {with(nil), []string{"calls and is called in plain text"}},
		"a gRPC client":        {client(func(p *xds.Proxy) { p.Metadata, p.GRPC = nil, true }), []string{"calls in plain text"}},
		"a policy in vain":     {client(withAgent, func(p *xds.Proxy) { p.ID, p.ServiceAccount, p.Addresses = "sidecar~10.244.0.4~db-1.shop~x", "db", nil }), []string{"error: AuthorizationPolicy shop/deny: is not enforced"}},
	} {
		got := v.Notes(tt.proxy, nil, nil)
		if len(got) != len(tt.want) || len(got) > 0 && !strings.Contains(got[0], tt.want[0]) {
			t.Errorf("%s: %q; want %q", name, got, tt.want)
		}
	}
}

// If Istio's agent captures DNS, it becomes ready only when it has a table of names.
func TestIstioDNS(t *testing.T) {
	v := snapshot(t, parts()...)
	p := client(func(p *xds.Proxy) {
		p.Metadata = map[string]string{contract.MetadataIstioVersion: "1.32", contract.MetadataDNSCapture: "true"}
	})
	all := v.Wildcard(p, xds.NameTableType, nil)
	if len(all) != 1 || all[0].Resource.Body.TypeUrl != xds.NameTableType || v.Named(p, xds.NameTableType, all[0].Resource.Name).Resource != all[0].Resource {
		t.Errorf("%v; want one table, also by its name", all)
	}
	if got := v.Named(p, xds.NameTableType, "other").Resource; got != nil {
		t.Errorf("%v has another name", got)
	}
	if got := v.Wildcard(client(), xds.NameTableType, nil); got != nil {
		t.Errorf("%v; want no table for our agent", got)
	}
}
