package envoy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/test/port"
	"outrider.dev/test/process"
	"outrider.dev/test/secretserver"
)

// running is an Envoy process of a test.
type running struct {
	*process.Process
	admin  *Admin
	socket string
	lines  chan Line
}

// start runs Envoy in a new directory.
func start(t testing.TB, o Options) *running {
	t.Helper()
	dir := t.TempDir()
	raw, err := o.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "envoy.json"), raw)
	cmd := exec.Command(process.Envoy(t), o.Args("envoy.json")...)
	cmd.Dir = dir
	stderr, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	inDir := o
	if o.Admin.Socket != "" {
		inDir.Admin.Socket = filepath.Join(dir, o.Admin.Socket)
	}
	r := &running{socket: inDir.Admin.Socket, admin: NewAdmin(inDir, process.Patience), lines: make(chan Line, 10000)}
	t.Cleanup(r.admin.Close)
	r.Process = process.Start(t, cmd, process.Options{})
	w.Close()
	go func() {
		defer stderr.Close()
		defer close(r.lines)
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			r.lines <- ParseLine(s.Bytes())
		}
	}()
	return r
}

func (r *running) live() bool {
	ready, state, err := r.admin.Ready(context.Background())
	return err == nil && ready && state == "LIVE"
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// alone returns options without a control plane; such an Envoy becomes ready by itself. Nothing listens on the
// socket of the relay.
func alone() Options {
	o := pod()
	o.Admin = Endpoint{Socket: "admin.sock"}
	o.Secrets = ""
	o.NoPrometheus = true
	o.Extra = json.RawMessage(`{"dynamic_resources": null}`)
	return o
}

func TestEnvoyAcceptsEveryCombination(t *testing.T) {
	bin := process.Envoy(t)
	changes := map[string]func(*Options){
		"as it is":   func(*Options) {},
		"IPv6":       func(o *Options) { o.Family = IPv6 },
		"dual":       func(o *Options) { o.Family = Dual },
		"no metrics": func(o *Options) { o.NoPrometheus = true },
		"no secrets": func(o *Options) { o.Secrets = "" },
		"levels":     func(o *Options) { o.Log = Log{Level: "error", Components: map[string]string{"http": "trace"}} },
		"odd text": func(o *Options) {
			o.Node.Metadata = map[string]any{"ü<&>": "\u2028\"\\", "n": nil, "l": []any{1, "2", true}}
		},
	}
	for base, o := range map[string]Options{"pod": pod(), "host": host(), "plain": plain()} {
		for name, change := range changes {
			t.Run(base+", "+name, func(t *testing.T) {
				t.Parallel()
				o := o
				change(&o)
				raw, err := o.Bootstrap()
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				write(t, filepath.Join(dir, "envoy.json"), raw)
				cmd := exec.Command(bin, append(o.Args("envoy.json"), "--mode", "validate")...)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("Envoy: %v\n%s", err, out)
				}
				for line := range strings.Lines(string(out)) {
					if l := ParseLine([]byte(line)); l.Level >= slog.LevelWarn && !strings.HasSuffix(l.Message, " OK") {
						t.Errorf("Envoy complains: %s", line)
					}
				}
			})
		}
	}
}

func TestARealEnvoyIsReadyAndIsControlled(t *testing.T) {
	r := start(t, alone())
	ctx := t.Context()
	var line Line
	for line = range r.lines {
		if line.Message == ReadyMessage {
			break
		}
	}
	if line.Component != "config" || line.Level != slog.LevelInfo || time.Since(line.Time).Abs() > process.Patience {
		t.Errorf("the line of readiness is %+v", line)
	}
	process.Eventually(t, "LIVE", r.live, r)
	if err := r.admin.SetLevels(ctx, Log{Level: "error", Components: map[string]string{"upstream": "debug", "config": "off"}}); err != nil {
		t.Fatal(err)
	}
	levels, err := r.admin.do(ctx, http.MethodPost, "/logging", "")
	for _, want := range []string{"upstream: debug\n", "config: info\n", "http: error\n"} {
		if err != nil || !strings.Contains(string(levels), " "+want) {
			t.Errorf("levels are %s, %v; want %s", levels, err, want)
		}
	}
	var refused *StatusError
	if err := r.admin.SetLevels(ctx, Log{Components: map[string]string{"unknown": "debug"}}); !errors.As(err, &refused) {
		t.Errorf("a component that Envoy does not have: %v", err)
	}
	for _, d := range []Drain{DiscourageInbound, DrainInbound, CloseInbound} {
		if err := r.admin.Drain(ctx, d); err != nil {
			t.Error(err)
		}
	}
	stats, err := r.admin.Stats(ctx, `^server\.(live|concurrency)$`)
	if err != nil || stats["server.live"] != 1 || stats["server.concurrency"] != 2 {
		t.Errorf("stats are %v, %v", stats, err)
	}
	if _, err := r.admin.Get(ctx, "/nothing", ""); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an unknown path: %v", err)
	}
	if info, err := os.Stat(r.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode: %v, %v", info, err)
	}
}

// The agent learns that Envoy rejects a secret, and the reason.
func TestEnvoyReportsARejectedSecret(t *testing.T) {
	o := alone()
	o.Secrets = filepath.Join(t.TempDir(), "sds")
	o.Extra = json.RawMessage(`{"dynamic_resources": null, "static_resources": {"clusters": [{"name": "x", "connect_timeout": "1s", "transport_socket": {
	  "name": "tls", "typed_config": {
	    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
	    "common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "` + SecretName + `", "sds_config": {
	      "resource_api_version": "V3", "api_config_source": {"api_type": "GRPC", "transport_api_version": "V3",
	        "grpc_services": [{"envoy_grpc": {"cluster_name": "` + SecretsCluster + `"}}]}}}]}}}}]}}`)
	rejected := make(chan identity.Rejection, 1)
	secrets := secretserver.Serve(t, o.Secrets, func(r identity.Rejection) { rejected <- r })
	secrets.Set(SecretName, identity.CertificateSecret([]byte("not PEM"), []byte("not PEM")))
	r := start(t, o)
	select {
	case why := <-rejected:
		if !slices.Equal(why.Names, []string{SecretName}) || !strings.Contains(why.Reason, "Failed to load certificate") || why.Kept {
			t.Errorf("%+v; want the workload's certificate refused", why)
		}
	case <-r.Done():
	case <-time.After(process.Patience):
		t.Error("no rejection")
	}
}

func TestEnvoyIsNotReadyWithoutAControlPlane(t *testing.T) {
	o := alone()
	o.Extra = nil
	o.Admin = Endpoint{Port: port.Hold(t).Port()}
	r := start(t, o)
	process.Eventually(t, "an answer of /ready", func() bool {
		ready, state, err := r.admin.Ready(context.Background())
		if ready {
			t.Fatal("ready without its configuration")
		}
		return err == nil && strings.Contains(state, "INITIALIZING")
	}, r)
}

func TestOnlyMetricsAreShownToTheNetwork(t *testing.T) {
	o := alone()
	o.NoPrometheus, o.Prometheus = false, port.Hold(t).Port()
	r := start(t, o)
	process.Eventually(t, "LIVE", r.live, r)
	for path, want := range map[string]int{"/stats/prometheus": 200, "/stats/prometheus?usedonly": 200, "/config_dump": 404, "/": 404, "/quitquitquit": 404, "/stats": 404} {
		var res *http.Response
		process.Eventually(t, "an answer of "+path, func() (ok bool) {
			var err error
			res, err = http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", o.Prometheus, path))
			return err == nil
		}, r)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}

func TestARejectedStartIsExplained(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	tests := map[string]struct {
		change func(*Options)
		want   string
		final  bool
	}{
		"a port in use": {func(o *Options) { o.Admin = Endpoint{Port: uint16(busy.Addr().(*net.TCPAddr).Port)} }, "cannot bind '127.0.0.1:", false},
		"an unknown field": {func(o *Options) { o.Extra = json.RawMessage(`{"dynamic_resources":null,"nonsense":1}`) },
			"configuration rejected: ", true},
		"an invalid value": {func(o *Options) {
			o.Extra = json.RawMessage(`{"static_resources":{"clusters":[{"name":"x","type":"EDS"}]}}`)
		}, "configuration rejected: ", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := alone()
			tt.change(&o)
			raw, err := o.Bootstrap()
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			write(t, filepath.Join(dir, "envoy.json"), raw)
			cmd := exec.Command(process.Envoy(t), o.Args("envoy.json")...)
			cmd.Dir = dir
			p := process.Start(t, cmd, process.Options{})
			p.Exit()
			if got := Explain(strings.Split(p.Log(), "\n")); !strings.HasPrefix(got.Reason, tt.want) || got.Final != tt.final {
				t.Errorf("Explain = %+v, want %s...", got, tt.want)
			}
		})
	}
}

// get makes one request on a connection, and returns whether the response announces the
// connection's end.
func get(c net.Conn) (closing bool, err error) {
	if _, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return false, err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false, err
	}
	return res.Close, res.Body.Close()
}

// Envoy's own drain time is fixed at its start. Two calls make a drain of any length:
// DiscourageInbound, which has no end, and then CloseInbound.
func TestADrainOfAnyLength(t *testing.T) {
	port := port.Hold(t).Port()
	o := alone()
	o.DrainTime = time.Hour
	o.Extra = json.RawMessage(fmt.Sprintf(`{"dynamic_resources": null, "static_resources": {"listeners": [{
	  "name": "in", "traffic_direction": "INBOUND",
	  "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}},
	  "filter_chains": [{"filters": [{"name": "hcm", "typed_config": {
	    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
	    "stat_prefix": "in",
	    "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
	      {"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]},
	    "http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]
	  }}]}]}]}}`, port))
	r := start(t, o)
	process.Eventually(t, "LIVE", r.live, r)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	dial := func() (c net.Conn) {
		t.Helper()
		process.Eventually(t, "a connection", func() (ok bool) {
			var err error
			c, err = net.Dial("tcp", address)
			return err == nil
		}, r)
		t.Cleanup(func() { c.Close() })
		return c
	}
	before := dial()
	if closing, err := get(before); err != nil || closing {
		t.Fatalf("before the drain: closing %t, %v", closing, err)
	}
	idle := dial()
	// A connection that no worker has accepted yet would end with the listener.
	process.Eventually(t, "both are accepted", func() bool {
		stats, err := r.admin.Stats(t.Context(), `^http\.in\.downstream_cx_active$`)
		return err == nil && stats["http.in.downstream_cx_active"] == 2
	}, r)
	if err := r.admin.Drain(t.Context(), DiscourageInbound); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "a response that ends its connection", func() bool { closing, err := get(dial()); return err == nil && closing }, r)
	if err := r.admin.Drain(t.Context(), CloseInbound); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "a refusal", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}, r)
	for name, c := range map[string]net.Conn{"with an earlier request": before, "without one": idle} {
		if closing, err := get(c); err != nil || !closing {
			t.Errorf("a connection %s: closing %t, %v; want a response that ends it", name, closing, err)
		}
	}
}
