package check

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
)

func TestProxiesAreCalledByTLS13(t *testing.T) {
	one, two := meshed("a", true), meshed("b", true)
	const caller = telemetry.OldTLSCaller + "spiffe://cluster.local/ns/shop/sa/old\"} 3\n"
	for name, tt := range map[string]struct {
		metrics string
		pods    []runtime.Object
		want    Result
		words   string
	}{
		"no proxies":       {"", nil, OK, "no pod has a proxy"},
		"all by TLS 1.3":   {expiry + "43200", []runtime.Object{one, two}, OK, "2 of 2 proxies report"},
		"some by TLS 1.2":  {tls13 + strings.Replace(tls13, "3{", "2{", 1) + caller, []runtime.Object{one, two}, Warning, "of 2 proxies that report it 2 got connections by TLS 1.2 since they started: shop/a, shop/b, from spiffe://cluster.local/ns/shop/sa/old"},
		"none is reported": {contract.CertificateExpiry + " 43200\n", []runtime.Object{one}, Skipped, "no proxy reports versions of TLS"},
		"no answer":        {strings.Repeat("x", 1<<17), []runtime.Object{one}, Skipped, "GET /metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			a := meshOf(t, "[]", readyNow, tt.metrics, tt.pods...).tls(context.Background())
			a.is(t, tt.want)
			if !strings.Contains(a.reason, tt.words) {
				t.Errorf("%q, want %q", a.reason, tt.words)
			}
		})
	}
}
