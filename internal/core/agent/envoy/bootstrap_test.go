package envoy

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// pod returns the options of a proxy in a pod, as the agent sets them.
func pod() Options {
	return Options{
		Node:  Node{ID: "sidecar~10.0.0.7~app-1.shop~shop.svc.cluster.local", Metadata: map[string]any{"NAMESPACE": "shop", "PORTS": []any{8080, 9090}}},
		Relay: "ads.sock", Secrets: "sds.sock",
	}
}

// host returns options for a bare host, with every option set.
func host() Options {
	return Options{
		Node:  Node{ID: "host~vm-1", Cluster: "vm"},
		Relay: "ads.sock", Secrets: "sds.sock",
		Admin:  Endpoint{Socket: "admin.sock"},
		Family: Dual, Prometheus: 25090,
		Stats:       Stats{Prefixes: []string{"http."}, Suffixes: []string{"_total"}, Regexps: []string{`^vhost\..*\.upstream_rq$`}},
		Log:         Log{Level: "error", Components: map[string]string{"upstream": "debug", "config": "error"}},
		Concurrency: 4, DrainTime: 7 * time.Second,
		Extra: json.RawMessage(`{"static_resources": {"clusters": [
			{"name": "xds-grpc", "connect_timeout": "9s"},
			{"name": "mine", "type": "STATIC", "connect_timeout": "1s", "load_assignment": {"cluster_name": "mine"}}]},
			"stats_flush_interval": "10s"}`),
	}
}

func plain() Options {
	return Options{
		Node: Node{ID: "n"}, Relay: "ads.sock",
		Admin: Endpoint{Port: 25000}, Family: IPv6, NoPrometheus: true,
	}
}

func TestBootstrapEqualsTheGoldenFile(t *testing.T) {
	for name, o := range map[string]Options{"pod": pod(), "host": host(), "plain": plain()} {
		t.Run(name, func(t *testing.T) {
			raw, err := o.Bootstrap()
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, raw, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteString("\n")
			args := strings.Join(o.Args("envoy.json"), "\n") + "\n"
			golden(t, name+".json", got.String())
			golden(t, name+".args", args)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
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
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", file, diff)
	}
}

func TestCheckNamesTheFieldAndWhatWouldBeRight(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		field  string
	}{
		"a node with a line feed": {func(o *Options) { o.Node.ID = "a\nb" }, "Node.ID"},
		"extra that is a list":    {func(o *Options) { o.Extra = json.RawMessage(`[]`) }, "Extra"},
		"extra that is null":      {func(o *Options) { o.Extra = json.RawMessage(`null`) }, "Extra"},
		"two extras":              {func(o *Options) { o.Extra = json.RawMessage(`{} {}`) }, "Extra"},
		"extra that moves admin":  {func(o *Options) { o.Extra = json.RawMessage(`{"admin":{"address":null}}`) }, "Extra"},
		"extra with a log format": {func(o *Options) { o.Extra = json.RawMessage(`{"applicationLogConfig":{"log_format":{}}}`) }, "Extra"},
		"extra in camelCase":      {func(o *Options) { o.Extra = json.RawMessage(`{"staticResources":{}}`) }, "Extra"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := pod()
			tt.change(&o)
			err := o.Check()
			var field *FieldError
			if !errors.As(err, &field) || field.Field != tt.field || field.Want == "" {
				t.Errorf("Check: %v; want an error of %s", err, tt.field)
			}
			if _, err := o.Bootstrap(); err == nil {
				t.Error("Bootstrap returned no error")
			}
		})
	}
}

func TestMerge(t *testing.T) {
	tests := map[string]struct{ base, extra, want string }{
		"objects by key":            {`{"a":{"b":1}}`, `{"a":{"c":2}}`, `{"a":{"b":1,"c":2}}`},
		"lists grow":                {`{"a":[1]}`, `{"a":[1,2]}`, `{"a":[1,1,2]}`},
		"entries of one name merge": {`{"a":[{"b":1,"name":"x"}]}`, `{"a":[{"name":"x","c":2},{"name":"y"}]}`, `{"a":[{"b":1,"c":2,"name":"x"},{"name":"y"}]}`},
		"null removes":              {`{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		"another kind replaces":     {`{"a":{"b":1}}`, `{"a":[1]}`, `{"a":[1]}`},
		"large numbers stay":        {`{"a":1}`, `{"a":18446744073709551615}`, `{"a":18446744073709551615}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			base, err1 := decodeObject([]byte(tt.base))
			extra, err2 := decodeObject([]byte(tt.extra))
			got, err3 := Merge(base, extra)
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			raw, _ := json.Marshal(got)
			if diff := cmp.Diff(tt.want, string(raw)); diff != "" {
				t.Errorf("Merge (-want +got):\n%s", diff)
			}
			if again, _ := json.Marshal(base); string(again) != tt.base {
				t.Errorf("Merge changed its input to %s", again)
			}
		})
	}
}

func TestConfigIsAlwaysLoggedAtInfo(t *testing.T) {
	for want, l := range map[string]Log{
		"config:info":             {Level: "warning"},
		"config:debug":            {Level: "debug"},
		"config:trace":            {Level: "off", Components: map[string]string{"config": "trace"}},
		"config:info,http:error":  {Level: "info", Components: map[string]string{"http": "error"}},
		"config:info,conn:trace ": {Level: "error", Components: map[string]string{"config": "off", "conn": "trace"}},
	} {
		if got := componentLevels(l); got != strings.TrimSpace(want) {
			t.Errorf("componentLevels(%v) = %q, want %q", l, got, want)
		}
	}
}

func FuzzBootstrap(f *testing.F) {
	f.Add("n", "c", "ads.sock", "sds.sock", uint8(0), "http.", "key", "value", `{"a":[1]}`)
	f.Add("n\x00", "", ".", "", uint8(2), "", "", "\xff", `{"static_resources":{"clusters":[{"name":"xds-grpc"}]}}`)
	f.Fuzz(func(t *testing.T, id, cluster, relay, secrets string, family uint8, prefix, key, value, extra string) {
		o := Options{
			Node:  Node{ID: id, Cluster: cluster, Metadata: map[string]any{key: value}},
			Relay: relay, Secrets: secrets,
			Family: Family(family % 3),
			Stats:  Stats{Prefixes: []string{prefix}},
			Extra:  json.RawMessage(extra),
		}
		raw, err := o.Bootstrap()
		if checked := o.Check(); (checked == nil) != (err == nil) {
			t.Fatalf("Check: %v, Bootstrap: %v", checked, err)
		}
		if err != nil {
			return
		}
		all, err := decodeObject(raw)
		if err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		if got := at(all, []string{"node", "id"}); got != id {
			t.Fatalf("node.id is %q, want %q", got, id)
		}
	})
}
