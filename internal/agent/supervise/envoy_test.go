package supervise

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/agent/envoy"
)

// A proxy is a supervised real Envoy with one inbound listener that says hello.
type proxy struct {
	*Supervisor
	url    string
	admin  *envoy.Admin
	stop   context.CancelFunc
	result chan Result

	mu      sync.Mutex
	entries []Entry
}

func newProxy(t testing.TB, change func(*envoy.Options, *Options)) *proxy {
	t.Helper()
	binary := os.Getenv("ENVOY")
	if binary == "" {
		binary = filepath.Join("..", "..", "..", ".cache", "envoy", "envoy")
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("no Envoy here: make deps fetches it")
	}
	dir, port := t.TempDir(), freePort(t)
	e := envoy.Options{
		Node:         envoy.Node{ID: "test"},
		ControlPlane: envoy.ControlPlane{Address: "127.0.0.1:1", Plaintext: true},
		Admin:        envoy.Endpoint{Socket: filepath.Join(dir, "admin.sock")}, NoPrometheus: true, DrainTime: time.Second,
		Extra: json.RawMessage(fmt.Sprintf(hello, port)),
	}
	p := &proxy{url: fmt.Sprintf("http://127.0.0.1:%d/", port), result: make(chan Result, 1)}
	ready := make(chan bool, 1)
	o := Options{
		Command: Command{Path: binary, Dir: dir, Line: func(s Stream, b []byte) {
			if l := envoy.ParseLine(b); l.Component == "config" && l.Message == envoy.ReadyMessage {
				select {
				case ready <- true:
				default:
				}
			}
		}},
		Ready: func(ctx context.Context, _ Child) error {
			select {
			case <-ready:
			case <-ctx.Done():
				return ctx.Err()
			}
			for {
				if ok, _, err := p.admin.Ready(ctx); ok || ctx.Err() != nil {
					return err
				}
			}
		},
		TellDrain: func(ctx context.Context) error { return p.admin.Drain(ctx, envoy.DrainInbound) },
		AwaitDrained: func(ctx context.Context) {
			for p.answers() && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		},
		Explain: func(e Exit) (string, bool) { c := envoy.Explain(e.Tail); return c.Reason, c.Final },
		Journal: func(e Entry) { p.mu.Lock(); defer p.mu.Unlock(); p.entries = append(p.entries, e) },
	}
	if change != nil {
		change(&e, &o)
	}
	raw, err := e.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "envoy.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Command.Args = e.Args("envoy.json")
	p.admin = envoy.NewAdmin(e, 5*time.Second)
	if p.Supervisor, err = New(o); err != nil {
		t.Fatal(err)
	}
	stop, cancel := context.WithCancel(context.Background())
	quit, leave := context.WithCancel(context.Background())
	p.stop = cancel
	go func() { p.result <- p.Run(stop, quit); close(p.result) }()
	t.Cleanup(func() { cancel(); leave(); <-p.result; p.admin.Close() })
	return p
}

const hello = `{"dynamic_resources": null, "static_resources": {"listeners": [{"name": "hello", "traffic_direction": "INBOUND",
"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}},
"filter_chains": [{"filters": [{"name": "hcm", "typed_config": {
"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "hello",
"route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]},
"http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}]}}`

func freePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

func (p *proxy) answers() bool {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	res, err := c.Get(p.url)
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func (p *proxy) await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never seen: %s (%s)", what, p.State())
}

func TestARealEnvoyIsKilledRestartedDrainedAndStopped(t *testing.T) {
	p := newProxy(t, nil)
	p.await(t, "the first", func() bool { return p.State() == Serving && p.answers() })
	first := p.PID()
	began := time.Now()
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.await(t, "the second", func() bool { return p.State() == Serving && p.PID() != first && p.answers() })
	t.Logf("SIGKILL to an answer of the next Envoy: %v", time.Since(began))
	second := p.PID()
	if err := syscall.Kill(p.PID(), syscall.SIGSEGV); err != nil {
		t.Fatal(err)
	}
	p.await(t, "the third", func() bool { return p.State() == Serving && p.PID() != second && p.answers() })
	third := p.PID()
	p.stop()
	r := <-p.result
	if r.Status != 0 || r.Exit == nil || r.Exit.Signal != syscall.SIGKILL {
		t.Errorf("result %+v", r)
	}
	awaitGone(t, first)
	awaitGone(t, second)
	awaitGone(t, third)
	p.mu.Lock()
	defer p.mu.Unlock()
	var crash, fault, drained bool
	for _, e := range p.entries {
		crash = crash || e.Event == ChildEnded && e.PID == first && e.Exit.Signal == syscall.SIGKILL && e.Reason == "killed by SIGKILL" && e.Exit.Served > 0
		fault = fault || e.PID == second && strings.HasPrefix(e.Reason, "Caught Segmentation fault") && strings.Contains(e.Reason, "(killed by SIGSEGV")
		drained = drained || e.Event == Drained && e.From == Draining
		if e.Err != nil {
			t.Error(e.Err)
		}
	}
	if !crash || !fault || !drained {
		t.Errorf("crash %v, fault %v, drained %v in %+v", crash, fault, drained, p.entries)
	}
}

func TestARealEnvoyThatCannotWorkIsGivenUpWithTheReason(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	tests := map[string]struct {
		change func(*envoy.Options)
		want   string
		starts int
	}{
		"a rejected configuration is not tried again": {
			func(e *envoy.Options) { e.Extra = json.RawMessage(`{"dynamic_resources": null, "nonsense": 1}`) },
			"configuration rejected: ", 1,
		},
		"a port in use is": {
			func(e *envoy.Options) {
				e.Admin = envoy.Endpoint{Port: uint16(busy.Addr().(*net.TCPAddr).Port)}
			},
			"cannot bind '127.0.0.1:", 3,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			message := filepath.Join(t.TempDir(), "message")
			p := newProxy(t, func(e *envoy.Options, o *Options) {
				tt.change(e)
				o.Backoff.Unready, o.TerminationMessage = 3, message
			})
			r := <-p.result
			if r.Status != 1 || !strings.HasPrefix(r.Reason, tt.want) {
				t.Errorf("result %+v", r)
			}
			starts := 0
			for _, e := range p.entries {
				if e.To == Starting || e.To == Reviving {
					starts++
				}
			}
			raw, err := os.ReadFile(message)
			if starts != tt.starts || err != nil || !strings.HasPrefix(string(raw), tt.want) || strings.Count(string(raw), "\n") < 2 {
				t.Errorf("%d starts, message %s, %v", starts, raw, err)
			}
		})
	}
}

// BenchmarkRestart is from SIGKILL to the first answer of the next Envoy's listener.
func BenchmarkRestart(b *testing.B) {
	var all []time.Duration
	for b.Loop() {
		p := newProxy(b, nil)
		p.await(b, "the first", func() bool { return p.State() == Serving && p.answers() })
		first, began := p.PID(), time.Now()
		_ = syscall.Kill(p.PID(), syscall.SIGKILL)
		p.await(b, "the second", func() bool { return p.PID() != first && p.answers() })
		all = append(all, time.Since(began))
		p.stop()
		<-p.result
	}
	slices.Sort(all)
	for at, d := range map[string]time.Duration{"min": all[0], "p50": all[len(all)/2], "max": all[len(all)-1]} {
		b.ReportMetric(float64(d.Microseconds())/1000, at+"-ms")
	}
}
