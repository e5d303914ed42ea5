package readiness

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/test/port"
	"outrider.dev/test/process"
)

// realEnvoy starts the Envoy that "make deps" fetches, in a directory with the given files. It
// returns the board whose conditions a Proxy sets for this Envoy.
func realEnvoy(t *testing.T, o envoy.Options, ports []uint16, files map[string]string) *Board {
	t.Helper()
	dir := t.TempDir()
	o.Admin.Socket, o.NoPrometheus = filepath.Join(dir, "a"), true
	o.Node.ID = "sidecar~127.0.0.1~a.b~c"
	o.Relay = cmp.Or(o.Relay, "absent")
	raw, err := o.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("envoy.json", string(raw))
	for name, content := range files {
		write(name, content)
	}
	admin := envoy.NewAdmin(o, time.Second)
	t.Cleanup(admin.Close)
	board := New(Options{Conditions: []Condition{Identity, ControlPlane, Envoy, Configuration, Listeners}})
	p := NewProxy(ProxyOptions{Board: board, Admin: admin, Ports: ports, Stream: func() Stream { return Stream{} }, slow: 20 * time.Millisecond})
	cmd := exec.Command(process.Envoy(t), o.Args("envoy.json")...)
	cmd.Dir = dir
	stderr, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	var tasks sync.WaitGroup
	t.Cleanup(tasks.Wait) // t.Context, and with it Envoy, ends before cleanup
	process.Start(t, cmd, process.Options{})
	w.Close()
	tasks.Go(func() {
		defer stderr.Close()
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.LogLine(envoy.ParseLine(s.Bytes()))
		}
	})
	tasks.Go(func() { _ = p.Ready(t.Context()) })
	return board
}

// listener returns the configuration of a listener that closes the connections that it accepts.
func listener(name string, port uint16) string {
	return fmt.Sprintf(`{"name": %q, "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}, "filter_chains": [{"filters": [
		{"name": "envoy.filters.network.echo", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}]}]}`, name, port)
}

// dynamic makes Envoy read its configuration from files. Envoy counts and rejects it like configuration from a
// control plane.
const dynamic = `{"dynamic_resources": {"ads_config": null, "cds_config": {"ads": null, "initial_fetch_timeout": null, "path_config_source": {"path": "./cds.json"}},
	"lds_config": {"ads": null, "initial_fetch_timeout": null, "path_config_source": {"path": "./lds.json"}}}}`

func discovered(listener string) map[string]string {
	listener = strings.Replace(listener, "{", `{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", `, 1)
	return map[string]string{"cds.json": `{"resources": []}`, "lds.json": `{"resources": [` + listener + `]}`}
}

func TestReasonsOfARealEnvoy(t *testing.T) {
	ports := []uint16{port.Hold(t).Port(), port.Hold(t).Port()}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	socket := filepath.Join(t.TempDir(), "ads")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	refuser := &http.Server{Protocols: &http.Protocols{}, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "16")
		w.Header().Set("Grpc-Message", "no such token")
	})}
	refuser.Protocols.SetUnencryptedHTTP2(true)
	go refuser.Serve(l)
	defer refuser.Close()
	tests := map[string]struct {
		o     envoy.Options
		ports []uint16
		files map[string]string
		want  []string
	}{
		"no relay": {ports: ports, want: []string{"no-control-plane: no stream to ", "listener-not-bound: Envoy does not listen on "}},
		"a control plane that refuses this proxy": {o: envoy.Options{Relay: socket}, ports: ports,
			want: []string{"identity-refused: the control plane and this proxy do not accept one another: no such token", "no-control-plane: "}},
		"a listener on a port that is taken": {o: envoy.Options{Extra: json.RawMessage(dynamic)}, ports: []uint16{uint16(taken.Addr().(*net.TCPAddr).Port)},
			files: discovered(listener("a", uint16(taken.Addr().(*net.TCPAddr).Port))), want: []string{"configuration-not-accepted: Envoy rejected the listeners: ", "Address already in use", "listener-not-bound"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			board := realEnvoy(t, tt.o, tt.ports, tt.files)
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			defer cancel()
			var last Status
			for last = range board.Subscribe(ctx, Outbound) {
				if !slices.ContainsFunc(tt.want, func(w string) bool { return !strings.Contains(last.String(), w) }) {
					t.Log(last)
					return
				}
			}
			t.Errorf("last: %v\nwant %q", last, tt.want)
		})
	}
}
