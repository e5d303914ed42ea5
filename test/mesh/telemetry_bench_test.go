package mesh

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/process"
)

// A way is a case of the benchmark: a pair of Envoys with the same telemetry configuration.
type way struct {
	name     string
	settings telemetry.Settings
	plain    bool

	measured
	http *http.Client
}

// BenchmarkTelemetry compares telemetry configurations by requests per second and processor time per request. It
// measures all of them in each round, each time in a different order.
func BenchmarkTelemetry(b *testing.B) {
	const rounds, callers, warm, counted = 7, 16, 300 * time.Millisecond, 1500 * time.Millisecond
	jsonLog, err := telemetry.Mesh{AccessLogFile: "/dev/stdout", AccessLogEncoding: "JSON"}.Settings(nil)
	if err != nil {
		b.Fatal(err)
	}
	traced := func(percent float64) telemetry.Settings {
		return telemetry.Settings{Tracing: telemetry.Tracing{Host: "otel.shop.svc.cluster.local", Port: 4317, Sampling: percent}}
	}
	ways := []*way{
		{name: "plain Envoy", plain: true}, {name: "all off"}, {name: "metrics", settings: telemetry.Settings{Metrics: true}},
		{name: "JSON logs", settings: jsonLog}, {name: "tracing 1 %", settings: traced(1)}, {name: "tracing 100 %", settings: traced(100)},
	}
	for _, w := range ways {
		w.open(b)
	}
	for round := range rounds {
		for i := range ways {
			w := ways[(i*5+round)%len(ways)] // selects each way once, because 5 and the number of ways have no common factor
			w.load(b, callers, warm)
			w.measure(b, func() int { return w.load(b, callers, counted) })
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-14s %2s  %s  %s\n", "way", "n", "requests/s: min median max, of plain", "µs/request: min median max, of plain")
	for _, w := range ways {
		slices.Sort(w.rate)
		slices.Sort(w.cpu)
		middle := len(w.rate) / 2
		fmt.Fprintf(&out, "%-14s %2d  %7.0f %7.0f %7.0f  %.2f  %7.0f %7.0f %7.0f  %.2f\n", w.name, len(w.rate), w.rate[0], w.rate[middle], w.rate[len(w.rate)-1], w.rate[middle]/ways[0].rate[middle],
			w.cpu[0], w.cpu[middle], w.cpu[len(w.cpu)-1], w.cpu[middle]/ways[0].cpu[middle])
	}
	b.Log("\n" + out.String())
}

func (w *way) open(b *testing.B) {
	world := newWorldOf(b, mesh.Config{Telemetry: w.settings})
	world.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP))
	if w.settings.Tracing.On() {
		otel := world.pod("otel", "otel")
		world.service("otel", "10.96.0.9", "otel", port(4317, mesh.GRPC))
		c := collector{drop: true}
		c.serve(b, otel.listen(4317), otel.listen(4318))
	}
	w.server, w.client = world.pod("server", "server"), world.pod("client", "client")
	go http.Serve(w.server.listen(8080), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	if w.plain {
		w.server.static = plain{to: "127.0.0.1:8080"}.config
		w.client.static = plain{to: w.server.v4.String() + ":8080", client: true}.config
	}
	for _, p := range []*pod{w.client, w.server} {
		p.metadata = map[string]any{contract.MetadataRelay: "true"}
		p.proxied()
	}
	w.http = &http.Client{Transport: &http.Transport{DialContext: w.client.dial, MaxIdleConnsPerHost: 100}, Timeout: process.Patience}
	world.eventually(b, "a response by way of "+w.name, func() bool { return get(w.http, "http://10.96.0.1:8080/") == "200 hello" })
}

// load makes requests from concurrent callers for a duration, and returns the number of requests.
func (w *way) load(b *testing.B, callers int, d time.Duration) int {
	b.Helper()
	return during(b, callers, d, func() {
		if got := get(w.http, "http://10.96.0.1:8080/a/path?with=query"); got != "200 hello" {
			b.Errorf("%s: %q", w.name, got)
		}
	})
}
