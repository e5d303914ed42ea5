package mesh

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/process"
)

// An observed is a mesh with a client and a server that have access logs, metrics and tracing, and with a collector.
type observed struct {
	*world
	client, server *pod
	collector      collector
	seen           chan http.Header // headers of the requests that reach the application
}

// A collector stores the spans that it receives, by OTLP over gRPC and over HTTP.
type collector struct {
	mu    sync.Mutex
	spans []span
	drop  bool          // the collector discards all spans
	hang  chan struct{} // the collector answers when this channel is closed; nil: at once
}

// A span is a received span with the name of its service.
type span struct {
	*otlp.Span
	service string
}

func (c *collector) add(data *otlp.TracesData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drop {
		return
	}
	for _, r := range data.ResourceSpans {
		name := ""
		for _, a := range r.GetResource().GetAttributes() {
			if a.Key == "service.name" {
				name += a.Value.GetStringValue()
			}
		}
		for _, s := range r.ScopeSpans {
			for _, one := range s.Spans {
				c.spans = append(c.spans, span{one, name})
			}
		}
	}
}

// of returns the spans of a trace, sorted by the names of their services.
func (c *collector) of(trace string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []span
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.service, b.service) })
	return out
}

// serve accepts export requests. It decodes an ExportTraceServiceRequest as TracesData, which has the same fields.
func (c *collector) serve(t testing.TB, rpc, web net.Listener) {
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if m, _ := grpc.MethodFromServerStream(stream); m != "/opentelemetry.proto.collector.trace.v1.TraceService/Export" {
			return fmt.Errorf("method %s", m)
		}
		data := &otlp.TracesData{}
		if err := stream.RecvMsg(data); err != nil {
			return err
		}
		if c.hang != nil {
			select {
			case <-c.hang:
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
		c.add(data)
		return stream.SendMsg(&otlp.TracesData{})
	}))
	t.Cleanup(s.Stop)
	go s.Serve(rpc)
	go http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		data := &otlp.TracesData{}
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, data) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.add(data)
	}))
}

func newObserved(t *testing.T, settings telemetry.Settings) *observed {
	o := &observed{world: newWorldOf(t, mesh.Config{Telemetry: settings}), seen: make(chan http.Header, 100)}
	w := o.world
	o.server = w.pod("server-5d8f7-x", "server")
	o.server.spec.Labels["pod-template-hash"] = "5d8f7"
	otel := w.pod("otel", "otel")
	w.service("otel", "10.96.0.9", "otel", port(4317, mesh.GRPC), port(4318, mesh.HTTP))
	w.service("web", "10.96.0.1", "server", port(8080, mesh.HTTP), port(8081, mesh.GRPC))
	w.service("routed", "10.96.0.5", "server", port(8080, mesh.HTTP))
	w.service("db", "10.96.0.2", "server", port(6379, mesh.TCP))
	w.route("r", "routed", 8080, mesh.Route{Backends: []mesh.Backend{{Namespace: namespace, Name: "web", Port: 8080, Weight: 1}}})
	o.collector.serve(t, otel.listen(4317), otel.listen(4318))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		o.seen <- r.Header.Clone()
		if r.Header.Get("Content-Type") == "application/grpc" {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			w.Header().Set("Grpc-Status", "5")
		}
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	for _, n := range []uint16{8080, 8081} {
		go (&http.Server{Protocols: protocols, Handler: handler}).Serve(o.server.listen(n))
	}
	go repeat(o.server.listen(6379), "db")
	o.client = w.pod("client", "client")
	for _, p := range []*pod{o.client, o.server} {
		app := p.spec.ServiceAccount
		p.metadata = map[string]any{contract.MetadataRelay: "true"}
		p.stats = []string{`cluster\.outbound\|4317.*\.upstream_rq_.*`}
		p.env = []string{"OTEL_RESOURCE_ATTRIBUTES=service.name=" + app + "." + namespace}
		p.proxied()
	}
	return o
}

// lines returns the complete lines of a pod's access log.
func (p *pod) lines() []string {
	p.world.t.Helper()
	raw, err := os.ReadFile(filepath.Join(p.dir, "access"))
	if err != nil {
		p.world.t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	return lines[:len(lines)-1]
}

// scraped returns the metrics with Istio's names that the pod's agent serves, without buckets and sums.
func (p *pod) scraped(own status.Workload) []string {
	t := p.world.t
	t.Helper()
	envoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := p.admin.Get(r.Context(), "/stats/prometheus", "")
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
		}
		w.Write(raw)
	}))
	defer envoy.Close()
	s, err := status.Listen(status.Options{
		Board: readiness.New(readiness.Options{}), Journal: status.NewJournal(status.JournalOptions{}), Ports: []uint16{0}, Envoy: envoy.URL, Workload: own,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go s.Serve(ctx)
	r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/stats/prometheus", s.Addresses()[0].(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(body)) {
		name, _, _ := strings.Cut(line, "{")
		if strings.HasPrefix(name, "istio_") && !strings.HasPrefix(name, "istio_agent_") && !strings.HasSuffix(name, "_bucket") && !strings.HasSuffix(name, "_sum") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	return out
}

const traceparent = "Traceparent"

// call makes a request as the client's application, with the headers of a trace unless trace is empty.
func (o *observed) call(t *testing.T, url, trace string, grpc bool) {
	t.Helper()
	r, err := http.NewRequest("POST", url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Cookie", "session=secret")
	if trace != "" {
		r.Header.Set(traceparent, "00-"+trace+"-00f067aa0ba902b7-01")
	}
	transport := &http.Transport{DialContext: o.client.dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!grpc)
	transport.Protocols.SetUnencryptedHTTP2(grpc)
	if grpc {
		r.Header.Set("Content-Type", "application/grpc")
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: process.Patience}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 {
		t.Fatalf("%s: %s %v", url, response.Status, err)
	}
}

// continued fails the test unless the spans of both proxies belong to the trace that the application began.
func (o *observed) continued(t *testing.T, trace string, seen http.Header) {
	t.Helper()
	var spans []span
	o.eventually(t, "two spans of "+trace, func() bool { spans = o.collector.of(trace); return len(spans) >= 2 })
	type hop struct {
		Service, Parent string
		Kind            otlp.Span_SpanKind
	}
	var got []hop
	for _, s := range spans {
		got = append(got, hop{s.service, hex.EncodeToString(s.ParentSpanId), s.Kind})
		for _, a := range s.Attributes {
			if a.Key == "http.url" && !strings.HasSuffix(a.Value.GetStringValue(), "/hello") || strings.Contains(a.String(), "secret") {
				t.Errorf("attribute %v", a)
			}
		}
	}
	want := []hop{
		{"client.shop", "00f067aa0ba902b7", otlp.Span_SPAN_KIND_CLIENT},
		{"server.shop", hex.EncodeToString(spans[0].SpanId), otlp.Span_SPAN_KIND_SERVER},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if want := "00-" + trace + "-" + hex.EncodeToString(spans[1].SpanId) + "-01"; seen.Get(traceparent) != want {
		t.Errorf("the application got %q, want %q", seen.Get(traceparent), want)
	}
}

// Each proxy logs, counts and traces a request exactly once, for all kinds of requests.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	settings, err := telemetry.Mesh{AccessLogFile: "/dev/stdout", AccessLogEncoding: "JSON"}.Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	settings.Metrics = true
	settings.Tracing = telemetry.Tracing{Host: "otel.shop.svc.cluster.local", Port: 4317, Sampling: 0}
	o := newObserved(t, settings)
	const plain, routed, rpc = "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737", "4bf92f3577b34da6a3ce929d0e0e4738"
	o.call(t, "http://10.96.0.1:8080/hello?token=secret", plain, false)
	seen := <-o.seen
	o.call(t, "http://10.96.0.5:8080/hello?token=secret", routed, false)
	seenRouted := <-o.seen
	o.call(t, "http://10.96.0.1:8081/hello", rpc, true)
	seenRPC := <-o.seen
	o.call(t, "http://10.96.0.1:8080/hello", "", false) // not sampled
	<-o.seen
	if got := o.client.send("10.96.0.2:6379", "x"); got != "db x" {
		t.Fatal(got)
	}
	t.Run("logs", func(t *testing.T) {
		type line struct {
			Method, Path, Protocol string
			Code                   float64 `json:"response_code"`
			Flags                  string  `json:"response_flags"`
			Cluster                string  `json:"upstream_cluster"`
		}
		for _, p := range []*pod{o.client, o.server} {
			to := func(service string) string { return "outbound|" + service + ".shop.svc.cluster.local" }
			want := []line{
				{"POST", "/hello", "HTTP/1.1", 200, "-", to("8080||web")},
				{"POST", "/hello", "HTTP/1.1", 200, "-", to("8080||web")},
				{"POST", "/hello", "HTTP/2", 200, "-", to("8081||web")},
				{"POST", "/hello", "HTTP/1.1", 200, "-", to("8080||web")},
				{"", "", "", 0, "-", to("6379||db")},
			}
			if p == o.server {
				for i := range want {
					want[i].Cluster = "InboundPassthroughCluster"
				}
			}
			inOrder := func(all []line) []line { // sorts the lines, because Envoy's threads write them in any order
				slices.SortFunc(all, func(a, b line) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
				return all
			}
			process.EventuallyEqual(t, p.name, inOrder(want), func() (got []line) {
				for _, text := range p.lines() {
					var l line
					if err := json.Unmarshal([]byte(text), &l); err != nil {
						t.Errorf("%v: %s", err, text)
					}
					if got = append(got, l); strings.Contains(text, "secret") {
						t.Errorf("%s: %s", p.name, text)
					}
				}
				return inOrder(got)
			}, o.envoys...)
		}
	})
	t.Run("spans", func(t *testing.T) {
		o.continued(t, plain, seen)
		o.continued(t, routed, seenRouted)
		o.continued(t, rpc, seenRPC)
		o.collector.mu.Lock()
		defer o.collector.mu.Unlock()
		if len(o.collector.spans) != 6 {
			t.Errorf("%d spans: want two for each of three requests", len(o.collector.spans))
		}
	})
	t.Run("metrics", func(t *testing.T) { o.metrics(t) })
}

// metrics compares the metrics of both proxies, with all labels.
func (o *observed) metrics(t *testing.T) {
	workload := func(name, revision string) status.Workload {
		return status.Workload{
			Workload:  telemetry.Workload{Name: name, Namespace: namespace, CanonicalName: name, CanonicalRevision: revision, Cluster: "Kubernetes"},
			Principal: "spiffe://cluster.local/ns/shop/sa/" + name,
		}
	}
	side := func(side, name, revision string) string {
		cluster := "Kubernetes"
		return fmt.Sprintf(`%[1]s_workload="%[2]s",%[1]s_canonical_service="%[2]s",%[1]s_canonical_revision="%[3]s",%[1]s_workload_namespace="shop",`+
			`%[1]s_principal="spiffe://cluster.local/ns/shop/sa/%[2]s",%[1]s_app="%[2]s",%[1]s_version="%[3]s",%[1]s_cluster="%[4]s"`, side, name, revision, cluster)
	}
	for _, p := range []*pod{o.client, o.server} {
		own, reporter, security, client := workload("client", "latest"), "source", "unknown", "latest"
		if p == o.server {
			own, reporter, security, client = workload("server", "latest"), "destination", "mutual_tls", "unknown"
		}
		common := `reporter="` + reporter + `",` + side("source", "client", client) + "," + side("destination", "server", "latest")
		labels := func(service, rest string) string {
			return "{" + common + fmt.Sprintf(`,destination_service="%[1]s.shop.svc.cluster.local",destination_service_name="%[1]s",destination_service_namespace="shop",`, service) +
				rest + fmt.Sprintf(`,response_flags="-",connection_security_policy="%s"} `, security)
		}
		// If two services have the same port of a pod, the server's proxy counts the port's requests for the service
		// whose name sorts first.
		first := map[bool]string{true: "routed", false: "web"}[p == o.server]
		http := labels(first, `request_protocol="http",response_code="200",grpc_response_status=""`) + "3"
		rpc := labels("web", `request_protocol="grpc",response_code="200",grpc_response_status="5"`) + "1"
		db := labels("db", `request_protocol="tcp"`)
		want := []string{
			"istio_request_duration_milliseconds_count" + http, "istio_request_duration_milliseconds_count" + rpc,
			"istio_requests_total" + http, "istio_requests_total" + rpc,
			"istio_tcp_connections_closed_total" + db + "1", "istio_tcp_connections_opened_total" + db + "1",
			"istio_tcp_received_bytes_total" + db + "2", "istio_tcp_sent_bytes_total" + db + "5",
		}
		slices.Sort(want)
		process.EventuallyEqual(t, p.name, want, func() []string { return p.scraped(own) }, o.envoys...) // retry, because Envoy merges histograms later
	}
}

// The access log can have Istio's text format, and spans can be exported over HTTP too.
func TestTelemetryAsText(t *testing.T) {
	t.Parallel()
	settings, err := telemetry.Mesh{AccessLogFile: "/dev/stdout"}.Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	settings.Tracing = telemetry.Tracing{Host: "otel.shop", Port: 4318, Path: "/v1/traces", Sampling: 0}
	o := newObserved(t, settings)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4739"
	o.call(t, "http://10.96.0.1:8080/hello?token=secret", trace, false)
	o.continued(t, trace, <-o.seen)
	for p, want := range map[*pod]string{ // any order: each log is compared alone
		o.client: `] "POST /hello HTTP/1.1" 200 - via_upstream - "-" 4 0 `,
		o.server: `] "POST /hello HTTP/1.1" 200 - via_upstream - "-" 4 0 `,
	} {
		var got []string
		o.eventually(t, "a line of "+p.name, func() bool { got = p.lines(); return len(got) > 0 })
		if len(got) != 1 || !strings.HasPrefix(got[0], "[") || !strings.Contains(got[0], want) || strings.Contains(got[0], "secret") {
			t.Errorf("%s: %q, want %q in one line", p.name, got, want)
		}
	}
}
