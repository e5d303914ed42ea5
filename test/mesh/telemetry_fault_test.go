package mesh

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/process"
)

// A request that an AuthorizationPolicy denies appears in the logs and the metrics of both proxies.
func TestTelemetryOfADeniedRequest(t *testing.T) {
	t.Parallel()
	settings, err := telemetry.Mesh{AccessLogFile: "/dev/stdout", AccessLogEncoding: "JSON"}.Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	settings.Metrics = true
	o := newObserved(t, settings)
	o.source.set(&mesh.AuthorizationSpec{Name: "closed", Namespace: namespace, Selector: map[string]string{"app": "server"}, Deny: true, Rules: []mesh.AuthorizationRule{{
		To: [][]mesh.Condition{{{Of: mesh.Path, Values: []string{"/closed"}}}},
	}}})
	// Retry, because the proxy's threads receive the policy later.
	process.EventuallyEqual(t, "a request", "denied", func() string { return o.client.request("GET", "http://10.96.0.1:8080/closed", "", nil) }, o.envoys...)
	type line struct {
		Path    string
		Code    float64 `json:"response_code"`
		Details string  `json:"response_code_details"`
	}
	for p, details := range map[*pod]string{ // any order: each proxy has its own details
		o.client: "via_upstream", o.server: "rbac_access_denied_matched_policy[ns[shop]-policy[closed]-rule[0]]",
	} {
		process.EventuallyEqual(t, "denied requests in the log of "+p.name, []line{{"/closed", 403, details}}, func() (got []line) {
			for _, text := range p.lines() {
				var l line
				if err := json.Unmarshal([]byte(text), &l); err != nil {
					t.Error(err)
				}
				if l.Code != 200 {
					got = append(got, l)
				}
			}
			return got
		}, o.envoys...)
		o.eventually(t, "a denied request of "+p.name, func() bool {
			return slices.ContainsFunc(p.scraped(status.Workload{}), func(s string) bool {
				return strings.HasPrefix(s, "istio_requests_total{") && strings.Contains(s, `response_code="403"`) && strings.HasSuffix(s, "} 1")
			})
		})
	}
}

// runtime sets a value in the runtime configuration of the pod's Envoy.
func (p *pod) runtime(t *testing.T, setting string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, "admin"))
	}}}
	defer c.CloseIdleConnections()
	r, err := c.Post("http://envoy/runtime_modify?"+setting, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatal(r.Status)
	}
}

// If a collector accepts spans and never answers, only spans are lost: requests succeed, and a proxy limits the number
// and the duration of exports in flight. When the collector answers again, it receives spans.
func TestCollectorHangs(t *testing.T) {
	t.Parallel()
	o := newObserved(t, telemetry.Settings{Tracing: telemetry.Tracing{Host: "otel.shop.svc.cluster.local", Port: 4317, Sampling: 100}})
	o.collector.hang = make(chan struct{})
	go func() {
		for { // drop the headers of the requests
			select {
			case <-o.seen:
			case <-t.Context().Done():
				return
			}
		}
	}()
	stat := func(name string) uint64 {
		return o.client.stat(`cluster\.outbound\|4317\|\|otel\.shop\.svc\.cluster\.local\.upstream_rq_` + name)
	}
	request := func() {
		if got := o.client.request("GET", "http://10.96.0.1:8080/hello", "", nil); got != "allowed" {
			t.Fatal(got)
		}
	}
	// On a slow machine few requests are made while an export is in flight. So make all requests at the same
	// time, each of which causes an export.
	o.client.runtime(t, "tracing.opentelemetry.min_flush_spans=1")
	o.eventually(t, "an export that is not begun", func() bool {
		var all sync.WaitGroup
		for range 120 {
			all.Go(func() {
				if got := o.client.request("GET", "http://10.96.0.1:8080/hello", "", nil); got != "allowed" {
					t.Error(got)
				}
			})
		}
		all.Wait()
		return stat("active_overflow") > 0
	})
	if active := stat("active"); active > 101 { // one above the limit, because two threads may start the last one at the same time
		t.Errorf("%d exports at once, want 100", active)
	}
	o.eventually(t, "exports are given up", func() bool { return stat("max_duration_reached") >= 100 })
	close(o.collector.hang)
	o.eventually(t, "the collector gets spans", func() bool {
		request()
		o.collector.mu.Lock()
		defer o.collector.mu.Unlock()
		return len(o.collector.spans) > 0
	})
}
