package agent

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

var listenersAnswered = regexp.MustCompile(`listener_manager\.lds\.update_success: \d+`)

// answers returns how many messages with listeners an agent's Envoy has accepted; "" if Envoy does not answer.
func answers(a *harness.Agent) string {
	return listenersAnswered.FindString(a.Get(15000, "/stats?filter=lds.update_success").Body)
}

// Listeners change while the containers of a server's and a client's proxy are replaced, at the client's because
// another control plane comes. No request fails, and the client's first call to a new service is answered.
func TestListenersChangeInAReplacement(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	client, server := pair(w, func(c, s *harness.Pod) { drains(2*time.Second, c, s) })
	url, want := "http://"+vip+"/", "server HTTP/1.1"
	loads := twoLoads(client.Pod, url, want)
	first := make(chan error, 1)
	for _, c := range []struct {
		*harness.Agent
		change func()
	}{
		{server, func() { w.Manifest("strict", strict) }},
		{client, func() {
			const connected = `"msg":"the control plane is connected"`
			connections := strings.Count(client.Log(), connected)
			w.Plane().Kill()
			w.Manifest("strict", "")
			w.Service("other", "10.96.0.11", "server", "http 80", "tcp-more 5000")
			w.Serve()
			w.Known(2, 2)
			// Without a control plane a proxy refuses a service that is new to it.
			process.Eventually(t, "the proxy has the new control plane, or has left", func() bool {
				_, runs := client.Child()
				return strings.Count(client.Log(), connected) > connections || !runs
			}, w.Plane())
			go func() { first <- fresh(client.Pod, "http://10.96.0.11/", want)() }()
		}},
	} {
		before := answers(c.Agent)
		c.Post("/replace")
		c.Signal(syscall.SIGTERM)
		c.Logs(draining)
		c.change()
		process.Eventually(t, "the change has arrived, or the proxy has left", func() bool { return answers(c.Agent) != before }, w.Plane())
		if status := c.Exit(); status != 0 || !strings.HasPrefix(outcome(c.Agent), "requests cut: 0, bytes not passed on: 0") {
			t.Errorf("%s: status %d, %q", c.Pod.Name, status, outcome(c.Agent))
		}
		c.Pod.Agent().Ready()
	}
	if err := <-first; err != nil {
		t.Errorf("the first call to a new service: %v", err)
	}
	judgeAll(t, loads)
}

// Listeners change while a pod stops. Clients are still asked to close their connections, and the pod's proxy leaves
// as soon as its application has ended.
func TestListenersChangeInAStop(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	_, server := pair(w, func(_, s *harness.Pod) {
		s.Env = []string{"ISTIO_META_APP_CONTAINERS=app", `PROXY_CONFIG={"drainDuration": "60s", "terminationDrainDuration": "1s"}`}
		s.Args = []string{"--grace", "120s"}
	})
	gate := server.Pod.Gate("--", "sleep", "1000")
	process.Eventually(t, "the app runs behind its gate", func() bool { return strings.Contains(server.Pod.State("app"), `"phase":"running"`) }, gate, server)
	outsider := harness.NewClient(w.Machine("outsider").Namespace, 0)
	defer outsider.Close()
	get := func() harness.Answer { return outsider.Get("http://" + server.Pod.Address.String() + "/") }
	server.Signal(syscall.SIGTERM)
	process.Eventually(t, "the drain has begun", func() bool { return get().Close }, server)
	before := answers(server)
	w.Manifest("strict", strict)
	process.Eventually(t, "the change has arrived", func() bool { return answers(server) != before }, server, w.Plane())
	for range 3 {
		if a := get(); a.Want("server HTTP/1.1") != nil || !a.Close {
			t.Errorf("a request during the drain: %v, close: %t", a.Want("server HTTP/1.1"), a.Close)
		}
	}
	gate.Kill()
	if status := server.Exit(); status != 0 || why(server) != "all applications have ended" {
		t.Errorf("status %d, %q", status, why(server))
	}
}
