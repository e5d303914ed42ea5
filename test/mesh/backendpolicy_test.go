package mesh

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/objects"
)

// policyStats returns patterns of the metrics that show the effect of a policy: those in the setting that
// docs/backend-policy.md recommends, and others that only the tests need.
func policyStats(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/backend-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "inclusionRegexps:\n")
	out := []string{`cluster\..*\.upstream_cx_(total|connect_fail)`, `cluster\..*\.upstream_rq_retry`}
	for line := range strings.Lines(list) {
		pattern, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !ok {
			break
		}
		out = append(out, pattern)
	}
	return out
}

// A guarded is a world with a client that has a proxy, and servers without proxies. The path of a request determines
// the response, see serveAsTold.
type guarded struct {
	*world
	client   *pod
	uses     int
	settled  int // number of times that protect has changed the policy of the service web
	held     sync.WaitGroup
	untilEnd context.Context // ends with the test
}

// newGuarded makes a world with the service web at 10.96.0.1:8080, with two endpoints.
func newGuarded(t *testing.T, metadata map[string]any) *guarded {
	g := &guarded{world: newWorld(t)}
	var cancel context.CancelFunc
	g.untilEnd, cancel = context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); g.held.Wait() })
	for i := range 2 {
		p := g.pod(fmt.Sprintf("server-%d", i), "server")
		go serveAsTold(p.listen(8080), p.name)
		go repeat(p.listen(6379), p.name)
	}
	g.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP))
	g.client = g.pod("client", "client")
	g.client.stats, g.client.metadata = policyStats(t), metadata
	g.client.proxied()
	get(g.client.client(), "http://10.96.0.1:8080/")
	return g
}

// serveAsTold responds with the status in the path, such as /503. It does not answer a request for /hold until the
// client disconnects.
func serveAsTold(l net.Listener, name string) {
	(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := 200
		if r.URL.Path == "/hold" {
			<-r.Context().Done()
			return
		}
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
		io.WriteString(w, name)
	})}).Serve(l)
}

// apply adds a policy to the mesh, or replaces it, from its manifest.
func (w *world) apply(t *testing.T, text string) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	all, err := objects.Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	w.source.set(all[0].Part)
}

// protect sets the policy of a service that the client has not used yet, and waits until the control plane serves the
// policy. To see this, protect then changes the policy of the service "web", and waits until the client's proxy has
// that change.
func (g *guarded) protect(t *testing.T, u *use, settings string) {
	t.Helper()
	g.apply(t, policyText(u.name, settings))
	g.settled++
	g.apply(t, policyText("web", fmt.Sprintf(`connections: {max: %d}`, 1_000_000+g.settled)))
	want := fmt.Sprintf(`"max_connections": %d`, 1_000_000+g.settled)
	g.eventually(t, "the policy of web", func() bool {
		out, err := g.client.admin.Get(t.Context(), "/config_dump", url.Values{"resource": {"dynamic_active_clusters"}, "name_regex": {`http.10\.96\.0\.1:8080`}}.Encode())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(out), want)
	})
}

func policyText(service, settings string) string {
	return "{apiVersion: outrider.dev/v1alpha1, kind: BackendPolicy, metadata: {name: p-" + service + ", namespace: shop}, spec: {targetRefs: [{name: " + service + "}], " + settings + "}}"
}

// A use is a service of the guarded world that the client calls.
type use struct {
	*guarded
	name, vip string
	grpc      bool   // requests have the content type of gRPC
	counted   string // name of the service whose cluster has the metrics; default: this service
}

// use makes a new service, whose endpoints are the two servers and the other given addresses.
func (g *guarded) use(name string, more ...string) *use {
	return g.useOf(name, append([]string{"10.244.1.2", "10.244.2.2"}, more...)...)
}

// useOf makes a new service with these endpoints.
func (g *guarded) useOf(name string, addresses ...string) *use {
	g.uses++
	u := &use{guarded: g, name: name, vip: fmt.Sprintf("10.96.1.%d", g.uses), counted: name}
	s := &mesh.SliceSpec{Name: name, Namespace: namespace, Service: name, Ports: []mesh.SlicePort{{Name: "p8080", Number: 8080}, {Name: "p6379", Number: 6379}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, mesh.SliceEndpoint{Addresses: []netip.Addr{netip.MustParseAddr(a)}, Ready: true})
	}
	spec := &mesh.ServiceSpec{Name: name, Namespace: namespace, Addresses: []netip.Addr{netip.MustParseAddr(u.vip)}, Ports: []mesh.PortSpec{port(8080, mesh.HTTP), port(6379, mesh.TCP)}}
	g.source.set(spec, s)
	return u
}

// behind makes a new service with a route whose only backend is u.
func (u *use) behind(grpc bool, retry *mesh.Retry) *use {
	front := u.guarded.use(u.name + "-front")
	front.grpc, front.counted = grpc, u.name
	u.source.set(&mesh.RouteSpec{Name: front.name, Namespace: namespace, GRPC: grpc, Parents: []mesh.Parent{{Namespace: namespace, Name: front.name}},
		Rules: []mesh.Route{{Backends: []mesh.Backend{{Namespace: namespace, Name: u.name, Port: 8080, Weight: 1}}, Retry: retry}}})
	return front
}

func (u *use) request(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+u.vip+":8080"+path, nil)
	if err != nil {
		return nil, err
	}
	if u.grpc {
		r.Header.Set("Content-Type", "application/grpc")
	}
	resp, err := u.client.client().Do(r)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

// burst returns a function that makes requests one after the other.
func burst(path string, n int) func(*testing.T, *use) {
	return func(t *testing.T, u *use) {
		for range n {
			if _, err := u.request(t.Context(), path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// held returns a function that makes requests which last until the test ends.
func held(n int) func(*testing.T, *use) {
	return func(_ *testing.T, u *use) {
		for range n {
			u.held.Go(func() { u.request(u.untilEnd, "/hold") })
		}
	}
}

// stat returns the sum of a metric over the service's clusters in the client's proxy.
func (u *use) stat(metric string) uint64 {
	u.t.Helper()
	return u.client.stat(`cluster\.` + regexp.QuoteMeta("outbound|") + `[0-9]+` + regexp.QuoteMeta("||"+u.counted+".shop.svc.cluster.local.") + metric)
}

// Fields of a BackendPolicy take effect in a real Envoy. Two Services have the same endpoints and the same traffic,
// and only one has the policy. A metric must show the effect for this Service, and not for the other.
func TestBackendPolicyFields(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	unused := g.use("unused")
	g.protect(t, unused, `connections: {max: 1}, faults: {delay: {duration: 1s}}`)
	// bytes opens connections that last until the test ends.
	bytes := func(t *testing.T, u *use) {
		for range 3 {
			c, err := g.client.dial(g.untilEnd, "", u.vip+":6379")
			if err != nil {
				t.Fatal(err)
			}
			context.AfterFunc(g.untilEnd, func() { c.Close() })
			exchange(c, "x") // a connection above the limit is closed
		}
	}
	const refusals = `outlier_detection\.ejections_enforced_consecutive_local_origin_failure`
	// refused makes requests until an endpoint has refused two connections, or is ejected. Two are needed,
	// because Envoy does not count a failed connection of a cluster's first request, which is made while
	// Envoy receives the endpoints.
	refused := func(t *testing.T, u *use) {
		g.eventually(t, "connections that are refused", func() bool {
			burst("/", 1)(t, u)
			return u.stat("upstream_cx_connect_fail") >= 2 || u.stat(refusals) > 0
		})
	}
	for _, tt := range []struct {
		field, settings string
		traffic         func(*testing.T, *use)
		metric          string
		want            uint64 // minimum of the metric
		endpoint        string // an additional endpoint
	}{
		{"connections.max of bytes", `connections: {max: 1}`, bytes, "upstream_cx_overflow", 1, ""},
		{"connections.max of requests", `connections: {max: 1}`, held(3), "upstream_cx_overflow", 1, ""},
		{"connections.maxPendingRequests", `connections: {max: 1, maxPendingRequests: 1}`, held(6), "upstream_rq_pending_overflow", 1, ""},
		{"connections.maxRequests", `connections: {maxRequests: 1}`, held(4), `circuit_breakers\.default\.rq_open`, 1, ""},
		{"connections.maxRequestsPerConnection", `connections: {maxRequestsPerConnection: 1}`, burst("/", 3), "upstream_cx_max_requests", 3, ""},
		{"connections.idleTimeout", `connections: {idleTimeout: 100ms}`, burst("/", 1), "upstream_cx_idle_timeout", 1, ""},
		{"outlierDetection.consecutive5xxErrors", `outlierDetection: {consecutive5xxErrors: 2}`, burst("/500", 12), `outlier_detection\.ejections_enforced_consecutive_5xx`, 1, ""},
		{"outlierDetection.consecutiveGatewayErrors", `outlierDetection: {consecutiveGatewayErrors: 2}`, burst("/503", 12), `outlier_detection\.ejections_enforced_consecutive_gateway_failure`, 1, ""},
		// The default is one half, that is, one of the two endpoints.
		{"outlierDetection.maxEjectionPercent", `outlierDetection: {consecutive5xxErrors: 2, maxEjectionPercent: 100, baseEjectionTime: 1h}`, burst("/500", 12), `outlier_detection\.ejections_active`, 2, ""},
		// The default is three failures.
		{"outlierDetection.consecutiveLocalOriginFailures", `outlierDetection: {consecutiveLocalOriginFailures: 1}`, refused, refusals, 1, resolver},
	} {
		t.Run(tt.field, func(t *testing.T) {
			name := strings.ToLower(strings.NewReplacer(".", "-", " ", "-").Replace(tt.field))
			more := strings.Fields(tt.endpoint)
			with, without := g.use("with-"+name, more...), g.use("without-"+name, more...)
			g.protect(t, with, tt.settings)
			tt.traffic(t, without)
			tt.traffic(t, with)
			g.eventually(t, tt.metric, func() bool { return with.stat(tt.metric) >= tt.want })
			if n := without.stat(tt.metric); n != 0 {
				t.Errorf("%s is %d without the policy", tt.metric, n)
			}
		})
	}
	for _, tt := range []struct{ field, settings, metric string }{
		{"faults.delay", `faults: {delay: {duration: 1ms}}`, "delays_injected"},
		{"faults.abort", `faults: {abort: {httpStatus: 418}}`, "aborts_injected"},
	} {
		t.Run(tt.field, func(t *testing.T) {
			with, without := g.use("with-"+tt.metric[:5]), g.use("without-"+tt.metric[:5])
			g.protect(t, with, tt.settings)
			burst("/", 2)(t, without)
			metric := `http\.routed\.fault\.` + tt.metric
			if n := g.client.stat(metric); n != 0 {
				t.Errorf("%s is %d without the policy", tt.metric, n)
			}
			burst("/", 2)(t, with)
			g.eventually(t, metric, func() bool { return g.client.stat(metric) == 2 })
		})
	}
	for _, tt := range []struct {
		kind, fault string
		grpc        bool
		aborted     func(*http.Response) bool
	}{
		{"HTTPRoute", "httpStatus: 418", false, func(r *http.Response) bool { return r.StatusCode == 418 }},
		{"GRPCRoute", "grpcStatus: 10", true, func(r *http.Response) bool { return r.Header.Get("Grpc-Status") == "10" }},
	} {
		t.Run("of the backend of a "+tt.kind, func(t *testing.T) {
			backend := g.use("backend-" + strings.ToLower(tt.kind))
			front := backend.behind(tt.grpc, nil)
			g.protect(t, backend, `connections: {maxRequests: 1}, outlierDetection: {consecutive5xxErrors: 2}`)
			burst("/500", 3)(t, front)
			g.eventually(t, "an ejection", func() bool { return front.stat(`outlier_detection\.ejections_enforced_consecutive_5xx`) > 0 })
			held(4)(t, front)
			g.eventually(t, "the limit", func() bool { return front.stat(`circuit_breakers\.default\.rq_open`) > 0 })
			// Change the policy while it is in use.
			g.apply(t, policyText(backend.name, `faults: {abort: {`+tt.fault+`}}`))
			g.eventually(t, "an abort", func() bool {
				resp, err := front.request(t.Context(), "/")
				if err != nil {
					t.Fatal(err)
				}
				return tt.aborted(resp)
			})
		})
	}
	t.Run("a Service that is not used", func(t *testing.T) {
		out, err := g.client.admin.Get(t.Context(), "/config_dump", "")
		if err != nil || !strings.Contains(string(out), "backend-httproute.shop.svc") {
			t.Fatalf("%v; no used service in %d bytes", err, len(out))
		}
		for _, name := range []string{"unused.shop.svc", unused.vip + ":"} {
			if strings.Contains(string(out), name) {
				t.Errorf("the proxy has %s", name)
			}
		}
	})
}

// Durations of a policy take effect. The test does not measure them but compares events: when a short duration has
// passed, a long one that began before must not have passed.
func TestBackendPolicyTimes(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	g.router.IP("route", "add", "blackhole", "10.244.254.0/24")
	const lost = "10.244.254.1" // an address that does not answer
	patient, usual := g.useOf("patient", lost), g.useOf("usual", lost)
	g.protect(t, patient, `connections: {connectTimeout: 1h}`)
	held(1)(t, patient)
	g.eventually(t, "a connection", func() bool { return patient.stat("upstream_cx_total") > 0 })
	held(1)(t, usual) // each try has the default timeout of 2s

	const ejected, active = `outlier_detection\.ejections_enforced_consecutive_5xx`, `outlier_detection\.ejections_active`
	eject := func(u *use, times uint64) {
		g.eventually(t, "an ejection of "+u.name, func() bool { burst("/500", 1)(t, u); return u.stat(ejected) >= times })
	}
	long, rare, quick := g.use("long"), g.use("rare"), g.use("quick")
	for u, times := range map[*use]string{ // any order: each is a separate service
		long: "interval: 1s, baseEjectionTime: 1h", rare: "interval: 1h, baseEjectionTime: 1s", quick: "interval: 1s, baseEjectionTime: 1s",
	} {
		g.protect(t, u, `outlierDetection: {consecutive5xxErrors: 1, `+times+`}`)
	}
	eject(long, 1)
	eject(rare, 1)
	for times := range uint64(3) { // meanwhile ejections of long and rare would end if they had the default durations
		eject(quick, times+1)
		g.eventually(t, "a return", func() bool { return quick.stat(active) == 0 })
	}
	g.eventually(t, "two tries that are given up", func() bool { return usual.stat("upstream_cx_connect_timeout") >= 2 })
	if n := patient.stat("upstream_cx_connect_timeout"); n != 0 {
		t.Errorf("connections.connectTimeout: %d connections are given up", n)
	}
	if n := long.stat(active); n == 0 {
		t.Error("outlierDetection.baseEjectionTime: the endpoint has returned")
	}
	if n := rare.stat(active); n == 0 {
		t.Error("outlierDetection.interval: the endpoint has returned")
	}
}

// Faults apply to calls to a Service's address, also if the Service has an HTTPRoute, and to the share of requests
// that another Service's route sends to it. They end when the policy is changed.
func TestFaults(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	c := g.client.client()
	status := func(url string, want int) func() bool {
		return func() bool { return strings.HasPrefix(get(c, url), fmt.Sprint(want)) }
	}
	const web = "http://10.96.0.1:8080/"
	g.eventually(t, "a response", status(web, 200))
	g.apply(t, policyText("web", `faults: {abort: {httpStatus: 418}}`))
	g.eventually(t, "an abort with the reason", func() bool {
		got := get(c, web)
		return strings.HasPrefix(got, "418") && strings.Contains(got, "(FI, fault_filter_abort)")
	})
	// A route sends half of another service's requests to web, and web's faults apply to this share only.
	g.service("front", "10.96.0.9", "server", port(8080, mesh.HTTP))
	g.route("front", "front", 8080, mesh.Route{Backends: []mesh.Backend{{Namespace: namespace, Name: "front", Port: 8080, Weight: 1}, {Namespace: namespace, Name: "web", Port: 8080, Weight: 1}}})
	seen := map[string]bool{}
	g.eventually(t, "both shares", func() bool {
		got, _, _ := strings.Cut(get(c, "http://10.96.0.9:8080/"), " ")
		seen[got] = true
		return seen["200"] && seen["418"]
	})
	g.apply(t, policyText("web", `connections: {max: 100}`))
	g.eventually(t, "no abort", status(web, 200))
	for range 20 {
		if got := get(c, "http://10.96.0.9:8080/"); !strings.HasPrefix(got, "200") {
			g.eventually(t, "no abort in the share", status("http://10.96.0.9:8080/", 200))
		}
	}
}

// The route of another Service requests retries of a failing backend. A budget of zero, which allows only the minimum
// of concurrent retries, prevents some of them. Without a budget all requests are retried.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, nil)
	const overflow = "upstream_rq_retry_overflow"
	for name, settings := range map[string]string{ // any order: each case has its own service
		"retryConstraint": `{apiVersion: gateway.networking.x-k8s.io/v1alpha1, kind: XBackendTrafficPolicy, metadata: {name: p, namespace: shop},
			spec: {targetRefs: [{group: "", kind: Service, name: retryconstraint}], retryConstraint: {budget: {percent: 0, interval: 1s}, minRetryRate: {count: 1, interval: 1s}}}}`,
		"connections.maxRetries": policyText("connections-maxretries", `connections: {maxRetries: 0}`),
	} {
		t.Run(name, func(t *testing.T) {
			web := g.use(strings.ToLower(strings.ReplaceAll(name, ".", "-")))
			front := web.behind(false, &mesh.Retry{Attempts: 3, Codes: []int{503}, Backoff: 10 * time.Millisecond})
			fail := func() {
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() { front.request(t.Context(), "/503") })
				}
				all.Wait()
			}
			fail()
			if n, tried := front.stat(overflow), front.stat("upstream_rq_retry"); n != 0 || tried != 24 {
				t.Fatalf("without a policy %d are not tried again, and %d are, want 24", n, tried)
			}
			g.apply(t, settings)
			g.eventually(t, overflow, func() bool { fail(); return front.stat(overflow) > 0 })
		})
	}
}
