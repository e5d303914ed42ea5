package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// A window is a time in which failures are excused because a process ended. Between the times begin and end, requests
// in flight may fail. Between end and the time back, at which the next process serves, one more request may fail for
// each connection that ended with the old process: a busy proxy notices that only when it uses the connection.
type window struct {
	begin, end, back time.Time
	connections      int // maximum number of connections that ended with the process
}

// excuses reports whether the window excuses a failure. A failure after w.end uses up one of the window's
// connections.
func (w *window) excuses(f harness.Failure) bool {
	if f.Begin.Before(w.end) {
		return f.End.After(w.begin)
	}
	if f.Begin.After(w.back) {
		return false
	}
	w.connections--
	return w.connections >= 0
}

// judge stops a load, and fails the test for each failure that no window excuses.
func judge(t *testing.T, what string, l *harness.Load, windows ...window) {
	t.Helper()
	made, slowest, failed := l.Stop()
	excused := 0
	windows = slices.Clone(windows)
	for _, f := range failed {
		ok := false
		for i := range windows {
			ok = ok || windows[i].excuses(f)
		}
		if ok {
			excused++
			continue
		}
		t.Errorf("%s: %v", what, f)
	}
	t.Logf("%s: %d made, %d failed in flight, slowest %s", what, made, excused, slowest.Round(time.Millisecond))
	if made == 0 {
		t.Errorf("%s: no request was made", what)
	}
}

// judgeAll judges each load.
func judgeAll(t *testing.T, loads map[string]*harness.Load, windows ...window) {
	t.Helper()
	for name, l := range loads { // any order: each load is judged alone
		judge(t, name, l, windows...)
	}
}

// twoLoads starts a load by new connections, and one by kept connections.
func twoLoads(from *harness.Pod, url, want string) map[string]*harness.Load {
	return map[string]*harness.Load{
		"new connections":  harness.NewLoad(workers, pause, fresh(from, url, want)),
		"kept connections": harness.NewLoad(workers, pause, kept(from, url, want)),
	}
}

// used waits until the client has got an answer, so that its proxy has the server's configuration. Without the
// control plane, only services that were used before can be called.
func used(t *testing.T, client *harness.Agent) {
	t.Helper()
	process.Eventually(t, "the first answer", func() bool { return fresh(client.Pod, "http://"+vip+"/", "server HTTP/1.1")() == nil }, client)
}

// fresh returns a function that makes a request, on a new connection each time. The function kept returns one that
// uses a persistent connection.
func fresh(p *harness.Pod, url, want string) func() error {
	return func() error {
		c := harness.NewClient(p.Namespace, harness.AppUser)
		defer c.Close()
		return c.Get(url).Want(want)
	}
}

func kept(p *harness.Pod, url, want string) func() error {
	c := harness.NewClient(p.Namespace, harness.AppUser)
	p.World.T.Cleanup(c.Close)
	return func() error { return c.Get(url).Want(want) }
}

const (
	pause   = 5 * time.Millisecond // time between two requests of a load
	workers = 2                    // number of a load's workers, each with one connection at a time
)

// When Envoy is killed repeatedly under load, on the client's or on the server's side, only requests in
// flight fail. If the killed Envoy has served for a second, the agent starts the next one without a pause.
func TestEnvoyIsKilled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kills  int
		serves time.Duration // time for which Envoy serves before each kill
		which  func(client, server *harness.Agent) *harness.Agent
	}{
		"the caller's": {tier.Times(6, 20), 100 * time.Millisecond, func(c, _ *harness.Agent) *harness.Agent { return c }},
		"the server's": {tier.Times(3, 6), 1200 * time.Millisecond, func(_, s *harness.Agent) *harness.Agent { return s }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client, server := two(t)
			victim := tt.which(client, server)
			killOften(t, client, victim, tt.kills, tt.serves)
			if pauses := restartPauses(victim.Log()); tt.serves > time.Second && !slices.Equal(pauses, make([]time.Duration, tt.kills)) {
				t.Errorf("pauses before a restart: %v, must be %d times 0", pauses, tt.kills)
			}
		})
	}
}

// restartPauses returns the pauses in an agent's log, one for each exit of its Envoy.
func restartPauses(log string) (all []time.Duration) {
	for line := range strings.Lines(log) {
		var e struct {
			Msg   string
			Pause time.Duration
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Msg == "proxy ended" {
			all = append(all, e.Pause)
		}
	}
	return all
}

func killOften(t *testing.T, client, victim *harness.Agent, kills int, serves time.Duration) {
	used(t, client)
	victim.Logs(serving) // from now on the agent measures the time for which Envoy has served
	url := "http://" + vip + "/"
	loads := twoLoads(client.Pod, url, "server HTTP/1.1")
	var dead []window
	var back []time.Duration
	for range kills {
		time.Sleep(serves)
		begin, end := another(t, victim)
		dead = append(dead, window{begin, end, time.Now(), len(loads) * workers})
		back = append(back, time.Since(end))
	}
	judgeAll(t, loads, dead...)
	t.Log(spread("from its death to ready again", back))
}

// While a pod's proxy restarts slowly, its callers' connections are parked for longer than one try of a
// request may take. When such a connection fails, one try of every request that waits for it fails too. No
// request runs out of tries: connections fail only during the second and the third second, and the pauses
// between the tries of a request are random and longer than that.
func TestManyCallersOfAProxyThatRestartsSlowly(t *testing.T) {
	w := harness.New(t)
	slow := filepath.Join(w.Dir, "slow")
	script := filepath.Join(w.Dir, "envoy.sh")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(script, fmt.Sprintf("#!/bin/sh\n[ -e %s ] && sleep 3\nexec %s \"$@\"\n", slow, w.Binaries.Envoy))
	client, server := pair(w, func(_, server *harness.Pod) { server.Envoy = script })
	call := fresh(client.Pod, "http://"+vip+"/", "server HTTP/1.1")
	if err := call(); err != nil {
		t.Fatal(err)
	}
	write(slow, "")
	harness.KillAndWatch(t, server.Envoy())
	failed := make(chan error, 100)
	for range cap(failed) {
		go func() { failed <- call() }()
		time.Sleep(20 * time.Millisecond) // so that the connections fail one after another
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// Envoy exits when its agent is killed, so that the ports are free for the next agent.
func TestAgentIsKilled(t *testing.T) {
	t.Parallel()
	_, client, _ := two(t)
	envoy := client.Envoy()
	client.Kill()
	t.Logf("Envoy ended %s after its agent", process.AwaitEnd(t, envoy).Round(time.Millisecond))
	again := client.Pod.Agent()
	again.Ready()
	if err := fresh(client.Pod, "http://"+vip+"/", "server HTTP/1.1")(); err != nil {
		t.Error(err)
	}
}

// routeOfOther is an HTTPRoute for the service "other", with the service itself as the backend.
const routeOfOther = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: other, namespace: shop}
spec:
  parentRefs: [{kind: Service, group: "", name: other, port: 80}]
  rules: [{backendRefs: [{name: other, port: 80}]}]
`

// echoed sends "line" from a pod to a port that echoes lines, and returns the answer.
func echoed(p *harness.Pod, to string) (string, error) {
	c, err := harness.Dialer(p.Namespace, harness.AppUser)(p.World.T.Context(), "tcp", to)
	if err != nil {
		return "", err
	}
	defer c.Close()
	fmt.Fprintln(c, "line")
	return firstLine(c)
}

// planeIsAway is the reason in the answer to a call of a service that was not used before, while the control plane is
// unreachable.
const planeIsAway = "the control plane is away, and this proxy has not used this service before"

// While the control plane is unreachable, calls to services that were used before still succeed, calls to
// addresses of no service are passed through, and calls to services that were never used fail quickly with the
// reason.
func TestControlPlaneIsGone(t *testing.T) {
	t.Parallel()
	w, client, server := two(t)
	w.Service("other", "10.96.0.11", "server", ports...)
	w.Service("third", "10.96.0.12", "server", ports...)
	w.Manifest("route", routeOfOther)
	w.Known(3, 2)
	host := w.Machine("host") // outside the mesh
	app(host)
	url := "http://" + vip + "/"
	want := "server HTTP/1.1"
	get := func(url string, host string) harness.Answer {
		c := harness.NewClient(client.Pod.Namespace, harness.AppUser)
		defer c.Close()
		return c.Do("GET", url, host)
	}
	if err := get(url, "").Want(want); err != nil {
		t.Fatal(err)
	}
	idle, err := harness.Dialer(client.Pod.Namespace, harness.AppUser)(t.Context(), "tcp", vip+":90")
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	fmt.Fprintln(idle, "before")
	if got, err := firstLine(idle); got != "before\n" {
		t.Fatalf("%q, %v", got, err)
	}
	load := harness.NewLoad(2, pause, fresh(client.Pod, url, want))
	w.Plane().Kill()
	for name, to := range map[string]string{"by a route": "10.96.0.11", "by its address": "10.96.0.12"} {
		var got harness.Answer
		process.Eventually(t, "an answer", func() bool { got = get("http://"+to+"/", ""); return got.Err == nil }, client) // a request that is sent late is treated as TCP, and is reset
		t.Logf("a new service %s: %d %q, %v after %s", name, got.Status, got.Body, got.Err, got.Took.Round(time.Millisecond))
		if got.Status != 503 || !strings.Contains(got.Body, planeIsAway) {
			t.Errorf("a new service %s: %d %q, %v; want 503 with the reason", name, got.Status, got.Body, got.Err)
		}
	}
	if got, err := echoed(client.Pod, "10.96.0.12:90"); err == nil {
		t.Errorf("bytes to a new service: %q; want a reset", got)
	}
	for name, p := range map[string]*harness.Pod{"host": host, "server": server.Pod} {
		if err := get("http://"+p.Address.String()+"/", "").Want(name + " HTTP/1.1"); err != nil {
			t.Errorf("the %s's own address: %v", name, err)
		}
		if got, err := echoed(client.Pod, p.Address.String()+":90"); got != "line\n" {
			t.Errorf("bytes to the %s's own address: %q, %v", name, got, err)
		}
	}
	if got := lateRequest(t, client.Pod, vip+":80", 2*time.Second); !strings.Contains(got, want) {
		t.Errorf("a known service, by a connection that was silent for 2 s: %q, want %q in it", got, want)
	}
	fmt.Fprintln(idle, "during")
	if got, err := firstLine(idle); got != "during\n" {
		t.Errorf("an idle stream was cut: %q, %v", got, err)
	}
	if s, ok := client.Status(); !ok || !s.Ready {
		t.Errorf("not ready without a control plane: %v", s)
	}
	judge(t, "a known service", load)
	w.Serve()
	up := time.Now()
	for _, to := range []string{"10.96.0.11", "10.96.0.12"} {
		process.Eventually(t, "the new service", func() bool { return get("http://"+to+"/", "").Want(want) == nil }, w.Plane(), client, server)
		t.Logf("%s is served %s after the control plane", to, time.Since(up).Round(time.Millisecond))
	}
	process.Eventually(t, "bytes to the new service", func() bool { got, _ := echoed(client.Pod, "10.96.0.12:90"); return got == "line\n" }, w.Plane(), client, server)
}

// An Envoy or an agent that starts while the control plane is unreachable serves calls to the services that were
// used before its start.
func TestEnvoyStartsWithoutControlPlane(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	client, server := pair(w, func(_, _ *harness.Pod) {})
	w.Service("not-used", "10.96.0.13", "server", ports...)
	w.Service("other", "10.96.0.11", "server", ports...)
	w.Service("gone", "10.96.0.12", "server", ports...)
	w.Manifest("route", routeOfOther)
	w.Known(4, 2)
	const want = "server HTTP/1.1"
	served := func(url string) bool { return fresh(client.Pod, url, want)() == nil }
	check := func(when string) {
		t.Helper()
		for _, url := range []string{"http://" + vip + "/", "http://10.96.0.11/"} {
			t.Log(when, url)
			process.Retry(t, fresh(client.Pod, url, want), client, server) // repeated, because a request that is sent late is treated as TCP
		}
		if got, err := echoed(client.Pod, vip+":90"); got != "line\n" {
			t.Errorf("%s: bytes: %q, %v", when, got, err)
		}
	}
	process.Eventually(t, "the route", func() bool { return served("http://10.96.0.11/") }, w.Plane(), client, server)
	process.Eventually(t, "the service that will be deleted", func() bool { return served("http://10.96.0.12/") }, w.Plane(), client, server)
	check("before")
	w.Manifest("service-gone", "")
	process.Eventually(t, "the service is deleted", func() bool { return !served("http://10.96.0.12/") }, w.Plane(), client)
	w.Plane().Kill()
	another(t, client)
	another(t, server)
	check("with a new Envoy")
	if served("http://10.96.0.12/") {
		t.Error("a service is served that was deleted before")
	}
	if served("http://10.96.0.13/") {
		t.Error("a service is served that was not used before")
	}
	old := client.Envoy()
	process.Eventually(t, "what is used is kept", func() bool {
		return client.Pod.Kept("server", 80) && client.Pod.Kept("server", 90) && client.Pod.Kept("other", 80)
	}, client)
	client.Kill()
	process.AwaitEnd(t, old)
	client = client.Pod.Agent()
	client.Ready()
	check("with a new agent")
	w.Serve()
	process.Eventually(t, "both proxies are connected", func() bool {
		list := w.Proxies()
		return strings.Contains(list, "client.shop") && strings.Contains(list, "server.shop")
	}, w.Plane(), client, server)
	check("afterwards")
	w.Service("other", "10.96.0.99", "server", ports...)
	process.Eventually(t, "a change", func() bool { return served("http://10.96.0.99/") }, w.Plane(), client, server)
}

// A slow control plane does not count as unreachable: first calls wait for its answer.
func TestControlPlaneIsSlow(t *testing.T) {
	t.Parallel()
	w, client, _ := two(t)
	used(t, client)
	const n = 8
	for i := range n {
		w.Service(fmt.Sprint("s", i), fmt.Sprint("10.96.1.", i), "server", ports...)
	}
	w.Known(1+n, 2)
	w.Plane().Signal(syscall.SIGSTOP)
	process.Eventually(t, "the control plane is stopped", func() bool { return process.Stopped(w.Plane().PID()) }, w.Plane())
	failed := make(chan error, n)
	for i := range n {
		go func() { failed <- fresh(client.Pod, fmt.Sprintf("http://10.96.1.%d/", i), "server HTTP/1.1")() }()
	}
	time.Sleep(2500 * time.Millisecond) // deliberately longer than the time after which a control plane counts as unreachable
	if ended := len(failed); ended > 0 {
		t.Errorf("%d first calls ended while the control plane was stopped", ended)
	}
	w.Plane().Signal(syscall.SIGCONT)
	for range n {
		select {
		case err := <-failed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a first call is not answered")
		}
	}
}

// First calls that wait when the control plane is killed are served after its restart.
func TestFirstUseDuringRestart(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	client, _ := pair(w, func(_, _ *harness.Pod) {}, "--first-use-timeout", "60s")
	used(t, client)
	w.Service("other", "10.96.0.11", "server", ports...)
	w.Known(2, 2)
	w.Plane().Signal(syscall.SIGSTOP)
	failed := make(chan error, 1)
	go func() { failed <- fresh(client.Pod, "http://10.96.0.11/", "server HTTP/1.1")() }()
	w.Plane().Kill()
	w.Serve("--first-use-timeout", "60s")
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// lateRequest connects, sends a request after a delay, and returns the answer.
func lateRequest(t *testing.T, p *harness.Pod, address string, after time.Duration) string {
	t.Helper()
	conn, err := harness.Dialer(p.Namespace, harness.AppUser)(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(process.Patience))
	time.Sleep(after) // the silence under test
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", address)
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("after %q: %v", answer, err)
	}
	return string(answer)
}

// When the control plane is restarted under load, no request fails.
func TestControlPlaneRestarts(t *testing.T) {
	t.Parallel()
	w, client, server := two(t)
	used(t, client)
	url := "http://" + vip + "/"
	loads := map[string]*harness.Load{
		"new connections":  harness.NewLoad(2, pause, fresh(client.Pod, url, "server HTTP/1.1")),
		"kept connections": harness.NewLoad(1, pause, kept(client.Pod, url, "server HTTP/1.1")),
	}
	connected := func() bool {
		list := w.Proxies()
		return strings.Contains(list, "client.shop") && strings.Contains(list, "server.shop")
	}
	var back []time.Duration
	for n := range 5 {
		if n%2 == 0 {
			w.Plane().Kill()
		} else {
			w.Plane().Signal(syscall.SIGTERM)
			w.Plane().Exit()
		}
		w.Serve()
		back = append(back, process.Eventually(t, "both proxies are connected", connected, w.Plane(), client, server))
	}
	judgeAll(t, loads)
	t.Log(spread("from its start to both proxies connected", back))
	// A change reaches both proxies.
	w.Service("server", "10.96.0.99", "server", ports...)
	process.Eventually(t, "the service at its new address", func() bool {
		return fresh(client.Pod, "http://10.96.0.99/", "server HTTP/1.1")() == nil
	}, w.Plane(), client, server)
	if s, _ := server.Status(); !s.Ready {
		t.Error(s)
	}
}
