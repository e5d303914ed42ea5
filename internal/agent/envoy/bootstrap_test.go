package envoy

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// pod is a proxy in a pod, as the agent will start it.
func pod() Options {
	return Options{
		Node: Node{ID: "sidecar~10.0.0.7~app-1.shop~shop.svc.cluster.local", Zone: "eu-1b", Region: "eu-1",
			Metadata: map[string]any{"NAMESPACE": "shop", "PORTS": []any{8080, 9090}}},
		ControlPlane: ControlPlane{
			Addresses: []string{"outriderd.outrider-system.svc:15012"},
			Identity:  []string{"spiffe://cluster.local/ns/outrider-system/sa/outriderd"},
			Secrets:   "sds.sock",
		},
	}
}

// host is a bare host: everything set.
func host() Options {
	return Options{
		Node: Node{ID: "host~vm-1", Cluster: "vm", SubZone: "rack-4"},
		ControlPlane: ControlPlane{
			Addresses: []string{"10.0.0.1:15012", "[fd00::1]:15012"}, SNI: "outriderd.example", Secrets: "sds.sock",
			Identity: []string{"outriderd.example", "spiffe://example/cp"}, ConnectTimeout: 250 * time.Millisecond, KeepAlive: 1500 * time.Millisecond,
		},
		Admin:  Endpoint{Socket: "admin.sock"},
		Family: Dual, Prometheus: 25090,
		Stats:       Stats{Prefixes: []string{"http."}, Suffixes: []string{"_total"}, Regexps: []string{`^vhost\..*\.upstream_rq$`}},
		Log:         Log{Level: "error", Components: map[string]string{"upstream": "debug", "config": "error"}},
		Limits:      Limits{Heap: 256 << 20, Connections: 5000},
		Concurrency: 4, DrainTime: 7 * time.Second,
		Runtime: map[string]any{"re2.max_program_size.error_level": 500, "outrider.test": true},
		Extra: json.RawMessage(`{"static_resources": {"clusters": [
			{"name": "xds-grpc", "connect_timeout": "9s"},
			{"name": "mine", "type": "STATIC", "connect_timeout": "1s", "load_assignment": {"cluster_name": "mine"}}]},
			"stats_flush_interval": "10s"}`),
	}
}

func plain() Options {
	return Options{
		Node:         Node{ID: "n"},
		ControlPlane: ControlPlane{Addresses: []string{"[::1]:15010"}, Plaintext: true},
		Admin:        Endpoint{Port: 25000}, Family: IPv6, NoPrometheus: true, Stats: Stats{All: true},
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
		"no node":                        {func(o *Options) { o.Node.ID = "" }, "Node.ID"},
		"a node with a line feed":        {func(o *Options) { o.Node.ID = "a\nb" }, "Node.ID"},
		"metadata that is no JSON":       {func(o *Options) { o.Node.Metadata = map[string]any{"x": math.NaN()} }, "Node.Metadata"},
		"no control plane":               {func(o *Options) { o.ControlPlane.Addresses = nil }, "ControlPlane.Addresses"},
		"an address without port":        {func(o *Options) { o.ControlPlane.Addresses = []string{"x"} }, "ControlPlane.Addresses"},
		"port 0":                         {func(o *Options) { o.ControlPlane.Addresses = []string{"x:0"} }, "ControlPlane.Addresses"},
		"a host with a slash":            {func(o *Options) { o.ControlPlane.Addresses = []string{"http://x:1"} }, "ControlPlane.Addresses"},
		"no server of secrets":           {func(o *Options) { o.ControlPlane.Secrets = "" }, "ControlPlane.Secrets"},
		"secrets at a path too long":     {func(o *Options) { o.ControlPlane.Secrets = strings.Repeat("x", 108) }, "ControlPlane.Secrets"},
		"no identity to check":           {func(o *Options) { o.ControlPlane = ControlPlane{Addresses: []string{"10.0.0.1:1"}, Secrets: "s"} }, "ControlPlane.Identity"},
		"plaintext with an identity":     {func(o *Options) { o.ControlPlane.Plaintext = true }, "ControlPlane.Plaintext"},
		"a timeout in the past":          {func(o *Options) { o.ControlPlane.ConnectTimeout = -1 }, "ControlPlane.ConnectTimeout"},
		"a ping without pause":           {func(o *Options) { o.ControlPlane.KeepAlive = 1 }, "ControlPlane.KeepAlive"},
		"admin on the inbound port":      {func(o *Options) { o.Admin.Port = 15006 }, "Admin.Port"},
		"admin on port and socket":       {func(o *Options) { o.Admin = Endpoint{Port: 1, Socket: "x"} }, "Admin"},
		"a socket path that is too long": {func(o *Options) { o.Admin.Socket = strings.Repeat("x", 108) }, "Admin.Socket"},
		"an abstract socket":             {func(o *Options) { o.Admin.Socket = "@x" }, "Admin.Socket"},
		"metrics on the admin's port":    {func(o *Options) { o.Prometheus = 15000 }, "Prometheus"},
		"metrics on the agent's port":    {func(o *Options) { o.Prometheus = 15020 }, "Prometheus"},
		"no such family":                 {func(o *Options) { o.Family = 9 }, "Family"},
		"everything and more":            {func(o *Options) { o.Stats = Stats{All: true, Prefixes: []string{"x"}} }, "Stats.All"},
		"an empty prefix is everything":  {func(o *Options) { o.Stats.Prefixes = []string{""} }, "Stats.Prefixes"},
		"a regexp that is none":          {func(o *Options) { o.Stats.Regexps = []string{"("} }, "Stats.Regexps"},
		"no such level":                  {func(o *Options) { o.Log.Level = "loud" }, "Log.Level"},
		"a component's level":            {func(o *Options) { o.Log.Components = map[string]string{"http": ""} }, "Log.Components"},
		"a component with a comma":       {func(o *Options) { o.Log.Components = map[string]string{"a,b": "info"} }, "Log.Components"},
		"threads below one":              {func(o *Options) { o.Concurrency = -1 }, "Concurrency"},
		"half a second of drain":         {func(o *Options) { o.DrainTime = time.Second / 2 }, "DrainTime"},
		"a runtime flag of a list":       {func(o *Options) { o.Runtime = map[string]any{"x": []int{1}} }, "Runtime"},
		"extra that is a list":           {func(o *Options) { o.Extra = json.RawMessage(`[]`) }, "Extra"},
		"two extras":                     {func(o *Options) { o.Extra = json.RawMessage(`{} {}`) }, "Extra"},
		"extra that moves admin":         {func(o *Options) { o.Extra = json.RawMessage(`{"admin":{"address":null}}`) }, "Extra"},
		"extra with a log format":        {func(o *Options) { o.Extra = json.RawMessage(`{"applicationLogConfig":{"log_format":{}}}`) }, "Extra"},
		"extra in camelCase":             {func(o *Options) { o.Extra = json.RawMessage(`{"staticResources":{}}`) }, "Extra"},
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
				t.Error("Bootstrap wrote it all the same")
			}
		})
	}
}

func TestMerge(t *testing.T) {
	tests := map[string]struct{ base, extra, want string }{
		"objects by key":           {`{"a":{"b":1}}`, `{"a":{"c":2}}`, `{"a":{"b":1,"c":2}}`},
		"lists grow":               {`{"a":[1]}`, `{"a":[1,2]}`, `{"a":[1,1,2]}`},
		"entries of one name meet": {`{"a":[{"b":1,"name":"x"}]}`, `{"a":[{"name":"x","c":2},{"name":"y"}]}`, `{"a":[{"b":1,"c":2,"name":"x"},{"name":"y"}]}`},
		"null removes":             {`{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		"another kind replaces":    {`{"a":{"b":1}}`, `{"a":[1]}`, `{"a":[1]}`},
		"large numbers stay":       {`{"a":1}`, `{"a":18446744073709551615}`, `{"a":18446744073709551615}`},
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
	f.Add("n", "c", "cp.example:15012", "id", "sds.sock", "", uint16(0), uint8(0), "http.", "a.*", "key", "value", int64(0), `{"a":[1]}`)
	f.Add("n\x00", "", "[::1]:1", "spiffe://a/b", ".", "s", uint16(1), uint8(2), "", "(", "", "\xff", int64(1e10), `{"static_resources":{"clusters":[{"name":"xds-grpc"}]}}`)
	f.Fuzz(func(t *testing.T, id, cluster, address, identity, secrets, socket string, port uint16, family uint8,
		prefix, expr, key, value string, n int64, extra string) {
		o := Options{
			Node:         Node{ID: id, Cluster: cluster, Zone: value, Metadata: map[string]any{key: value}},
			ControlPlane: ControlPlane{Addresses: []string{address}, Identity: []string{identity}, Secrets: secrets, KeepAlive: time.Duration(n)},
			Admin:        Endpoint{Socket: socket, Port: port}, Family: Family(family), Prometheus: port,
			Stats:  Stats{Prefixes: []string{prefix}, Regexps: []string{expr}},
			Limits: Limits{Heap: uint64(n), Connections: uint64(n)}, DrainTime: time.Duration(n), Concurrency: int(n),
			Runtime: map[string]any{key: value}, Log: Log{Level: value, Components: map[string]string{key: value}},
			Extra: json.RawMessage(extra),
		}
		if family&4 != 0 {
			o.Log, o.Stats, o.Concurrency, o.DrainTime, o.Extra = Log{}, Stats{}, 0, 0, nil
		}
		o.Args("x")
		raw, err := o.Bootstrap()
		if checked := o.Check(); (checked == nil) != (err == nil) {
			t.Fatalf("Check says %v, Bootstrap %v", checked, err)
		}
		if err != nil {
			return
		}
		all, err := decodeObject(raw)
		if err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		again, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeObject(again)
		if diff := cmp.Diff(all, back); err != nil || diff != "" {
			t.Fatalf("it does not round-trip: %v\n%s", err, diff)
		}
		if got := at(all, []string{"node", "id"}); got != id {
			t.Fatalf("node.id is %q, want %q", got, id)
		}
	})
}

func TestArgsNameEveryFlagOnce(t *testing.T) {
	args := host().Args("x")
	var seen []string
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			if slices.Contains(seen, a) {
				t.Errorf("%s is there twice", a)
			}
			seen = append(seen, a)
		}
	}
}
