package status

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/agent/readiness"
)

// shows starts a server that serves a text as metrics.
func shows(t *testing.T, code int, text string) (url string, target Target) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/plain;version=0.0.4" {
			code = http.StatusNotAcceptable
		}
		w.WriteHeader(code)
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	n, _ := strconv.ParseUint(port, 10, 16)
	return s.URL, Target{uint16(n), "/metrics"}
}

func TestMetricsAreMergedInOrder(t *testing.T) {
	envoy, _ := shows(t, 200, "envoy_x 1\nlast_without_end 2")
	_, first := shows(t, 200, "app_a 1\r\n# EOF\n")
	_, failing := shows(t, 500, "secret 1\n")
	_, second := shows(t, 200, "app_b 1\n")
	r := start(t, func(o *Options) {
		o.Envoy, o.App = envoy, []Target{first, failing, {1, "/missing"}, second}
		o.Metrics = []Metric{{Name: "outrider_agent_envoy_restarts_total", Help: "Envoys started again.", Counter: true, Value: func() float64 { return 3 }}}
	})
	r.board.Set(readiness.Envoy, true, "")
	call(t, "GET", r.url+"/metrics")
	code, body, header := call(t, "GET", r.url+"/stats/prometheus")
	if code != 200 || header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("%d %v", code, header)
	}
	at := -1
	for _, want := range []string{
		"# HELP outrider_agent_ready 1 if", "# TYPE outrider_agent_ready gauge\n", "outrider_agent_ready{level=\"outbound\"} 1\n", "outrider_agent_ready{level=\"full\"} 0\n",
		"istio_agent_scrapes_total 2\n", "istio_agent_scrape_failures_total{type=\"application\"} 2\n",
		"\noutrider_agent_startup_duration_seconds ", "\nistio_agent_startup_duration_seconds ", "# TYPE outrider_agent_envoy_restarts_total counter\noutrider_agent_envoy_restarts_total 3\n",
		"envoy_x 1\n", "last_without_end 2\n", "app_a 1\n", "app_b 1\n",
	} {
		i := strings.Index(body, want)
		if i <= at {
			t.Errorf("%q is not there, or not in its place:\n%s", want, body)
		}
		at = max(at, i)
	}
	if strings.Contains(body, "secret") || strings.Contains(body, "EOF") || strings.Count(body, "# TYPE outrider_agent_ready ") != 1 {
		t.Errorf("%s", body)
	}
	for _, path := range []string{"/metrics", "/metrics/agent"} {
		if code, body, _ := call(t, "HEAD", r.url+path); code != 200 || body != "" {
			t.Errorf("HEAD %s: %d %s", path, code, body)
		}
	}
	code, body, _ = call(t, "GET", r.url+"/metrics/agent")
	if code != 200 || !strings.Contains(body, "\noutrider_agent_envoy_restarts_total 3\n") || !strings.Contains(body, "\nistio_agent_scrapes_total 2\n") ||
		strings.Contains(body, "\nenvoy_x ") || strings.Contains(body, "\napp_a ") {
		t.Errorf("the agent's metrics alone: %d\n%s", code, body)
	}
}

// An Envoy that hangs still accepts connections, but must not delay a scrape.
func TestAnEnvoyThatHangsDelaysNoScrape(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, app := shows(t, 200, "app_a 1\n")
	var log bytes.Buffer
	r := start(t, func(o *Options) {
		o.Envoy, o.App, o.Log = "http://"+silent.Addr().String()+"/stats", []Target{app}, slog.New(slog.NewTextHandler(&log, nil))
	})
	_, body, _ := call(t, "GET", r.url+"/metrics")
	if !strings.Contains(body, "outrider_agent_ready{") || !strings.Contains(body, "app_a 1\n") {
		t.Errorf("%s", body)
	}
	if !strings.Contains(log.String(), "/stats: no answer within 1s") {
		t.Errorf("the log:\n%s", &log)
	}
	if _, body, _ := call(t, "GET", r.url+"/metrics"); !strings.Contains(body, `istio_agent_scrape_failures_total{type="envoy"} 1`) {
		t.Errorf("%s", body)
	}
}

func TestLinesAreCopiedWhole(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		in    io.Reader
		limit int
		want  string
		err   bool
	}{
		"all":                         {strings.NewReader("a 1\nb 2\n"), 100, "a 1\nb 2\n", false},
		"without a last end":          {strings.NewReader("a 1\nb 2"), 100, "a 1\nb 2\n", false},
		"cut off":                     {io.MultiReader(strings.NewReader("a 1\nb 2"), iotest.ErrReader(broken)), 100, "a 1\n", true},
		"too much":                    {strings.NewReader("a 1\nb 2\n"), 7, "a 1\n", true},
		"a line longer than any is":   {strings.NewReader("a 1\n" + strings.Repeat("b", lineSize+1) + "\n"), 1 << 30, "a 1\n", true},
		"the end mark of OpenMetrics": {strings.NewReader("a 1\n# EOF\n"), 100, "a 1\n", false},
		"nothing":                     {strings.NewReader(""), 100, "", false},
	} {
		var out bytes.Buffer
		err := copyLines(&out, tt.in, tt.limit, func(line []byte) []byte { return line })
		if out.String() != tt.want || (err != nil) != tt.err {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
}

func TestTargetsAreRead(t *testing.T) {
	for in, want := range map[string][]Target{
		``:                                 nil,
		`{}`:                               nil,
		`{"scrape": "false", "port": "1"}`: nil,
		`{"scrape": "true", "port": "8080", "path": "m"}`: {{8080, "/m"}},
		`{"port": "8080, 8081"}`:                          {{8080, "/metrics"}, {8081, "/metrics"}},
		`{"targets": [{"port": "80", "path": "/a"}, {"port": "81"}, {"port": "80", "path": "b"}]}`: {{80, "/a"}, {81, "/metrics"}, {80, "/b"}},
		`{"scrape": "false", "targets": [{"port": "80"}]}`:                                         nil,
	} {
		got, err := ParseTargets(in)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", in, err, diff)
		}
	}
	for in, want := range map[string]string{
		`x`:                              "JSON object",
		`{"port": "http"}`:               `"http" is no port`,
		`{"port": "0"}`:                  `"0" is no port`,
		`{"port": "15020"}`:              "a port of the mesh",
		`{"port": "15090"}`:              "a port of the mesh",
		`{"port": "9999"}`:               "a port of the mesh",
		`{"port": "80", "path": "/%zz"}`: "prometheus.io/path",
		`{"targets": [{"port": "81"}, {"port": "15001"}]}`: "15001 is a port of the mesh",
		`{"targets": [{"path": "/a"}]}`:                    `"" is no port`,
	} {
		if _, err := ParseTargets(in, 9999); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}
