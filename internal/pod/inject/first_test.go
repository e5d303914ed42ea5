package inject

import (
	"strings"
	"testing"

	"outrider.dev/internal/contract"
	"outrider.dev/internal/pod/podspec"
)

// A command that has to be process 1 gets no gate, which would be that itself, unless its
// author says that it need not be.
func TestWhatHasToBeProcess1GetsNoGate(t *testing.T) {
	pod := func(command, annotations string) string {
		return "metadata: {name: a, annotations: {" + annotations + "}}\nspec: {containers: [{name: app, image: a, command: [" + command + "]}, {name: other, image: b, command: [/b]}]}"
	}
	for name, tt := range map[string]struct {
		text    string
		kube    int
		gated   bool
		native  bool
		warning string
	}{
		"init":                  {pod("/sbin/init", ""), 34, false, true, "the command of app has to be process 1"},
		"s6-overlay's":          {pod("/init", ""), 34, false, true, "the command of app has to be process 1"},
		"systemd":               {pod("/usr/lib/systemd/systemd", ""), 34, false, true, "the command of app has to be process 1"},
		"a name like it":        {pod("/app/initialise", ""), 34, true, false, ""},
		"a word like it":        {pod("/app, init", ""), 34, true, false, ""},
		"before native ones":    {pod("/sbin/init", ""), 28, false, false, "the command of app has to be process 1"},
		"its author knows":      {pod("/sbin/init", "outrider.dev/start: gate"), 34, true, false, ""},
		"of this edge":          {pod("/sbin/init", `outrider.dev/depends-on: "{app: {outrider-proxy: {condition: healthy, by: gate}}}"`), 34, true, false, ""},
		"as what is waited for": {pod("/sbin/init", "outrider.dev/depends-on.other: app=started"), 34, false, false, "the command of app has to be process 1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := podOf(t, tt.text)
			r, err := Pod(p, Namespace{Name: "shop"}, Options{Kubernetes: kubernetes(tt.kube)})
			if err != nil {
				if tt.warning == "" || !strings.Contains(err.Error(), tt.warning) {
					t.Fatal(err)
				}
				return
			}
			checkInjected(t, p, r, Options{Kubernetes: kubernetes(tt.kube)})
			proxy, app := find(r.Pod, contract.ProxyContainer), find(r.Pod, "app")
			if podspec.Gated(app) != tt.gated || (proxy.RestartPolicy != nil) != tt.native {
				t.Errorf("gated: %t, native: %t", podspec.Gated(app), proxy.RestartPolicy != nil)
			}
			if got := strings.Join(r.Warnings, "\n"); !strings.Contains(got, tt.warning) || tt.warning == "" && strings.Contains(got, "process 1") {
				t.Errorf("warnings %q, want %q", got, tt.warning)
			}
		})
	}
}

// What the pod says of several ports and paths reaches the agent, pair by pair.
func TestScrapeTargetsReachTheAgent(t *testing.T) {
	p := podOf(t, `{metadata: {name: a, annotations: {prometheus.istio.io/scrape-targets: "80:/a, 81:/b,82", prometheus.io/port: "9999"}}, spec: {containers: [{name: app, image: a, command: [/a]}]}}`)
	r, err := Pod(p, Namespace{Name: "shop"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkInjected(t, p, r, Options{})
	got := ""
	for _, e := range find(r.Pod, contract.ProxyContainer).Env {
		if e.Name == metricsEnv {
			got = e.Value
		}
	}
	if want := `{"scrape":"","path":"","port":"","targets":[{"port":"80","path":"/a"},{"port":"81","path":"/b"},{"port":"82","path":"/metrics"}]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := r.Pod.Annotations["prometheus.io/port"]; got != "15020" {
		t.Errorf("Prometheus is sent to port %s", got)
	}
}

// A port of the proxy's that the app declares is said, and refuses no pod.
func TestPortsOfTheProxyAreSaid(t *testing.T) {
	p := podOf(t, `{metadata: {name: a, annotations: {status.sidecar.istio.io/port: "8080", sidecar.istio.io/capNetBindService: x, ambient.istio.io/redirection: enabled, networking.istio.io/tunel: http, istio.io/dataplane-mode: ambient}},
  spec: {containers: [{name: app, image: a, command: [/a], ports: [{containerPort: 15001}, {containerPort: 8080}, {containerPort: 15020}, {containerPort: 15021, protocol: UDP}, {containerPort: 80}]}]}}`)
	r, err := Pod(p, Namespace{Name: "shop"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"app declares port 15001, which is the proxy's outbound port", "app declares port 8080, which is the agent's port",
		`capNetBindService: "x" has no effect: want true or false`, "ambient.istio.io/redirection has no effect", "networking.istio.io/tunel is not known (did you mean networking.istio.io/tunnel?)",
		"istio.io/dataplane-mode has no effect"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if len(r.Clashes) != 2 {
		t.Errorf("%v", r.Clashes)
	}
}
