package agent

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
)

// Any pod can connect to the status ports: mutual TLS does not cover them, so that the kubelet can call them from
// the node's address. Still, a pod outside the mesh that forges headers can trigger no action, and cannot prevent
// answers to the kubelet's probes.
func TestOtherPodsCannotUseTheStatusPorts(t *testing.T) {
	t.Parallel()
	const key = "not-to-be-guessed-0123456789"
	w := harness.New(t)
	w.Serve()
	keyed, plain, outsider := w.Pod("keyed"), w.Pod("plain"), w.Machine("outsider")
	probers := `ISTIO_KUBE_APP_PROBERS={"/app-health/app/readyz": {"timeoutSeconds": 60, "httpGet": {"path": "/ready", "port": 8080}}, "/app-lifecycle/app/prestopz": {"httpGet": {"path": "/stop", "port": 8080}}}`
	keyed.Env = []string{probers, "OUTRIDER_PROBE_KEY=" + key, "OUTRIDER_METRICS_FROM=node"}
	plain.Env = []string{probers}
	const fromKubelet = "kube-probe/1.34"
	var calls atomic.Int32
	var header atomic.Pointer[http.Header]
	agents := map[*harness.Pod]*harness.Agent{}
	for _, p := range []*harness.Pod{keyed, plain} {
		agents[p] = p.Agent()
		agents[p].Ready()
		server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.UserAgent() == fromKubelet { // do not count the agent's own probes
				calls.Add(1)
			}
			header.Store(&r.Header)
		})}
		go server.Serve(harness.Listen(w, p.Namespace, harness.AppUser, ":8080"))
		t.Cleanup(func() { server.Close() })
	}
	const probe, hook = "/app-health/app/readyz", "/app-lifecycle/app/prestopz"
	node, other := harness.NewClient(w.Node, 0), harness.NewClient(outsider.Namespace, 0)
	defer node.Close()
	defer other.Close()
	get := func(c *harness.Client, p *harness.Pod, port int, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequest("GET", fmt.Sprintf("http://%s:%d%s", p.Address, port, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"User-Agent": {fromKubelet}, "Authorization": {"Bearer x"}, "X-Forwarded-Client-Cert": {"By=x;URI=spiffe://cluster.local/ns/x/sa/x"}}
		res, err := c.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	for _, tt := range []struct {
		client *harness.Client
		pod    *harness.Pod
		port   int
		path   string
		code   int
		app    bool // whether the app is called
	}{
		{node, keyed, 15020, probe + "/" + key, 200, true},
		{node, keyed, 15020, hook + "/" + key, 200, true},
		{node, keyed, 15020, hook, 403, false}, // the node's address proves nothing: pods with host network have it too
		{other, keyed, 15020, probe, 403, false},
		{other, keyed, 15020, hook, 403, false},
		{other, keyed, 15020, hook + "/" + key + "x", 403, false},
		{other, keyed, 15021, hook, 403, false},
		{other, keyed, 15020, "/metrics", 403, false},
		{other, keyed, 15020, "/startup", 403, false},
		{other, keyed, 15020, "/debug/goroutines", 403, false},
		{other, keyed, 15020, "/quitquitquit", 403, false},
		{other, keyed, 15020, "/drain", 403, false},
		{other, keyed, 15021, "/healthz/ready", 200, false},
		{node, keyed, 15020, "/metrics", 200, false},

		{node, plain, 15020, probe, 200, true}, // without a key, the gateway of the pod's default route may call
		{node, plain, 15020, hook, 200, true},
		{node, plain, 15021, hook, 403, false},
		{other, plain, 15020, probe, 403, false},
		{other, plain, 15020, hook, 403, false},
		{other, plain, 15020, "/metrics", 200, false}, // as Istio allows
		{other, plain, 15090, "/stats/prometheus", 200, false},
	} {
		calls.Store(0)
		code, body := get(tt.client, tt.pod, tt.port, tt.path)
		if code != tt.code || calls.Load() > 0 != tt.app {
			t.Errorf("%s of %s, port %d: %d %s, %d calls of the app; want %d and %t", tt.path, tt.pod.Name, tt.port, code, body, calls.Load(), tt.code, tt.app)
		}
		if h := header.Swap(nil); h != nil && (h.Get("Authorization") != "" || h.Get("X-Forwarded-Client-Cert") != "" || !strings.HasPrefix(h.Get("User-Agent"), "kube-probe/")) {
			t.Errorf("%s: the app got %v", tt.path, *h)
		}
	}
	if res, err := other.Client.Get(fmt.Sprintf("http://%s:15090/stats/prometheus", keyed.Address)); err == nil {
		res.Body.Close()
		t.Errorf("Envoy's own metrics: %d, and the agent's are for the node", res.StatusCode)
	}

	// The other pod opens more idle connections than the limit; the kubelet's probes are still answered.
	for range 1000 {
		c, err := harness.Dialer(outsider.Namespace, 0)(t.Context(), "tcp", fmt.Sprintf("%s:15021", keyed.Address))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	fresh := harness.NewClient(w.Node, 0)
	defer fresh.Close()
	for port, path := range map[int]string{15020: probe + "/" + key, 15021: "/healthz/ready"} {
		began := time.Now()
		if code, body := get(fresh, keyed, port, path); code != 200 {
			t.Errorf("the kubelet's %s beside 1,000 idle connections: %d %s", path, code, body)
		}
		t.Logf("port %d answered after %s", port, time.Since(began))
	}
	if metrics := agents[keyed].Get(15020, "/metrics").Body; !strings.Contains(metrics, "outrider_agent_connections_dropped_total") || strings.Contains(metrics, "outrider_agent_connections_dropped_total 0\n") {
		t.Error("no connection was dropped")
	}
}
