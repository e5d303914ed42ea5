package status

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/telemetry"
)

// Lines as Envoy 1.40 writes them get Istio's names and labels.
func TestRequestsHaveIstiosNames(t *testing.T) {
	n := &requestNames{own: Workload{
		Workload: telemetry.Workload{Name: "web", Namespace: "shop", CanonicalName: "web", CanonicalRevision: "v1", Cluster: "Kubernetes"},
		App:      "shop-web", Principal: "spiffe://td/ns/shop/sa/web",
	}}
	const own = `_workload="web",%_canonical_service="web",%_canonical_revision="v1",%_workload_namespace="shop",%_principal="`
	tests := []struct{ name, line, want string }{
		{"others stay as they are", `envoy_server_live{} 1`, `envoy_server_live{} 1`},
		{"the type of a metric", "# TYPE envoy_istio_requests_total counter", "# TYPE istio_requests_total counter"},
		{"a request to a service of the mesh",
			`envoy_istio_requests_total{reporter="source",service="db;bank;db.bank.svc.cluster.local",workload="db-1;bank;db;v2;",principal="spiffe://td/ns/bank/sa/db",response_flags="-",response_code="200",request_protocol="http"} 2`,
			`istio_requests_total{reporter="source",source` + strings.ReplaceAll(own, "%", "source") + `spiffe://td/ns/shop/sa/web",source_app="shop-web",source_version="v1",source_cluster="Kubernetes",` +
				`destination_workload="db-1",destination_canonical_service="db",destination_canonical_revision="v2",destination_workload_namespace="bank",destination_principal="spiffe://td/ns/bank/sa/db",destination_app="db",destination_version="v2",destination_cluster="Kubernetes",` +
				`destination_service="db.bank.svc.cluster.local",destination_service_name="db",destination_service_namespace="bank",request_protocol="http",response_code="200",grpc_response_status="",response_flags="-",connection_security_policy="unknown"} 2`},
		{"a connection to the outside",
			`envoy_istio_tcp_sent_bytes_total{reporter="source",service="",workload="",principal="",response_flags="UF",request_protocol="tcp"} 0`,
			`istio_tcp_sent_bytes_total{reporter="source",source` + strings.ReplaceAll(own, "%", "source") + `unknown",source_app="shop-web",source_version="v1",source_cluster="Kubernetes",` +
				`destination_workload="unknown",destination_canonical_service="unknown",destination_canonical_revision="unknown",destination_workload_namespace="unknown",destination_principal="unknown",destination_app="unknown",destination_version="unknown",destination_cluster="unknown",` +
				`destination_service="unknown",destination_service_name="PassthroughCluster",destination_service_namespace="unknown",request_protocol="tcp",response_flags="UF",connection_security_policy="unknown"} 0`},
		{"a bucket of a request from the mesh",
			`envoy_istio_request_duration_milliseconds_bucket{reporter="destination",service="web;shop;web.shop.svc.cluster.local",principal="spiffe://td/ns/bank/sa/pay",response_flags="-",response_code="200",request_protocol="grpc",grpc_response_status="0",le="0.5"} 7`,
			`istio_request_duration_milliseconds_bucket{reporter="destination",source_workload="pay",source_canonical_service="pay",source_canonical_revision="unknown",source_workload_namespace="bank",source_principal="spiffe://td/ns/bank/sa/pay",source_app="pay",source_version="unknown",source_cluster="Kubernetes",` +
				`destination` + strings.ReplaceAll(own, "%", "destination") + `spiffe://td/ns/shop/sa/web",destination_app="shop-web",destination_version="v1",destination_cluster="Kubernetes",` +
				`destination_service="web.shop.svc.cluster.local",destination_service_name="web",destination_service_namespace="shop",request_protocol="grpc",response_code="200",grpc_response_status="0",response_flags="-",connection_security_policy="mutual_tls",le="0.5"} 7`},
		{"the next bucket", // with the same labels as the previous line
			`envoy_istio_x_bucket{reporter="destination",service="web;shop;web.shop.svc.cluster.local",principal="spiffe://td/ns/bank/sa/pay",response_flags="-",response_code="200",request_protocol="grpc",grpc_response_status="0",le="+Inf"} 8`, ""},
		{"a request in plain text to no service",
			`envoy_istio_requests_total{reporter="destination",principal="",response_flags="DC",response_code="0",request_protocol="http"} 1`,
			`istio_requests_total{reporter="destination",source_workload="unknown",source_canonical_service="unknown",source_canonical_revision="unknown",source_workload_namespace="unknown",source_principal="unknown",source_app="unknown",source_version="unknown",source_cluster="unknown",` +
				`destination` + strings.ReplaceAll(own, "%", "destination") + `unknown",destination_app="shop-web",destination_version="v1",destination_cluster="Kubernetes",` +
				`destination_service="unknown",destination_service_name="web",destination_service_namespace="shop",request_protocol="http",response_code="0",grpc_response_status="",response_flags="DC",connection_security_policy="none"} 1`},
		{"a line that is not complete", `envoy_istio_requests_total{reporter="sour`, `envoy_istio_requests_total{reporter="sour`},
	}
	last := ""
	for _, tt := range tests {
		want := tt.want
		if want == "" {
			want = strings.NewReplacer("istio_request_duration_milliseconds_bucket", "istio_x_bucket", `le="0.5"} 7`, `le="+Inf"} 8`).Replace(last)
		}
		got := string(n.line([]byte(tt.line)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		last = got
	}
}

// FuzzRequestNames checks that escaped quotes in a value of Envoy's stay within the value.
func FuzzRequestNames(f *testing.F) {
	f.Add(`envoy_istio_a{reporter="source",service="a;b;c",workload="\"\\",le="1"} 1`)
	f.Add(`envoy_istio_a{x="\`)
	f.Add(`envoy_istio_a{,le="}`)
	f.Fuzz(func(t *testing.T, line string) {
		got := string((&requestNames{}).line([]byte(line)))
		if strings.Contains(got, "\n") && !strings.Contains(line, "\n") {
			t.Errorf("%q: %q", line, got)
		}
	})
}
