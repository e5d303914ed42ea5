package resource_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
)

var update = flag.Bool("update", false, "write the golden files anew")

const certificates = "/certificates"

// A testMesh is a mesh that tests can change.
type testMesh struct {
	builder *build.Builder
	newer   chan struct{}
}

func (h *testMesh) Current() (*mesh.Mesh, <-chan struct{}) { return h.builder.Mesh(), h.newer }

func newTestMesh(parts ...mesh.Part) *testMesh { return newTestMeshOf(mesh.Config{}, parts...) }

func newTestMeshOf(config mesh.Config, parts ...mesh.Part) *testMesh {
	h := &testMesh{builder: build.New(config), newer: make(chan struct{})}
	h.builder.Set(parts...)
	return h
}

func snapshot(t testing.TB, parts ...mesh.Part) xds.Snapshot {
	t.Helper()
	return snapshotOf(t, mesh.Config{}, parts...)
}

func snapshotOf(t testing.TB, config mesh.Config, parts ...mesh.Part) xds.Snapshot {
	t.Helper()
	v, _ := resource.New(newTestMeshOf(config, parts...)).Current()
	return v
}

func addresses(list string) (out []netip.Addr) {
	for _, a := range strings.Fields(list) {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func pod(name, app, at string, change ...func(*mesh.WorkloadSpec)) *mesh.WorkloadSpec {
	s := &mesh.WorkloadSpec{Ready: true, Workload: mesh.Workload{
		Name: name, Namespace: "shop", ServiceAccount: app, Labels: map[string]string{"app": app},
		Addresses: addresses(at), Proxied: true, Zone: "a",
	}}
	for _, f := range change {
		f(s)
	}
	return s
}

func service(name, app, at string, ports ...mesh.PortSpec) *mesh.ServiceSpec {
	return &mesh.ServiceSpec{Name: name, Namespace: "shop", Selector: map[string]string{"app": app}, Addresses: addresses(at), Headless: at == "", Ports: ports}
}

func port(number uint16, p mesh.Protocol) mesh.PortSpec {
	return mesh.PortSpec{Port: mesh.Port{Name: fmt.Sprintf("p%d", number), Number: number, Protocol: p}, Target: number}
}

func unproxied(s *mesh.WorkloadSpec) { s.Proxied = false }

// policyFor returns a policy for a service.
func policyFor(service string, settings mesh.BackendPolicy) *mesh.BackendPolicySpec {
	return &mesh.BackendPolicySpec{Kind: mesh.KindBackendPolicy, Name: service, Namespace: "shop", Targets: []mesh.PolicyTarget{{Name: service}}, Settings: settings}
}

// parts returns the parts of the mesh that most tests use.
func parts() []mesh.Part {
	prefix := "/"
	backend := func(name string, weight uint32) mesh.Backend {
		return mesh.Backend{Namespace: "shop", Name: name, Port: 80, Weight: weight}
	}
	web := port(80, mesh.HTTP)
	web.Target = 8080
	hidden := service("hidden", "hidden", "10.96.0.66", port(80, mesh.HTTP))
	hidden.ExportTo = []string{"."}
	hidden.Namespace = "vault"
	secret := pod("hidden-1", "hidden", "10.244.0.66")
	secret.Namespace = "vault"
	return []mesh.Part{
		pod("web-1", "web", "10.244.0.1 fd44::1"), pod("web-2", "web", "10.244.0.2"), pod("old-1", "old", "10.244.0.3", unproxied),
		pod("db-1", "db", "10.244.0.4"), secret,
		service("web", "web", "10.96.0.1 fd96::1", web, port(81, mesh.GRPC), port(82, mesh.Unknown)),
		service("old", "old", "10.96.0.2", port(80, mesh.HTTP)),
		service("db", "db", "10.96.0.3", port(3306, mesh.ServerFirst), port(6379, mesh.TCP), port(53, mesh.UDP)),
		service("pods", "db", "", port(6380, mesh.TCP)),
		service("mysql", "web", "10.96.0.8", port(3307, mesh.ServerFirst)),
		service("tls", "web", "10.96.0.4", port(443, mesh.TLS)),
		&mesh.ServiceSpec{Name: "out", Namespace: "shop", External: "example.com", Ports: []mesh.PortSpec{port(80, mesh.HTTP)}},
		service("routed", "web", "10.96.0.5 fd96::5", port(80, mesh.HTTP)),
		hidden,
		// A service in another namespace has a pod of this namespace as its endpoint. If the proxy's
		// port were accepted as one of the application, Envoy would reject all resources of the pod's
		// proxy.
		&mesh.ServiceSpec{Name: "evil", Namespace: "bank", Addresses: addresses("10.96.0.77"), Ports: []mesh.PortSpec{port(80, mesh.HTTP), port(8080, mesh.ServerFirst)}},
		&mesh.SliceSpec{Name: "evil-1", Namespace: "bank", Service: "evil", Ports: []mesh.SlicePort{{Name: "p80", Number: contract.InboundPort}, {Name: "p8080", Number: 8080}},
			Endpoints: []mesh.SliceEndpoint{{Addresses: addresses("10.244.0.1"), Ready: true}}},
		&mesh.PolicySpec{Name: "db", Namespace: "shop", Selector: map[string]string{"app": "db"}, Mode: mesh.ModeStrict, Ports: map[uint16]mesh.Mode{6380: mesh.ModeDisable}},
		&mesh.RouteSpec{Name: "r", Namespace: "shop", Parents: []mesh.Parent{{Namespace: "shop", Name: "routed"}}, Rules: []mesh.Route{
			{Matches: []mesh.Match{{Path: &mesh.Text{Kind: mesh.Prefix, Value: "/a/"}, Method: "GET",
				Headers: []mesh.Pair{{Name: "x", Text: mesh.Text{Kind: mesh.RegExp, Value: "a+"}}},
				Query:   []mesh.Pair{{Name: "q", Text: mesh.Text{Kind: mesh.Exact, Value: "1"}}}}},
				Filters: []mesh.Filter{
					{RequestHeaders: &mesh.Headers{Set: [][2]string{{"X-A", "100%"}, {"Host", "no"}}, Add: [][2]string{{"X-B", "b"}}, Remove: []string{"X-C"}}},
					{ResponseHeaders: &mesh.Headers{Remove: []string{"Server"}}},
					{Rewrite: &mesh.Rewrite{Path: &mesh.PathChange{Prefix: &prefix}}},
					{Mirror: &mesh.Backend{Namespace: "shop", Name: "old", Port: 80}, MirrorPercent: 2.5}},
				Backends: []mesh.Backend{backend("web", 90), backend("old", 10)},
				Timeout:  2 * time.Second, BackendTimeout: time.Second, Retry: &mesh.Retry{Attempts: 3, Codes: []int{503}, Backoff: 10 * time.Millisecond}},
			{Matches: []mesh.Match{{Path: &mesh.Text{Kind: mesh.Exact, Value: "/moved"}}}, Filters: []mesh.Filter{{Redirect: &mesh.Redirect{Scheme: "https", Path: &mesh.PathChange{Full: "/x"}, Status: 301}}}},
			{Matches: []mesh.Match{{Path: &mesh.Text{Kind: mesh.Exact, Value: "/half"}}}, Backends: []mesh.Backend{backend("web", 1), backend("nowhere", 1)}},
			{Matches: []mesh.Match{{Path: &mesh.Text{Kind: mesh.Exact, Value: "/none"}}}},
		}},
	}
}

// callRoutes returns routes for the gRPC port of web.
func callRoutes() *mesh.RouteSpec {
	call := func(kind mesh.TextKind, service, method string) []mesh.Match {
		return []mesh.Match{{Call: &mesh.Call{Kind: kind, Service: service, Method: method}}}
	}
	to := func(name string, weight uint32, filters ...mesh.Filter) mesh.Backend {
		return mesh.Backend{Namespace: "shop", Name: name, Port: 80, Weight: weight, Filters: filters}
	}
	mirror := mesh.Filter{Mirror: &mesh.Backend{Namespace: "shop", Name: "old", Port: 80}, MirrorPercent: 100. / 3}
	return &mesh.RouteSpec{Name: "calls", Namespace: "shop", GRPC: true, Parents: []mesh.Parent{{Namespace: "shop", Name: "web", Port: 81}}, Rules: []mesh.Route{
		{Matches: call(mesh.Exact, "a.B", "C"), Backends: []mesh.Backend{to("web", 1), to("old", 2)}},
		{Matches: call(mesh.Exact, "a.B", ""), Backends: []mesh.Backend{to("nowhere", 1)}},
		{Matches: call(mesh.Exact, "", "C"), Filters: []mesh.Filter{mirror, mirror}, Backends: []mesh.Backend{to("web", 1)}},
		{Matches: call(mesh.RegExp, "a|b", "C.*"), Backends: []mesh.Backend{to("web", 1, mirror), to("old", 2), to("web", 0), to("nowhere", 1)}},
	}}
}

func client(change ...func(*xds.Proxy)) *xds.Proxy {
	p := &xds.Proxy{
		ID: "sidecar~10.244.0.1~web-1.shop~x", Namespace: "shop", ServiceAccount: "web", Addresses: addresses("10.244.0.1"),
		Metadata: map[string]string{contract.MetadataCertificates: certificates}, Envoy: contract.EnvoyVersion, BoringSSL: true,
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func dbClient(change ...func(*xds.Proxy)) *xds.Proxy {
	return client(append(change, func(p *xds.Proxy) {
		p.ID, p.ServiceAccount, p.Addresses = "sidecar~10.244.0.4~db-1.shop~x", "db", addresses("10.244.0.4")
	})...)
}

// relayed marks a proxy whose agent relays its configuration and exposes its statistics.
func relayed(p *xds.Proxy) { p.Relayed = true }

// withAgent marks a proxy whose agent serves its secrets.
func withAgent(p *xds.Proxy) {
	p.Metadata[contract.MetadataSecrets] = contract.SecretsCluster
}

// flatten returns the resources of bundles in the order of sending.
func flatten(a []xds.Bundle, typeURL string) (out []xds.Dependency) {
	for _, a := range a {
		out = append(out, a.Before...)
		if a.Resource != nil {
			out = append(out, xds.Dependency{Type: typeURL, Resource: a.Resource})
		}
		out = append(out, a.After...)
	}
	return out
}

// observed returns the configuration of a mesh with access logs, tracing and request metrics.
func observed(t *testing.T) mesh.Config {
	t.Helper()
	s, err := telemetry.Mesh{AccessLogFile: "/dev/stdout", AccessLogFormat: "%RESPONSE_CODE% %RESPONSE_FLAGS%"}.Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Metrics, s.Tracing = true, telemetry.Tracing{Host: "otel.shop", Port: 4317, Sampling: 12.5}
	return mesh.Config{Telemetry: s}
}

// goldenCases returns the resources in the golden files, by file and case.
func goldenCases(t *testing.T) map[string][]xds.Dependency {
	v := snapshot(t, parts()...)
	named := func(p *xds.Proxy, typeURL, name string) []xds.Dependency {
		return flatten([]xds.Bundle{v.Named(p, typeURL, name)}, typeURL)
	}
	p := client()
	dual := client(func(p *xds.Proxy) { p.Addresses = addresses("10.244.0.1 fd44::1") })
	warm := client(func(p *xds.Proxy) { p.Metadata[contract.MetadataPrewarm] = "db, old:80, nowhere, web:x" })
	bare := client(func(p *xds.Proxy) { delete(p.Metadata, contract.MetadataCertificates) })
	rpc := client(func(p *xds.Proxy) { p.GRPC = true })
	sds := client(func(p *xds.Proxy) { p.Metadata[contract.MetadataSecrets] = "sds-grpc" })
	istio := client(func(p *xds.Proxy) {
		p.Metadata, p.Envoy = map[string]string{contract.MetadataIstioVersion: "1.24"}, "1.32.3"
	})
	modern := snapshotOf(t, mesh.Config{MinTLS: mesh.TLS13}, parts()...)
	limited := snapshot(t, append(parts(), policyFor("web", everyField()), budgetFor("web"))...)
	deny := &mesh.AuthorizationSpec{Name: "deny", Namespace: "shop", Deny: true, Rules: []mesh.AuthorizationRule{{To: [][]mesh.Condition{{{Of: mesh.Method, Values: []string{"DELETE"}}}}}}}
	web := port(80, mesh.HTTP)
	web.Target = 8080
	ov := snapshotOf(t, observed(t), deny, pod("web-1", "web", "10.244.0.1"),
		service("web", "web", "10.96.0.1", web, port(82, mesh.TCP)), service("otel", "web", "10.96.0.9", port(4317, mesh.TCP)))
	seen := func(typeURL, name string, change ...func(*xds.Proxy)) []xds.Dependency {
		return flatten([]xds.Bundle{ov.Named(client(append(change, relayed)...), typeURL, name)}, typeURL)
	}
	percent := func(p *xds.Proxy) { p.Metadata[contract.MetadataSampling] = "99.4" }
	return map[string][]xds.Dependency{
		"clusters: limits":                        flatten([]xds.Bundle{limited.Named(p, xds.ClusterType, "http|10.96.0.1:80"), limited.Named(p, xds.ClusterType, web80)}, xds.ClusterType),
		"routes: faults":                          flatten([]xds.Bundle{limited.Named(p, xds.VirtualHostType, "routed/80.routed.shop.svc.cluster.local")}, xds.VirtualHostType),
		"observed: inbound, guarded":              seen(xds.ListenerType, "virtualInbound"),
		"observed: outbound":                      slices.Concat(seen(xds.ListenerType, "outbound_80", percent), seen(xds.ListenerType, "virtualOutbound")),
		"observed: routed":                        seen(xds.ListenerType, "routed"),
		"observed: cluster":                       seen(xds.ClusterType, "http|10.96.0.1:80"),
		"observed: collector":                     seen(xds.ClusterType, "tracing"),
		"listeners: all":                          flatten(v.Wildcard(p, xds.ListenerType, nil), xds.ListenerType),
		"listeners: two families":                 flatten(v.Wildcard(dual, xds.ListenerType, nil), xds.ListenerType)[:3],
		"listeners: STRICT inbound":               flatten(v.Wildcard(dbClient(), xds.ListenerType, nil), xds.ListenerType)[:2],
		"listeners: TLS 1.3 alone":                flatten([]xds.Bundle{modern.Named(dbClient(), xds.ListenerType, "virtualInbound")}, xds.ListenerType),
		"clusters: at the start":                  flatten(v.Wildcard(p, xds.ClusterType, nil), xds.ClusterType),
		"clusters: declared and expected":         flatten(v.Wildcard(warm, xds.ClusterType, []string{"http|10.96.0.1:80"}), xds.ClusterType),
		"clusters: http to a service":             named(p, xds.ClusterType, "http|10.96.0.1:80"),
		"clusters: http to a service by IPv6":     named(p, xds.ClusterType, "http|[fd96::1]:80"),
		"clusters: http to a gRPC port":           named(p, xds.ClusterType, "http|10.96.0.1:81"),
		"clusters: http, secrets by a cluster":    named(sds, xds.ClusterType, "http|10.96.0.1:80"),
		"clusters: http, secrets by Istio":        named(istio, xds.ClusterType, "http|10.96.0.1:80"),
		"clusters: http without a certificate":    named(bare, xds.ClusterType, "http|10.96.0.1:80"),
		"clusters: http to a service with routes": named(p, xds.ClusterType, "http|10.96.0.5:80"),
		"clusters: tcp to a service":              named(p, xds.ClusterType, "tcp|10.96.0.3:6379"),
		"clusters: tcp, server first, STRICT":     named(p, xds.ClusterType, "tcp|10.96.0.3:3306"),
		"clusters: tcp, server first, PERMISSIVE": named(p, xds.ClusterType, "tcp|10.96.0.8:3307"),
		"clusters: tcp to a pod":                  named(p, xds.ClusterType, "tcp|10.244.0.4:6379"),
		"clusters: tcp to a pod, DISABLE":         named(p, xds.ClusterType, "tcp|10.244.0.4:6380"),
		"clusters: tcp to an unknown address":     named(p, xds.ClusterType, "tcp|10.9.9.9:99"),
		"clusters: http to what may not be seen":  named(p, xds.ClusterType, "http|10.96.0.66:80"),
		"clusters: tcp to a pod not to be seen":   named(p, xds.ClusterType, "tcp|10.244.0.66:80"),
		"clusters: a service outside":             named(p, xds.ClusterType, "outbound|80||out.shop.svc.cluster.local"),
		"routes: internal listener":               named(p, xds.RouteType, "routed"),
		"routes: virtual host":                    named(p, xds.VirtualHostType, "routed/80.routed.shop.svc.cluster.local"),
		"routes: calls": flatten([]xds.Bundle{
			snapshot(t, append(parts(), callRoutes())...).Named(p, xds.VirtualHostType, "routed/81.web.shop.svc.cluster.local"),
		}, xds.VirtualHostType),
		"routes: IPv6": named(dual, xds.VirtualHostType, "routed/80-ipv6.routed.shop.svc.cluster.local"),
		"routes: client of gRPC": slices.Concat(named(rpc, xds.ListenerType, "web:81"), named(rpc, xds.RouteType, "outbound|81||web.shop.svc.cluster.local"),
			named(rpc, xds.ClusterType, "outbound|81||web.shop.svc.cluster.local"), named(rpc, xds.ListenerType, "web:99")),
	}
}

func TestGolden(t *testing.T) {
	cases := goldenCases(t)
	for name, resources := range cases {
		if len(resources) == 0 {
			t.Errorf("%s: no resources", name)
		}
	}
	for name, got := range viewsOf(t, cases) {
		file := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got, go test -update writes it):\n%s", file, diff)
		}
	}
}

// text returns resources as YAML.
func text(t *testing.T, resources []xds.Dependency) string {
	t.Helper()
	var b strings.Builder
	for _, n := range resources {
		fmt.Fprintf(&b, "# %s: %s\n", n.Type[strings.LastIndex(n.Type, ".")+1:], n.Resource.Name)
		raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(n.Resource.Body)
		if err != nil {
			t.Fatal(err)
		}
		y, err := yaml.JSONToYAML(raw)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(y)
		b.WriteString("---\n")
	}
	return b.String()
}
