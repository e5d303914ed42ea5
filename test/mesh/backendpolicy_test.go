package mesh

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/mesh"
	"outrider.dev/internal/mesh/objects"
)

// policyStats are the metrics by which a policy's effect is seen.
var policyStats = []string{
	`cluster\..*\.(upstream_cx_overflow|upstream_rq_pending_overflow|upstream_rq_retry_overflow|upstream_cx_connect_timeout|upstream_cx_max_requests|upstream_cx_idle_timeout|upstream_rq_retry)`,
	`cluster\..*\.circuit_breakers\.default\..*_open`,
	`cluster\..*\.outlier_detection\.ejections_(enforced|detected)_.*`, `cluster\..*\.outlier_detection\.ejections_(active|overflow)`,
	`http\..*\.fault\.(delays_injected|aborts_injected)`,
}

// A guarded world has a client with a proxy, and servers without one, which do what a request's path says.
type guarded struct {
	*world
	client *pod
	held   sync.WaitGroup
}

// newGuarded has the service web at 10.96.0.1:8080 with two endpoints, bytes at 10.96.0.2:6379 and
// a service that no endpoint answers at 10.96.0.3:8080.
func newGuarded(t *testing.T, metadata map[string]any) *guarded {
	g := &guarded{world: newWorld(t)}
	for i := range 2 {
		p := g.pod(fmt.Sprintf("server-%d", i), "server")
		go serveAsTold(p.listen(8080), p.name)
		go repeat(p.listen(6379), p.name)
	}
	g.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP))
	g.service("db", "10.96.0.2", "server", port(6379, mesh.TCP))
	g.client = g.pod("client", "client")
	g.client.stats, g.client.metadata = policyStats, metadata
	g.client.proxied()
	return g
}

// serveAsTold responds with the status in the path, /503, or holds a request of /hold until its
// client leaves.
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

// apply sets a policy of the service web, by its manifest.
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

func policyText(service, settings string) string {
	return "{apiVersion: outrider.dev/v1alpha1, kind: BackendPolicy, metadata: {name: p-" + service + ", namespace: shop}, spec: {targetRefs: [{name: " + service + "}], " + settings + "}}"
}

// endpoint adds one to the service web that has no pod.
func (g *guarded) endpoint(addr string) {
	s := &mesh.SliceSpec{Name: "web-1", Namespace: namespace, Service: "web", Ports: []mesh.SlicePort{{Name: "p8080", Number: 8080}}}
	for _, a := range []string{"10.244.1.2", "10.244.2.2", addr} { // the servers'
		s.Endpoints = append(s.Endpoints, mesh.SliceEndpoint{Addresses: []netip.Addr{netip.MustParseAddr(a)}, Ready: true})
	}
	g.source.set(s)
}

// hold makes requests that last until the test ends, or connections.
func (g *guarded) hold(t *testing.T, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); g.held.Wait() })
	for range n {
		g.held.Go(func() {
			r, _ := http.NewRequestWithContext(ctx, "GET", "http://10.96.0.1:8080/hold", nil)
			if resp, err := g.client.client().Do(r); err == nil {
				resp.Body.Close()
			}
		})
	}
}

// Each field of a BackendPolicy has an effect in a real Envoy, which its metric shows, and none
// before it is set: the metric is 0 in the same traffic.
func TestBackendPolicyFields(t *testing.T) {
	burst := func(path string, n int) func(*testing.T, *guarded) {
		return func(t *testing.T, g *guarded) {
			c := g.client.client()
			for range n {
				get(c, "http://10.96.0.1:8080"+path)
			}
		}
	}
	held := func(n int) func(*testing.T, *guarded) {
		return func(t *testing.T, g *guarded) { g.hold(t, n) }
	}
	// lost makes requests to endpoints of which one never answers: no packet arrives there.
	lost := func(t *testing.T, g *guarded) {
		g.router.IP("route", "add", "blackhole", "10.244.254.0/24")
		g.endpoint("10.244.254.1")
		burst("/", 20)(t, g)
	}
	refused := func(t *testing.T, g *guarded) {
		g.endpoint(resolver) // where no port is open
		burst("/", 20)(t, g)
	}
	for name, tt := range map[string]struct {
		settings string
		traffic  func(*testing.T, *guarded)
		metric   string
	}{
		"connections.max of bytes": {`connections: {max: 1}`, func(t *testing.T, g *guarded) {
			for range 3 {
				c, err := g.client.dial(t.Context(), "", "10.96.0.2:6379")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				exchange(c, "x")
			}
		}, `cluster\..*\.upstream_cx_overflow`},
		"connections.max of requests":                     {`connections: {max: 1, maxPendingRequests: 1}`, held(6), `cluster\..*\.upstream_rq_pending_overflow`},
		"connections.maxPendingRequests":                  {`connections: {max: 1, maxPendingRequests: 1}`, held(6), `cluster\..*\.circuit_breakers\.default\.rq_pending_open`},
		"connections.maxRequests":                         {`connections: {maxRequests: 1}`, held(4), `cluster\..*\.circuit_breakers\.default\.rq_open`},
		"connections.maxRequestsPerConnection":            {`connections: {maxRequestsPerConnection: 1}`, burst("/", 3), `cluster\..*\.upstream_cx_max_requests`},
		"connections.idleTimeout":                         {`connections: {idleTimeout: 100ms}`, burst("/", 1), `cluster\..*\.upstream_cx_idle_timeout`},
		"outlierDetection.consecutive5xxErrors":           {`outlierDetection: {consecutive5xxErrors: 2}`, burst("/500", 12), `cluster\..*\.outlier_detection\.ejections_enforced_consecutive_5xx`},
		"outlierDetection.consecutiveGatewayErrors":       {`outlierDetection: {consecutiveGatewayErrors: 2}`, burst("/503", 12), `cluster\..*\.outlier_detection\.ejections_enforced_consecutive_gateway_failure`},
		"outlierDetection.maxEjectionPercent":             {`outlierDetection: {consecutive5xxErrors: 2, maxEjectionPercent: 0}`, burst("/500", 12), `cluster\..*\.outlier_detection\.ejections_overflow`},
		"outlierDetection.consecutiveLocalOriginFailures": {`outlierDetection: {consecutiveLocalOriginFailures: 1}`, refused, `cluster\..*\.outlier_detection\.ejections_enforced_consecutive_local_origin_failure`},
		"connections.connectTimeout":                      {`connections: {connectTimeout: 50ms}`, lost, `cluster\..*\.upstream_cx_connect_timeout`},
		"faults.delay":                                    {`faults: {delay: {duration: 1ms}}`, burst("/", 2), `http\..*\.fault\.delays_injected`},
		"faults.abort":                                    {`faults: {abort: {httpStatus: 418}}`, burst("/", 2), `http\..*\.fault\.aborts_injected`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, nil)
			service := "web"
			if strings.HasSuffix(name, "of bytes") {
				service = "db"
			}
			if name != "connections.max of bytes" {
				burst("/", 1)(t, g) // without the policy, and in use when it comes
			}
			if n := g.client.stat(tt.metric); n != 0 {
				t.Fatalf("%s is %d without the policy", tt.metric, n)
			}
			version := g.client.stat(`cluster_manager\.cluster_(updated|modified|added)`)
			g.apply(t, policyText(service, tt.settings))
			if name != "connections.max of bytes" {
				eventually(t, "the policy in the proxy", func() bool { return g.client.stat(`cluster_manager\.cluster_(updated|modified|added)`) > version })
			}
			tt.traffic(t, g)
			eventually(t, tt.metric, func() bool { return g.client.stat(tt.metric) > 0 })
		})
	}
}

// Faults hold by address, with an HTTPRoute, in a share of a route, and with full push, and end with
// the policy.
func TestFaults(t *testing.T) {
	for name, metadata := range map[string]map[string]any{"on demand": nil, "full push": {"OUTRIDER_PUSH": "full"}} { // any order: each is a case
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, metadata)
			c := g.client.client()
			status := func(url string, want int) func() bool {
				return func() bool { return strings.HasPrefix(get(c, url), fmt.Sprint(want)) }
			}
			const web = "http://10.96.0.1:8080/"
			eventually(t, "a response", status(web, 200))
			g.apply(t, policyText("web", `faults: {abort: {httpStatus: 418}}`))
			eventually(t, "an abort", status(web, 418))
			if got := get(c, web); !strings.Contains(got, "(FI, fault_filter_abort)") {
				t.Errorf("the response is %q, want the reason in it", got)
			}
			// Another service's requests go to web by a route: its share has web's faults.
			g.service("front", "10.96.0.9", "server", port(8080, mesh.HTTP))
			g.route("front", "front", 8080, mesh.Route{Backends: []mesh.Backend{{Namespace: namespace, Name: "front", Port: 8080, Weight: 1}, {Namespace: namespace, Name: "web", Port: 8080, Weight: 1}}})
			seen := map[string]bool{}
			eventually(t, "both shares", func() bool {
				got, _, _ := strings.Cut(get(c, "http://10.96.0.9:8080/"), " ")
				seen[got] = true
				return seen["200"] && seen["418"]
			})
			g.apply(t, policyText("web", `connections: {max: 100}`))
			eventually(t, "no abort", status(web, 200))
			for range 20 {
				if got := get(c, "http://10.96.0.9:8080/"); !strings.HasPrefix(got, "200") {
					eventually(t, "no abort in the share", status("http://10.96.0.9:8080/", 200))
				}
			}
		})
	}
}

// Retries are those of a route whose requests fail: with a budget of none but the least, some are
// not tried again.
func TestRetryBudget(t *testing.T) {
	for name, text := range map[string]string{ // any order: each is a case
		"retryConstraint": `{apiVersion: gateway.networking.x-k8s.io/v1alpha1, kind: XBackendTrafficPolicy, metadata: {name: p, namespace: shop},
			spec: {targetRefs: [{group: "", kind: Service, name: web}], retryConstraint: {budget: {percent: 0, interval: 1s}, minRetryRate: {count: 1, interval: 1s}}}}`,
		"connections.maxRetries": policyText("web", `connections: {maxRetries: 0}`),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, nil)
			g.route("web", "web", 8080, mesh.Route{Backends: []mesh.Backend{{Namespace: namespace, Name: "web", Port: 8080, Weight: 1}}, Retry: &mesh.Retry{Attempts: 3, Codes: []int{503}, Backoff: 200 * time.Millisecond}})
			c := g.client.client()
			get(c, "http://10.96.0.1:8080/503")
			const overflow = `cluster\..*\.upstream_rq_retry_overflow`
			if n := g.client.stat(overflow); n != 0 {
				t.Fatalf("%d without a policy", n)
			}
			if n := g.client.stat(`cluster\..*\.upstream_rq_retry`); n == 0 {
				t.Fatal("nothing is tried again")
			}
			version := g.client.stat(`cluster_manager\.cluster_(updated|modified|added)`)
			g.apply(t, text)
			eventually(t, "the policy in the proxy", func() bool { return g.client.stat(`cluster_manager\.cluster_(updated|modified|added)`) > version })
			eventually(t, overflow, func() bool {
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() { get(c, "http://10.96.0.1:8080/503") })
				}
				all.Wait()
				return g.client.stat(overflow) > 0
			})
		})
	}
}
