package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
)

// full is what the agent says of the level full.
func full(a *harness.Agent, query string) harness.Answer {
	return a.Get(15021, "/healthz/ready?level=full"+query)
}

// saysFull is what the metrics say of it, for which no probe is made.
func saysFull(a *harness.Agent, value string) bool {
	return strings.Contains(a.Get(15020, "/metrics").Body, "\noutrider_agent_ready{level=\"full\"} "+value+"\n")
}

// wantUnready wants the level to be refused for the app alone, with these words.
func wantUnready(t *testing.T, got harness.Answer, words string) {
	t.Helper()
	if got.Status != 503 || !strings.Contains(got.Body, `"level":"full"`) || strings.Count(got.Body, `"code"`) != 1 ||
		!strings.Contains(got.Body, `"app-not-healthy"`) || !strings.Contains(got.Body, words) {
		t.Errorf("%d %s %v; want 503, and %q", got.Status, got.Body, got.Err, words)
	}
}

// Where nothing tells how the app is, the level full is not reached, and says so.
func TestFullWithoutAnyKnowledge(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	unnamed, named := w.Pod("unnamed"), w.Pod("named")
	named.Env = []string{"ISTIO_META_APP_CONTAINERS=app"}
	for p, words := range map[*harness.Pod]string{
		unnamed: "not known: neither ISTIO_META_APP_CONTAINERS nor ISTIO_KUBE_APP_PROBERS names an application",
		named:   "app: not known: it has no readiness or startup probe that the agent can ask, and no gate",
	} {
		a := p.Agent()
		a.Ready()
		wantUnready(t, full(a, ""), words)
		wantUnready(t, full(a, "&wait=100ms"), words)
		if !saysFull(a, "0") {
			t.Error("the metrics say that it is")
		}
	}
}

// By its readiness probe the app is known to be healthy: asked for those who want to know,
// and else in step with the kubelet.
func TestFullByProbe(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("probed")
	p.Env = []string{"ISTIO_META_APP_CONTAINERS=app",
		`ISTIO_KUBE_APP_PROBERS={"/app-health/app/readyz": {"httpGet": {"path": "/ready", "port": 8080}}, "/app-health/app/livez": {"tcpSocket": {"port": 1}}}`}
	a := p.Agent()
	a.Ready()
	wantUnready(t, full(a, ""), "app: its probe failed: connect: connection refused")
	held := make(chan harness.Answer, 1)
	go func() { held <- full(a, "&wait=30s") }()
	waiting := func(n string) func() bool {
		return func() bool {
			return strings.Contains(a.Get(15020, "/metrics").Body, "\noutrider_agent_waiters "+n+"\n")
		}
	}
	harness.Eventually(t, "a waiter", waiting("1"))

	var asked atomic.Int32
	var ill atomic.Bool
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/ready" || ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go server.Serve(harness.Listen(w, p.Namespace, harness.AppUser, ":8080"))
	t.Cleanup(func() { server.Close() })
	if got := <-held; got.Status != 200 {
		t.Errorf("released with %d %s %v", got.Status, got.Body, got.Err)
	}
	if !saysFull(a, "1") {
		t.Error("the metrics say that it is not")
	}
	harness.Eventually(t, "no waiter", waiting("0"))
	time.Sleep(time.Second) // what was on its way has ended
	before := asked.Load()
	time.Sleep(2 * time.Second) // the silence is what is tested
	if n := asked.Load() - before; n != 0 {
		t.Errorf("no request waits, and the app was probed %d times", n)
	}

	ill.Store(true)
	if got := a.Get(15020, "/app-health/app/readyz"); got.Status != 503 { // as the kubelet does
		t.Errorf("the probe: %d", got.Status)
	}
	harness.Eventually(t, "the metrics say that the app is ill", func() bool { return saysFull(a, "0") })
	if s, ok := a.Status(); !ok || !s.Ready {
		t.Errorf("outbound depends on the app: %v", s)
	}
	wantUnready(t, full(a, ""), "app: its probe failed: status 503")
	ill.Store(false)
	harness.Eventually(t, "it is well again", func() bool { return full(a, "").Status == 200 }) // asked anew, not remembered
}

// By its gate it is known without a question.
func TestFullByGate(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("gated")
	p.Env = []string{"ISTIO_META_APP_CONTAINERS=app"}
	a := p.Agent()
	a.Ready()
	healthy := filepath.Join(w.Dir, "healthy")
	probe := `{"exec": {"command": ["test", "-e", "` + healthy + `"]}, "periodSeconds": 1, "failureThreshold": 1}`
	gate := p.Gate("--after", "outrider-proxy is healthy", "--probe", probe, "--", "sleep", "60")
	harness.Eventually(t, "the command runs", func() bool { return strings.Contains(p.State("app"), `"phase":"running"`) })
	harness.Eventually(t, "and is not healthy", func() bool {
		return strings.Contains(full(a, "").Body, "app: its gate does not say that it is healthy")
	})
	held := make(chan harness.Answer, 1)
	go func() { held <- full(a, "&wait=30s") }()
	if err := os.WriteFile(healthy, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := <-held; got.Status != 200 {
		t.Errorf("released with %d %s %v", got.Status, got.Body, got.Err)
	}
	if err := os.Remove(healthy); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the metrics know that it is ill", func() bool { return saysFull(a, "0") })
	gate.Kill()
	harness.Eventually(t, "it is gone", func() bool { return strings.Contains(full(a, "").Body, "app: its command does not run") })
}
