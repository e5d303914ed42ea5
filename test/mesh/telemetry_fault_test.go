package mesh

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"outrider.dev/internal/agent/status"
	"outrider.dev/internal/mesh"
	"outrider.dev/internal/telemetry"
)

// A request that an AuthorizationPolicy denies is in the log and the metrics of both sides.
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
	eventually(t, "the policy in the server's proxy", func() bool {
		raw, err := o.server.admin.Get(context.Background(), "/config_dump", "resource=dynamic_listeners&mask=active_state")
		return err == nil && strings.Contains(string(raw), "/closed")
	})
	if got := o.client.request("GET", "http://10.96.0.1:8080/closed", "", nil); got != "denied" {
		t.Fatal(got)
	}
	type line struct {
		Path    string
		Code    float64 `json:"response_code"`
		Details string  `json:"response_code_details"`
	}
	for p, details := range map[*pod]string{ // any order: each has its own
		o.client: "via_upstream", o.server: "rbac_access_denied_matched_policy[ns[shop]-policy[closed]-rule[0]]",
	} {
		var got line
		if err := json.Unmarshal([]byte(p.lines(1)[0]), &got); err != nil {
			t.Error(err)
		}
		if diff := gocmp.Diff(line{"/closed", 403, details}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", p.name, diff)
		}
		var all []string
		eventually(t, "a denied request of "+p.name, func() bool {
			all = p.scraped(status.Workload{})
			return slices.ContainsFunc(all, func(s string) bool {
				return strings.HasPrefix(s, "istio_requests_total{") && strings.Contains(s, `response_code="403"`) && strings.HasSuffix(s, "} 1")
			})
		})
	}
}

// A collector that takes spans and never answers costs the spans: requests go on, a proxy waits for
// so many exports at once and for so long, and when the collector is well again it gets spans.
func TestCollectorHangs(t *testing.T) {
	t.Parallel()
	o := newObserved(t, telemetry.Settings{Tracing: telemetry.Tracing{Host: "otel.shop.svc.cluster.local", Port: 4317, Sampling: 100}})
	o.collector.hang = make(chan struct{})
	go func() {
		for { // they are not looked at
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
	for range 2000 { // there are five spans in an export, and two threads that collect them
		request()
		if stat("active_overflow") > 0 {
			break
		}
	}
	if active, over := stat("active"), stat("active_overflow"); active > 100 || over == 0 {
		t.Errorf("%d exports at once, %d not begun; want 100 and more than none", active, over)
	}
	eventually(t, "exports are given up", func() bool { return stat("max_duration_reached") >= 100 })
	close(o.collector.hang)
	eventually(t, "the collector gets spans", func() bool {
		request()
		o.collector.mu.Lock()
		defer o.collector.mu.Unlock()
		return len(o.collector.spans) > 0
	})
}
