package telemetry

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parse(text string, sampling *float64) (Settings, error) {
	var m Mesh
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return Settings{}, err
	}
	return m.Settings(sampling)
}

const otel = `"extensionProviders": [{"name": "zip", "zipkin": {}}, {"name": "otel", "opentelemetry": {"service": "ns/otel.obs.svc.cluster.local", "port": 4317}}]`

func TestSettings(t *testing.T) {
	tests := map[string]struct {
		mesh     string
		sampling float64 // 0 if not set
		want     Settings
	}{
		"nothing is off":                  {mesh: `{}`},
		"a format without a file is off":  {mesh: `{"accessLogFormat": "%PROTOCOL%", "accessLogEncoding": "JSON"}`},
		"Istio's text":                    {mesh: `{"accessLogFile": "/dev/stdout"}`, want: Settings{AccessLog: AccessLog{Text: defaultText}}},
		"Istio's names":                   {mesh: `{"accessLogFile": "/dev/stdout", "accessLogEncoding": "JSON"}`, want: Settings{AccessLog: AccessLog{JSON: defaultJSON()}}},
		"an own text gets a line's end":   {mesh: `{"accessLogFile": "/dev/stdout", "accessLogFormat": "%REQ(A?:PATH):9% 100%%"}`, want: Settings{AccessLog: AccessLog{Text: "%REQ(A?:PATH):9% 100%%\n"}}},
		"an own object":                   {mesh: `{"accessLogFile": "/dev/stdout", "accessLogEncoding": "JSON", "accessLogFormat": "{\"a\": {\"b\": \"%PROTOCOL%\"}}"}`, want: Settings{AccessLog: AccessLog{JSON: map[string]any{"a": map[string]any{"b": "%PROTOCOL%"}}}}},
		"a provider that is not named":    {mesh: `{` + otel + `}`},
		"a collector, 1 % by default":     {mesh: `{` + otel + `, "defaultProviders": {"tracing": ["otel"]}}`, want: Settings{Tracing: Tracing{Host: "otel.obs.svc.cluster.local", Port: 4317, Sampling: 1}}},
		"a collector with its percentage": {mesh: `{` + otel + `, "defaultProviders": {"tracing": ["otel"]}}`, sampling: 12.5, want: Settings{Tracing: Tracing{Host: "otel.obs.svc.cluster.local", Port: 4317, Sampling: 12.5}}},
		"OTLP over HTTP":                  {mesh: `{"extensionProviders": [{"name": "a", "opentelemetry": {"service": "10.0.0.1", "port": 4318, "http": {}}}], "defaultProviders": {"tracing": ["a"]}}`, want: Settings{Tracing: Tracing{Host: "10.0.0.1", Port: 4318, Path: "/v1/traces", Sampling: 1}}},
		"metrics":                         {mesh: `{"defaultProviders": {"metrics": ["prometheus"]}}`, want: Settings{Metrics: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var sampling *float64
			if tt.sampling != 0 {
				sampling = &tt.sampling
			}
			got, err := parse(tt.mesh, sampling)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	format := func(f string) string {
		text, _ := json.Marshal(map[string]string{"accessLogFile": "/dev/stdout", "accessLogFormat": f})
		return string(text)
	}
	for in, want := range map[string]string{
		`{"accessLogFile": "/var/log/a"}`:                              `accessLogFile: "/var/log/a": want /dev/stdout`,
		`{"accessLogFile": "/dev/stdout", "accessLogEncoding": "XML"}`: `accessLogEncoding: "XML": want TEXT or JSON`,
		format("a %"):            `accessLogFormat: "%": want an operator`,
		format("%NO_SUCH%"):      `accessLogFormat: %NO_SUCH%: not an operator`,
		format("%PROTOCOL(x)%"):  `accessLogFormat: %PROTOCOL(x)%: it takes no argument`,
		format("%REQ%"):          `accessLogFormat: %REQ%: want an argument`,
		format("%START_TIME:3%"): `accessLogFormat: %START_TIME:3%: only a header`,
		format("%PATH(XX)%"):     `accessLogFormat: %PATH(XX)%: want an argument of the form`,
		`{"accessLogFile": "/dev/stdout", "accessLogEncoding": "JSON", "accessLogFormat": "[]"}`:                                                               `accessLogFormat: want an object in JSON`,
		`{"accessLogFile": "/dev/stdout", "accessLogEncoding": "JSON", "accessLogFormat": "{\"a\": 1}"}`:                                                       `accessLogFormat: "a": want a format`,
		`{"accessLogFile": "/dev/stdout", "accessLogEncoding": "JSON", "accessLogFormat": "{\"a\": \"%X%\"}"}`:                                                 `accessLogFormat: "a": %X%: not an operator`,
		`{"defaultProviders": {"tracing": ["a"]}}`:                                                                                                             `defaultProviders.tracing: "a": want the name`,
		`{"defaultProviders": {"tracing": ["a", "b"]}}`:                                                                                                        `defaultProviders.tracing: want one name`,
		`{"defaultProviders": {"metrics": ["stackdriver"]}}`:                                                                                                   `defaultProviders.metrics[0]: "stackdriver": want prometheus`,
		`{` + otel + `, "defaultProviders": {"tracing": ["zip"]}}`:                                                                                             `extensionProviders[0]: "zip": want opentelemetry`,
		`{"extensionProviders": [{"name": "a", "opentelemetry": {"service": "a b", "port": 1}}], "defaultProviders": {"tracing": ["a"]}}`:                      `extensionProviders[0].opentelemetry.service: "a b": want the host`,
		`{"extensionProviders": [{"name": "a", "opentelemetry": {"service": "a"}}], "defaultProviders": {"tracing": ["a"]}}`:                                   `extensionProviders[0].opentelemetry.port: 0: want a port`,
		`{"extensionProviders": [{"name": "a", "opentelemetry": {"service": "a", "port": 1, "http": {"path": "x"}}}], "defaultProviders": {"tracing": ["a"]}}`: `extensionProviders[0].opentelemetry.http.path: "x": want a path`,
	} { // any order: independent
		if s, err := parse(in, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %s", in, s, err, want)
		}
	}
	if _, err := parse(`{`+otel+`, "defaultProviders": {"tracing": ["otel"]}}`, new(100.5)); err == nil || !strings.Contains(err.Error(), "defaultConfig.tracing.sampling: 100.5: want a percentage") {
		t.Error(err)
	}
}

// [Mesh.Over] replaces only the fields that the receiver sets.
func TestOver(t *testing.T) {
	base := Mesh{AccessLogFile: "/dev/stdout", AccessLogEncoding: "JSON"}
	over := Mesh{AccessLogEncoding: "TEXT", Providers: []Provider{{Name: "a"}}}
	over.Defaults.Metrics = []string{}
	want := Mesh{AccessLogFile: "/dev/stdout", AccessLogEncoding: "TEXT", Providers: []Provider{{Name: "a"}}}
	want.Defaults.Metrics = []string{}
	if diff := cmp.Diff(want, over.Over(base)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzFormat(f *testing.F) {
	for _, s := range []string{defaultText, "%%", "%REQ(A?B):1%", "%START_TIME(%s.%3f)%", "%PATH(NQ:ORIG)%%", "%(", "%GRPC_STATUS(NUMBER)%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if checkFormat(s) == nil && strings.Count(s, "%")%2 != 0 && !strings.Contains(s, "START_TIME") {
			t.Errorf("%q is accepted: an odd number of %%", s)
		}
	})
}

func TestWorkloadsAndServicesAreRead(t *testing.T) {
	w := Workload{"web", "shop", "web", "v1", "c"}
	if got := ParseWorkload(w.String()); got != w {
		t.Errorf("%+v", got)
	}
	s := Service{"web", "shop", "web.shop.svc.cluster.local"}
	if got := ParseService(s.String()); got != s {
		t.Errorf("%+v", got)
	}
	if got := (ParseWorkload("a;b")); got != (Workload{Name: "a", Namespace: "b"}) {
		t.Errorf("%+v", got)
	}
	if got := ParseWorkload(Workload{Name: "a;b"}.String()); got.Name != "a_b" {
		t.Errorf("%+v", got)
	}
}
