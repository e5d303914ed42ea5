package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// full requests the readiness level "full".
func full(a *harness.Agent, query string) harness.Answer {
	return a.Get(15021, "/healthz/ready?level=full"+query)
}

// fullMetric reports whether the metric of the level "full" has this value. Reading the metrics runs no probe.
func fullMetric(a *harness.Agent, value string) bool {
	return strings.Contains(a.Get(15020, "/metrics").Body, "\noutrider_agent_ready{level=\"full\"} "+value+"\n")
}

// wantUnready checks that the level "full" is not reached, that the app is the only reason, and that the reason has
// these words.
func wantUnready(t *testing.T, got harness.Answer, words string) {
	t.Helper()
	if got.Status != 503 || !strings.Contains(got.Body, `"level":"full"`) || strings.Count(got.Body, `"code"`) != 1 ||
		!strings.Contains(got.Body, `"app-not-healthy"`) || !strings.Contains(got.Body, words) {
		t.Errorf("%d %s %v; want 503, and %q", got.Status, got.Body, got.Err, words)
	}
}

// Without a probe or a gate, the level "full" cannot be reached, and the answer contains the reason.
func TestFullWithoutAProbeOrGate(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	unnamed, named := w.Pod("unnamed"), w.Pod("named")
	named.Env = []string{"ISTIO_META_APP_CONTAINERS=app"}
	for p, words := range map[*harness.Pod]string{
		unnamed: "not known: neither ISTIO_META_APP_CONTAINERS nor ISTIO_KUBE_APP_PROBERS names an application",
		named:   "app: not known: it has no readiness or startup probe that the agent can make, and no gate",
	} {
		a := p.Agent()
		a.Ready()
		wantUnready(t, full(a, ""), words)
		wantUnready(t, full(a, "&wait=100ms"), words)
		if !fullMetric(a, "0") {
			t.Error("the metrics report the level full")
		}
	}
}

// If the app has a readiness probe, the result of the probe is the app's health. While a request for the level "full"
// waits, the agent runs the probe itself; otherwise it uses the results of the kubelet's probes.
func TestFullByProbe(t *testing.T) {
	a := lone(t, "ISTIO_META_APP_CONTAINERS=app",
		`ISTIO_KUBE_APP_PROBERS={"/app-health/app/readyz": {"timeoutSeconds": 60, "httpGet": {"path": "/ready", "port": 8080}}, "/app-health/app/livez": {"tcpSocket": {"port": 1}}}`)
	twin := a.Pod.World.Pod("twin")
	twin.Env = a.Pod.Env
	other := twin.Agent()
	other.Ready()
	wantUnready(t, full(a, ""), "app: its probe failed: connect: connection refused")
	held := make(chan harness.Answer, 1)
	go func() { held <- full(a, "&wait=120s") }()
	waiting := func(n string) func() bool {
		return func() bool {
			return strings.Contains(a.Get(15020, "/metrics").Body, "\noutrider_agent_waiters "+n+"\n")
		}
	}
	process.Eventually(t, "a waiter", waiting("1"), a)

	var probes atomic.Int32
	var unhealthy atomic.Bool
	go http.Serve(harness.Listen(a.Pod.World, a.Pod.Namespace, harness.AppUser, ":8080"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		probes.Add(1)
		if r.URL.Path != "/ready" || unhealthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	if got := <-held; got.Status != 200 {
		t.Errorf("released with %d %s %v", got.Status, got.Body, got.Err)
	}
	if !fullMetric(a, "1") {
		t.Error("the metrics do not report the level full")
	}
	process.Eventually(t, "no waiter", waiting("0"), a)
	before := probes.Load()
	// Meanwhile requests for the level "full" wait at another agent, which therefore probes. This shows that enough
	// time passes for probes.
	var others atomic.Int32
	go http.Serve(harness.Listen(other.Pod.World, other.Pod.Namespace, harness.AppUser, ":8080"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		others.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	go func() {
		for t.Context().Err() == nil {
			full(other, "&wait=60s")
		}
	}()
	process.Eventually(t, "probes for a request that waits", func() bool { return others.Load() >= 8 }, other)
	if n := probes.Load() - before; n > 1 { // one probe may have been in flight
		t.Errorf("no request waits, and the app was probed %d times", n)
	}

	unhealthy.Store(true)
	if got := a.Get(15020, "/app-health/app/readyz"); got.Status != 503 { // the kubelet's probe
		t.Errorf("the probe: %d", got.Status)
	}
	process.Eventually(t, "the metrics report the failed probe", func() bool { return fullMetric(a, "0") }, a)
	if s, ok := a.Status(); !ok || !s.Ready {
		t.Errorf("outbound depends on the app: %v", s)
	}
	wantUnready(t, full(a, ""), "app: its probe failed: status 503")
	unhealthy.Store(false)
	process.Eventually(t, "the level full", func() bool { return full(a, "").Status == 200 }, a) // the agent probes again
}

// Behind a gate, the gate reports the app's health, and the agent needs no probe.
func TestFullByGate(t *testing.T) {
	a := lone(t, "ISTIO_META_APP_CONTAINERS=app")
	p := a.Pod
	healthy := filepath.Join(p.World.Dir, "healthy")
	probe := `{"exec": {"command": ["test", "-e", "` + healthy + `"]}, "periodSeconds": 1, "failureThreshold": 1}`
	gate := p.Gate("--after", "outrider-proxy is healthy", "--probe", probe, "--", "sleep", "infinity")
	process.Eventually(t, "the command runs", func() bool { return strings.Contains(p.State("app"), `"phase":"running"`) }, gate)
	process.Eventually(t, "and is not healthy", func() bool {
		return strings.Contains(full(a, "").Body, "app: its gate does not report that it is healthy")
	}, a, gate)
	held := make(chan harness.Answer, 1)
	go func() { held <- full(a, "&wait=120s") }()
	if err := os.WriteFile(healthy, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := <-held; got.Status != 200 {
		t.Errorf("released with %d %s %v", got.Status, got.Body, got.Err)
	}
	if err := os.Remove(healthy); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the metrics report the failed probe", func() bool { return fullMetric(a, "0") }, a, gate)
	gate.Kill()
	process.Eventually(t, "it is gone", func() bool { return strings.Contains(full(a, "").Body, "app: its command does not run") }, a)
}

// For an app behind a gate, the agent answers two probes differently: the startup probe succeeds when the command
// begins, and until then the liveness probe does not reach the application. Without a readiness probe, the
// application's health is the result of the startup probe, which the gate runs.
func TestProbesOfAGate(t *testing.T) {
	a := lone(t, "ISTIO_META_APP_CONTAINERS=app",
		`ISTIO_KUBE_APP_PROBERS={"/app-health/app/startedz": {"timeoutSeconds": 60}, "/app-health/app/livez": {"timeoutSeconds": 60, "tcpSocket": {"port": 8080}}}`)
	p := a.Pod
	probe := func(name string) harness.Answer { return a.Get(15020, "/app-health/app/"+name) }
	began := make(chan harness.Answer, 1)
	go func() { began <- probe("startedz") }()
	up := filepath.Join(p.World.Dir, "up")
	startup := `{"exec": {"command": ["test", "-e", "` + up + `"]}, "periodSeconds": 1, "failureThreshold": 600}`
	gate := p.Gate("--after", "cache is started", "--startup-probe", startup, "--", "sleep", "infinity")
	process.Eventually(t, "the gate waits", func() bool { return strings.Contains(p.State("app"), `"phase":"waiting"`) }, gate)
	process.Eventually(t, "liveness is held", func() bool { return probe("livez").Status == 200 }, a)
	cache := p.GateOf("cache", "--", "sleep", "infinity")
	process.Eventually(t, "the command runs", func() bool { return strings.Contains(p.State("app"), `"startingUp":true`) }, gate)
	select {
	case got := <-began:
		t.Errorf("answered before the startup probe succeeded: %d %s %v", got.Status, got.Body, got.Err)
	default:
	}
	const unhealthy = "app: its gate does not report that it is healthy"
	// The agent watches the state file, and reads a change a little later than this test.
	process.Eventually(t, "the agent has read it", func() bool { return strings.Contains(full(a, "").Body, unhealthy) }, a)
	wantUnready(t, full(a, ""), unhealthy)
	if err := os.WriteFile(up, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := <-began; got.Status != 200 {
		t.Errorf("the command has started up: %d %s %v", got.Status, got.Body, got.Err)
	}
	process.Eventually(t, "liveness counts, and nothing listens", func() bool { return probe("livez").Status == 500 }, a)
	if got := full(a, ""); got.Status != 200 {
		t.Errorf("level full: %d %s", got.Status, got.Body)
	}
	gate.Kill()
	cache.Kill()
}
