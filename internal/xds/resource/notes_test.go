package resource_test

import (
	"strings"
	"testing"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/xds"
)

// What a proxy silently does without is in its status.
func TestNotesOnAProxy(t *testing.T) {
	v := snapshot(t, parts()...)
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
		"Istio's, DNS capture": {with(map[string]string{contract.MetadataIstioVersion: "1.32", contract.MetadataDNSCapture: "true"}), []string{"unset ISTIO_META_DNS_CAPTURE"}},
		"our agent, the same":  {client(withAgent, func(p *xds.Proxy) { p.Metadata[contract.MetadataDNSCapture] = "true" }), nil},
		"no secrets":           {with(nil), []string{"calls and is called in plain text"}},
		"a gRPC client":        {client(func(p *xds.Proxy) { p.Metadata, p.GRPC = nil, true }), nil},
	} {
		got := v.Notes(tt.proxy, nil)
		if len(got) != len(tt.want) || len(got) > 0 && !strings.Contains(got[0], tt.want[0]) {
			t.Errorf("%s: %q; want %q", name, got, tt.want)
		}
	}
}
