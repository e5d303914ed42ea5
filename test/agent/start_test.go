package agent

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// During the start, the readiness port names the missing requirement. Once it is met, the agent becomes ready.
func TestStartSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("late")
	token := p.Token

	w.Run("no token", func(t *testing.T) {
		p.Token = filepath.Join(p.Dir, "token")
		a := p.Agent()
		defer a.Kill()
		got := a.Unready("certificate-missing", "there is no token")
		if got.Hint == "" || !strings.Contains(got.Message, p.Token) {
			t.Errorf("%+v; want the file's name and a hint", got)
		}
		raw, _ := os.ReadFile(token)
		if err := os.WriteFile(p.Token, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		a.Ready()
	})
	p.Token = token
	forget := func() {
		if err := os.RemoveAll(filepath.Join(p.Dir, "work", "certs")); err != nil {
			t.Fatal(err)
		}
	}

	w.Run("a token that the control plane refuses", func(t *testing.T) {
		forget()
		p.Token = filepath.Join(p.Dir, "wrong")
		if err := os.WriteFile(p.Token, []byte("bm90LWEtdG9rZW4"), 0o644); err != nil {
			t.Fatal(err)
		}
		a := p.Agent()
		defer a.Kill()
		a.Unready("certificate-missing", "refuses")
		a.Unready("identity-refused", "refuses")
		p.Token = token
	})

	w.Run("another root", func(t *testing.T) {
		forget()
		other := harness.New(t)
		other.Serve()
		right, err := os.ReadFile(w.Roots())
		wrong, err2 := os.ReadFile(other.Roots())
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		defer os.WriteFile(w.Roots(), right, 0o644)
		if err := os.WriteFile(w.Roots(), wrong, 0o644); err != nil {
			t.Fatal(err)
		}
		a := p.Agent()
		defer a.Kill()
		a.Unready("identity-refused", "unknown root")
		if err := os.WriteFile(w.Roots(), right, 0o644); err != nil {
			t.Fatal(err)
		}
		a.Ready()
	})

	w.Run("no control plane", func(t *testing.T) {
		forget()
		w.Plane().Kill()
		a := p.Agent()
		defer a.Kill()
		a.Unready("certificate-missing", "is not reached")
		a.Unready("no-control-plane", "")
		got := a.Get(15021, "/healthz/ready")
		var s readiness.Status
		if err := json.Unmarshal([]byte(got.Body), &s); got.Status != 503 || err != nil || s.Ready || len(s.Reasons) == 0 {
			t.Errorf("%d %s; want 503 and reasons as JSON", got.Status, got.Body)
		}
		gate := p.Gate("--after", "outrider-proxy is healthy", "--", "sleep", "60")
		defer gate.Kill()
		process.Eventually(t, "the gate's log has the proxy's reason", func() bool {
			raw, err := os.ReadFile(filepath.Join(p.Dir, "gate.log"))
			return err == nil && regexp.MustCompile("not ready: certificate-missing: .*the control plane .* is not reached: .*; see kubectl logs").Match(raw)
		}, gate, a)
		w.Serve()
		up := time.Now()
		a.Ready()
		t.Logf("ready %s after the control plane", time.Since(up).Round(time.Millisecond))
	})

	// The agent has its certificate already, so only Envoy must connect to the control plane.
	w.Run("no control plane, at a restart of the agent", func(t *testing.T) {
		w.Plane().Kill()
		a := p.Agent()
		defer a.Kill()
		a.Unready("no-control-plane", harness.Discovery)
		w.Serve()
		up := time.Now()
		a.Ready()
		t.Logf("ready %s after the control plane", time.Since(up).Round(time.Millisecond))
	})
}

// On an error that cannot go away by itself, the agent exits with a non-zero status, and writes the reason to the
// termination message file, which the kubelet reads.
func TestStartThatCannotWork(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(w.Dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var held net.Listener
	tests := map[string]struct {
		change  func(p *harness.Pod)
		status  int
		message string
	}{
		"no Envoy": {
			func(p *harness.Pod) { p.Envoy = "/nowhere/envoy" }, 127, "starting /nowhere/envoy: there is no such file"},
		"an Envoy that must not be executed": {
			func(p *harness.Pod) { p.Envoy = file("mode", "x", 0o644) }, 126, "it must not be executed"},
		"an Envoy that is no program": {
			func(p *harness.Pod) { p.Envoy = file("text", "no program", 0o755) }, 126, "it is no program for this machine"},
		"another program in Envoy's place": {
			func(p *harness.Pod) { p.Envoy = "/bin/false" }, 1, "ended 8 times in a row without having been ready"},
		"an extra bootstrap that Envoy rejects": {
			func(p *harness.Pod) {
				p.Env = []string{"ISTIO_BOOTSTRAP_OVERRIDE=" + file("extra.json", `{"static_resources": {"clusters": [{"name": "mine", "type": "NO_SUCH"}]}}`, 0o644)}
			}, 1, "configuration rejected"},
		"a status port that is taken": {
			func(p *harness.Pod) { held = harness.Listen(w, p.Namespace, harness.AppUser, "0.0.0.0:15020") }, 1, "status port 15020"},
		"a capture port that is taken": {
			func(p *harness.Pod) { held = harness.Listen(w, p.Namespace, harness.AppUser, "0.0.0.0:15001") }, 1, "port 15001"},
	}
	for name, tt := range tests {
		w.Run(name, func(t *testing.T) {
			p := w.Pod("broken")
			tt.change(p)
			a := p.Agent()
			status := a.Exit()
			if held != nil {
				held.Close()
			}
			if status != tt.status || !strings.Contains(p.Message(), tt.message) {
				t.Errorf("status %d, message %q; want %d, %q\n%s", status, p.Message(), tt.status, tt.message, a.Log())
			}
		})
	}
}

// An invalid configuration is refused before a port is bound.
func TestConfigurationIsRefusedFirst(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("wrong")
	tests := map[string]struct {
		env, args []string
		message   string
	}{
		"a directory for a socket":  {args: []string{"--work-dir", "/" + strings.Repeat("x", 107)}, message: "--work-dir"},
		"a duration":                {env: []string{"SECRET_TTL=long"}, message: "variable SECRET_TTL"},
		"two users of one port":     {env: []string{"ENVOY_STATUS_PORT=15020"}, message: "15020"},
		"an address without a port": {args: []string{"--control-plane", "somewhere"}, message: "somewhere"},
		"the app's probes":          {env: []string{`ISTIO_KUBE_APP_PROBERS={"/app-health/app/readyz":{"httpGet":7}}`}, message: "ISTIO_KUBE_APP_PROBERS"},
		"the app's metrics":         {env: []string{`ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":7}`}, message: "ISTIO_PROMETHEUS_ANNOTATIONS"},
		"Envoy's log level":         {args: []string{"--proxyLogLevel", "loud"}, message: "loud"},
		"an extra bootstrap that is not there": {
			env: []string{"ISTIO_BOOTSTRAP_OVERRIDE=/nowhere.json"}, message: "ISTIO_BOOTSTRAP_OVERRIDE"},
	}
	for name, tt := range tests {
		w.Run(name, func(t *testing.T) {
			p.Env, p.Args = tt.env, tt.args
			a := p.Agent()
			bound := false
			for running := true; running; {
				select {
				case <-a.Done():
					running = false
				default:
					bound = bound || p.Bound(15000, 15001, 15006, 15020, 15021, 15090)
				}
			}
			if status := a.Exit(); status != 2 || bound || !strings.Contains(p.Message(), tt.message) {
				t.Errorf("status %d, a port was bound: %t, message %q; want 2, false, %q\n%s", status, bound, p.Message(), tt.message, a.Log())
			}
		})
	}
}
