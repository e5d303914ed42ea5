package agent

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/agent/harness"
)

// replace announces a replacement to the agent, and then does what the kubelet does when the image of a container in
// a running pod is changed: it stops the agent and starts a new one. The capture rules and the volumes stay.
func replace(t *testing.T, a *harness.Agent) *harness.Agent {
	t.Helper()
	if got := a.Post("/replace"); got.Status != 200 {
		t.Fatalf("POST /replace: %d %q, %v", got.Status, got.Body, got.Err)
	}
	took, status := stopped(a)
	t.Logf("left after %s: %s", took.Round(time.Millisecond), outcome(a))
	if status != 0 || why(a) != "this container is replaced" {
		t.Errorf("status %d, %q; want 0, and that it is replaced", status, why(a))
	}
	next := a.Pod.Agent()
	next.Ready()
	return next
}

// outcome returns the result of the drain from the agent's log.
func outcome(a *harness.Agent) string {
	_, rest, _ := strings.Cut(a.Log(), `"msg":"drained"`)
	_, rest, _ = strings.Cut(rest, `"outcome":"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}

// drains sets the drain duration of pods.
func drains(d time.Duration, pods ...*harness.Pod) {
	for _, p := range pods {
		p.Env = append(p.Env, fmt.Sprintf(`PROXY_CONFIG={"terminationDrainDuration": "%s"}`, d))
	}
}

// The proxy containers of a client and of a server are replaced under load while the applications run. No request
// fails, on persistent or on new connections.
func TestContainersAreReplaced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		capture []string
		env     []string
		more    []uintptr
	}{
		{name: "redirect"},
		{name: "transparent", capture: []string{"-m", "TPROXY"}, env: []string{"ISTIO_META_INTERCEPTION_MODE=TPROXY"}, more: []uintptr{unix.CAP_NET_ADMIN}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := harness.New(t)
			w.Capture = tt.capture
			client, server := pair(w, func(c, s *harness.Pod) {
				drains(time.Second, c, s)
				for _, p := range []*harness.Pod{c, s} {
					p.Env, p.Capabilities = append(p.Env, tt.env...), tt.more
				}
			})
			url, want := "http://"+vip+"/", "server HTTP/1.1"
			loads := twoLoads(client.Pod, url, want)
			for range 3 {
				server = replace(t, server)
				client = replace(t, client)
			}
			judgeAll(t, loads)
		})
	}
}

// A request in flight is answered before the replaced proxy exits, even if it takes longer than the drain time, and
// the application opens a new outbound connection meanwhile to produce the answer. An idle TCP connection is cut, and
// does not delay the exit.
func TestReplacedContainerAnswersFirst(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	const other = "10.96.0.11"
	arrived, answer := make(chan struct{}), make(chan struct{})
	client, server := slowPair(w, 10*time.Second, func(s *harness.Pod, w http.ResponseWriter) {
		close(arrived)
		<-answer
		if err := fresh(s, "http://"+other+"/", "other HTTP/1.1")(); err != nil {
			fmt.Fprintf(w, "its own call: %v, ", err)
		}
		io.WriteString(w, "late")
	})
	w.Service("other", other, "other", ports...)
	third := w.Pod("other")
	app(third)
	w.Known(2, 3)
	third.Agent().Ready()
	idle, err := harness.Dialer(client.Pod.Namespace, harness.AppUser)(t.Context(), "tcp", vip+":90")
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	fmt.Fprintln(idle, "before")
	if got, err := firstLine(idle); got != "before\n" {
		t.Fatalf("%q, %v", got, err)
	}
	got := make(chan error, 1)
	go func() { got <- fresh(client.Pod, "http://"+vip+":83/late", "late")() }()
	<-arrived
	parked := map[*harness.Agent]string{server: "inbound", client: "outbound"}
	for a := range parked { // any order: both agents are stopped
		a.Post("/replace")
		a.Signal(syscall.SIGTERM)
	}
	for a, direction := range parked { // any order: both log lines are awaited
		a.Logs(`"direction":"` + direction + `"`) // the drain time is over, and new connections are parked from now on
	}
	close(answer)
	if err := <-got; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	for _, a := range []*harness.Agent{server, client} {
		if status := a.Exit(); status != 0 || !strings.HasPrefix(outcome(a), "requests cut: 0, bytes not passed on: 0") {
			t.Errorf("status %d, %q", status, outcome(a))
		}
	}
}

// A response that does not end delays the replacement by the drain time only, and not by the whole grace period,
// because new callers wait meanwhile.
func TestReplacedContainerCutsStreams(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	begun, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over) })
	client, server := slowPair(w, time.Second, func(_ *harness.Pod, w http.ResponseWriter) {
		w.(http.Flusher).Flush()
		close(begun)
		<-over
	})
	go fresh(client.Pod, "http://"+vip+":83/late", "")()
	<-begun
	server.Post("/replace")
	server.Signal(syscall.SIGTERM)
	if status := server.Exit(); status != 0 || !strings.HasPrefix(outcome(server), "requests cut: 1,") || strings.Contains(server.Log(), "grace over") {
		t.Errorf("status %d, %q; want 0, one request cut, and not by the end of the grace period", status, outcome(server))
	}
}

// slowPair makes a client and a server. The function answer handles requests for /late at the server's port 83.
func slowPair(w *harness.World, drain time.Duration, answer func(server *harness.Pod, w http.ResponseWriter)) (client, server *harness.Agent) {
	w.T.Helper()
	w.Service("server", vip, "server", append([]string{"http-late 83"}, ports...)...)
	w.Serve()
	c, s := w.Pod("client"), w.Pod("server")
	drains(drain, c, s)
	app(s)
	web := http.NewServeMux()
	web.HandleFunc("/late", func(w http.ResponseWriter, _ *http.Request) { answer(s, w) })
	slow := &http.Server{Handler: web}
	w.T.Cleanup(func() { slow.Close() })
	go slow.Serve(harness.Listen(w, s.Namespace, harness.AppUser, ":83"))
	w.Known(1, 2)
	client, server = c.Agent(), s.Agent()
	client.Ready()
	server.Ready()
	return client, server
}

// A request in flight is answered although Envoy has not answered the agent for more than a second, because other
// processes have the processor.
func TestReplacedContainerIsBusy(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	arrived, answer := make(chan struct{}), make(chan struct{})
	client, server := slowPair(w, 5*time.Second, func(_ *harness.Pod, w http.ResponseWriter) {
		close(arrived)
		<-answer
		io.WriteString(w, "late")
	})
	got := make(chan error, 1)
	go func() { got <- fresh(client.Pod, "http://"+vip+":83/late", "late")() }()
	<-arrived
	server.Post("/replace")
	server.Signal(syscall.SIGTERM)
	server.Logs(`"direction":"inbound"`) // new connections are parked from now on
	pid := server.Envoy()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	server.Logs("Envoy has not answered")
	unix.Kill(pid, unix.SIGCONT)
	close(answer)
	if err := <-got; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	if status := server.Exit(); status != 0 || !strings.HasPrefix(outcome(server), "requests cut: 0, bytes not passed on: 0") {
		t.Errorf("status %d, %q", status, outcome(server))
	}
}
