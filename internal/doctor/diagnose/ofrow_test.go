package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// Of a pod of which only a line is known, the proxy's log says that the proxy is not ready, if the line counts a container that
// is not. The application's failed calls follow from that.
func TestProxyOfALineIsNotReady(t *testing.T) {
	const (
		head    = "NAME                    READY   STATUS    RESTARTS   AGE\n"
		linkerd = "[     0.001s]  INFO ThreadId(01) linkerd2_proxy: Outbound interface on 127.0.0.1:4140\n" +
			"[     0.020s]  WARN ThreadId(02) identity:controller{addr=linkerd-identity-headless.mesh.svc.cluster.local:8080}:endpoint{addr=10.1.0.9:8080}: linkerd_reconnect: Failed to connect error=endpoint 10.1.0.9:8080: {why}\n" +
			"[    15.003s]  WARN ThreadId(01) linkerd_app: Waiting for identity to be initialized...\n"
		istio = "2026-03-02T10:00:03.000Z\tinfo\tEnvoy command: [-c etc/istio/proxy/envoy-rev.json]\n" +
			"2026-03-02T10:00:04.000Z\twarning\tenvoy config\tgRPC config stream to xds-grpc closed: {why}\n"
		app = "2026-03-02T10:01:00Z ERROR GET http://stock.shop:8080/all: timeout after 5000 ms\n"
	)
	expired := strings.Replace(linkerd, "{why}", "invalid peer certificate: Expired", 1)
	for name, c := range map[string]struct { // in any order: subtests
		row, file, log, says string
	}{
		"a certificate":                {"shop-7f5c9d8b4c-2kq8n    1/2     Running   0   9m\n", "linkerd-proxy.log", expired, "no-certificate"},
		"no answer":                    {"shop-7f5c9d8b4c-2kq8n    1/2     Running   0   9m\n", "linkerd-proxy.log", strings.Replace(linkerd, "{why}", "connection refused", 1), "no-control-plane"},
		"refused":                      {"shop-7f5c9d8b4c-2kq8n    0/2     CrashLoopBackOff   5 (9s ago)   9m\n", "istio-proxy.log", strings.Replace(istio, "{why}", "16, authentication failure", 1), "no-certificate"},
		"it got ready":                 {"shop-7f5c9d8b4c-2kq8n    1/2     Running   0   9m\n", "linkerd-proxy.log", expired + "[    20.1s]  INFO ThreadId(02) linkerd_app: Certified identity id=shop\n", ""},
		"both are ready":               {"shop-7f5c9d8b4c-2kq8n    2/2     Running   0   9m\n", "linkerd-proxy.log", expired, ""},
		"it is being deleted":          {"shop-7f5c9d8b4c-2kq8n    1/2     Terminating   0   9m\n", "linkerd-proxy.log", expired, ""},
		"the end of the log of a mesh": {"shop-7f5c9d8b4c-2kq8n    1/2     Running   0   9d\n", "istio-proxy.log", "2026-03-02T10:00:04.000Z\twarning\tenvoy config\tgRPC config stream to xds-grpc closed: 14, connection error: reset\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pods.txt": head + c.row, c.file: c.log, "shop.log": app})
			got := ""
			for _, f := range r.Findings {
				if f.Code == "no-certificate" || f.Code == "no-control-plane" {
					got = string(f.Code)
				}
			}
			if got != c.says || c.says != "" && (key(r) != "found "+c.says || r.Findings[0].Confidence != result.Likely || !r.Quotes(c.file)) {
				t.Errorf("%s: %s", key(r), r.Sentence)
			}
		})
	}
}
