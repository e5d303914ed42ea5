package envoy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
)

// binary is the real Envoy that "make deps" fetches.
func binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("ENVOY")
	if path == "" {
		path = filepath.Join("..", "..", "..", ".cache", "envoy", "envoy")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("no Envoy here: make deps fetches it")
	}
	return path
}

// A running is an Envoy of a test.
type running struct {
	admin  *Admin
	socket string
	began  time.Time
	lines  chan Line
	exit   chan error
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
	cmd := exec.Command(binary(t), o.Args("envoy.json")...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inDir := o
	if o.Admin.Socket != "" {
		inDir.Admin.Socket = filepath.Join(dir, o.Admin.Socket)
	}
	r := &running{began: began, socket: inDir.Admin.Socket, admin: NewAdmin(inDir, 5*time.Second), lines: make(chan Line, 10000), exit: make(chan error, 1)}
	go func() {
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			r.lines <- ParseLine(s.Bytes())
		}
		close(r.lines)
		r.exit <- cmd.Wait()
	}()
	t.Cleanup(func() {
		r.admin.Close()
		cmd.Process.Kill()
		<-r.exit
	})
	return r
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// eventually asks until the answer is right, for half a minute on a busy machine.
func eventually(t testing.TB, what string, ask func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ask() {
			return
		}
	}
	t.Fatalf("never seen: %s", what)
}

// alone is an Envoy that asks no control plane, and so is ready by itself.
func alone() Options {
	o := pod()
	o.Admin = Endpoint{Socket: "admin.sock"}
	o.ControlPlane = ControlPlane{Addresses: []string{"127.0.0.1:1"}, Plaintext: true}
	o.NoPrometheus = true
	o.Extra = json.RawMessage(`{"dynamic_resources": null}`)
	return o
}

func TestEnvoyAcceptsEveryCombination(t *testing.T) {
	bin := binary(t)
	dir := t.TempDir()
	changes := map[string]func(*Options){
		"as it is":   func(*Options) {},
		"IPv6":       func(o *Options) { o.Family = IPv6 },
		"dual":       func(o *Options) { o.Family = Dual },
		"all stats":  func(o *Options) { o.Stats = Stats{All: true} },
		"no metrics": func(o *Options) { o.NoPrometheus = true },
		"heap":       func(o *Options) { o.Limits.Heap = 1 << 28 },
		"runtime":    func(o *Options) { o.Runtime = map[string]any{"a.b": 1.5, "c": "d", "e": true} },
		"many":       func(o *Options) { o.ControlPlane.Addresses = []string{"a.example:1", "10.0.0.1:2", "[fd00::1]:3"} },
		"levels":     func(o *Options) { o.Log = Log{Level: "error", Components: map[string]string{"http": "trace"}} },
		"SNI":        func(o *Options) { o.ControlPlane.SNI, o.ControlPlane.Identity = "cp.example", nil },
		"odd text": func(o *Options) {
			o.Node.Metadata = map[string]any{"ü<&>": "\u2028\"\\", "n": nil, "l": []any{1, "2", true}}
		},
		"a long ping": func(o *Options) { o.ControlPlane.KeepAlive = 90 * time.Minute },
	}
	for base, o := range map[string]Options{"pod": pod(), "host": host(), "plain": plain()} {
		for name, change := range changes {
			t.Run(base+", "+name, func(t *testing.T) {
				t.Parallel()
				o := o
				change(&o)
				raw, err := o.Bootstrap()
				if err != nil {
					var field *FieldError
					if o.Check() == nil || base == "pod" {
						t.Fatal(err, field)
					}
					t.Skip(err) // two changes that exclude one another
				}
				file := filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(base+name)+".json")
				write(t, file, raw)
				cmd := exec.Command(bin, append(o.Args(file), "--mode", "validate")...)
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

func TestARealEnvoyIsReadyAndTakesOrders(t *testing.T) {
	r := start(t, alone())
	ctx := context.Background()
	var line Line
	for line = range r.lines {
		if line.Message == ReadyMessage {
			break
		}
	}
	if line.Component != "config" || line.Level != slog.LevelInfo || time.Since(line.Time).Abs() > time.Minute {
		t.Errorf("the line of readiness is %+v", line)
	}
	eventually(t, "LIVE", func() bool {
		ready, state, err := r.admin.Ready(ctx)
		return err == nil && ready && state == "LIVE"
	})
	if err := r.admin.SetLevels(ctx, Log{Level: "error", Components: map[string]string{"upstream": "debug", "config": "off"}}); err != nil {
		t.Fatal(err)
	}
	levels, err := r.admin.Levels(ctx)
	if err != nil || levels["upstream"] != "debug" || levels["config"] != "info" || levels["http"] != "error" {
		t.Errorf("levels are %v, %v", levels, err)
	}
	var refused *StatusError
	if err := r.admin.SetLevels(ctx, Log{Components: map[string]string{"nobodys": "debug"}}); !errors.As(err, &refused) {
		t.Errorf("a component that Envoy does not have: %v", err)
	}
	for _, d := range []Drain{DiscourageInbound, DrainInbound, CloseInbound, DrainAll} {
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

func TestWithoutControlPlaneEnvoyIsNotReadyAndSaysSo(t *testing.T) {
	o := alone()
	o.Extra = nil
	o.Admin = Endpoint{Port: freePort(t)}
	r := start(t, o)
	eventually(t, "an answer of /ready", func() bool {
		ready, state, err := r.admin.Ready(context.Background())
		if ready {
			t.Fatal("ready without its configuration")
		}
		return err == nil && strings.Contains(state, "INITIALIZING")
	})
}

func TestMetricsAreShownAndNothingElse(t *testing.T) {
	o := alone()
	o.NoPrometheus, o.Prometheus = false, freePort(t)
	r := start(t, o)
	eventually(t, "LIVE", func() bool { ready, _, _ := r.admin.Ready(context.Background()); return ready })
	for path, want := range map[string]int{"/stats/prometheus": 200, "/stats/prometheus?usedonly": 200, "/config_dump": 404, "/": 404, "/quitquitquit": 404, "/stats": 404} {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", o.Prometheus, path))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}

func freePort(t testing.TB) uint16 {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return uint16(ln.Addr().(*net.TCPAddr).Port)
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
		"a field that is none": {func(o *Options) { o.Extra = json.RawMessage(`{"dynamic_resources":null,"nonsense":1}`) },
			"configuration rejected: ", true},
		"a value that is none": {func(o *Options) {
			o.Extra = json.RawMessage(`{"static_resources":{"clusters":[{"name":"x","type":"EDS"}]}}`)
		}, "configuration rejected: ", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := alone()
			tt.change(&o)
			r := start(t, o)
			var lines []string
			for l := range r.lines {
				raw, _ := json.Marshal(map[string]string{"level": "warning", "message": l.Message})
				if l.Level == LevelCritical {
					raw, _ = json.Marshal(map[string]string{"level": "critical", "message": l.Message})
				}
				lines = append(lines, string(raw))
			}
			got := Explain(lines)
			if !strings.HasPrefix(got.Reason, tt.want) || got.Final != tt.final {
				t.Errorf("Explain = %+v, want %s...", got, tt.want)
			}
		})
	}
}

// BenchmarkStartToReady is from exec to the line of readiness, and to LIVE, of an Envoy
// with this bootstrap and no control plane to wait for.
func BenchmarkStartToReady(b *testing.B) {
	for name, change := range map[string]func(*Options){
		"as it is":   func(o *Options) { o.NoPrometheus, o.Prometheus = false, freePort(b) },
		"no metrics": func(*Options) {},
		"all stats":  func(o *Options) { o.Stats = Stats{All: true} },
	} {
		b.Run(name, func(b *testing.B) {
			var line, live []time.Duration
			for b.Loop() {
				o := alone()
				change(&o)
				r := start(b, o)
				for l := range r.lines {
					if l.Message == ReadyMessage {
						break
					}
				}
				line = append(line, time.Since(r.began))
				for ready := false; !ready; {
					ready, _, _ = r.admin.Ready(context.Background())
				}
				live = append(live, time.Since(r.began))
			}
			slices.Sort(line)
			slices.Sort(live)
			for of, all := range map[string][]time.Duration{"line": line, "live": live} {
				for at, d := range map[string]time.Duration{"min": all[0], "p50": all[len(all)/2], "max": all[len(all)-1]} {
					b.ReportMetric(float64(d.Microseconds())/1000, of+"-"+at+"-ms")
				}
			}
		})
	}
}
