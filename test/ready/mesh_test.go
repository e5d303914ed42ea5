package ready

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/ready"
	"outrider.dev/startup"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// inPod is an environment variable that Kubernetes sets in each container.
const inPod = "KUBERNETES_SERVICE_HOST=10.96.0.1"

// capture is a table with the kind of rule that every mesh uses: NAT for the application's outbound connections.
const capture = "table ip capture { chain out { type nat hook output priority -100; oifname eth0 meta l4proto tcp redirect to :15001; }; }\n"

// agent starts the status server of a real agent in a namespace.
func agent(t *testing.T, in *ns.Namespace, o status.Options) (board *readiness.Board, stop func()) {
	t.Helper()
	board = readiness.New(readiness.Options{Conditions: []readiness.Condition{readiness.ControlPlane, readiness.App}})
	o.Board, o.Journal = board, status.NewJournal(status.JournalOptions{})
	var s *status.Server
	var err error
	in.Do(func() { s, err = status.Listen(o) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return board, stop
}

var ports = []uint16{contract.StatusPort, contract.ReadinessPort}

// The library waits if the pod's connections are captured and the proxy has not bound a port yet. This is its main
// purpose.
func TestACapturedPodIsWaitedForBeforeItsAgentListens(t *testing.T) {
	t.Parallel()
	in := namespace(t)
	nft(t, in, capture)
	p := begin(t, in, wait{Proxy: true}, inPod)
	p.until("waiting", "no answer from", "connection refused")
	_, stop := agent(t, in, status.Options{Ports: ports})
	p.until("waiting", "no-control-plane: not connected to the control plane yet")
	stop() // stops the server while it holds the request
	p.until("waiting", "no answer from")
	board, _ := agent(t, in, status.Options{Ports: ports})
	board.Set(readiness.ControlPlane, true, "")
	p.until("ok")
}

func TestWithoutAMeshNothingIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		capture, host bool
		listens       string
		env           []string
		why           string
	}{
		"a laptop":                        {why: "this is no pod of Kubernetes"},
		"a laptop with rules":             {capture: true, why: "this is no pod of Kubernetes"},
		"a laptop, another server":        {listens: "127.0.0.1:4191", why: "this is no pod of Kubernetes"},
		"a pod":                           {env: []string{inPod}, why: "no connection of this pod is captured"},
		"a pod with the node's network":   {host: true, env: []string{inPod}, why: "this pod has the node's network"},
		"a pod whose proxy is elsewhere":  {capture: true, listens: ":15008", env: []string{inPod}, why: "the mesh's proxy is on the node"},
		"a pod with rules and a variable": {capture: true, env: []string{inPod, "OUTRIDER_MESH=none"}, why: "OUTRIDER_MESH is none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := namespace(t)
			if tt.capture {
				nft(t, in, capture)
			}
			if tt.listens != "" {
				listen(t, in, tt.listens) // this server never answers
			}
			if tt.host {
				if _, err := os.Stat("/proc/sys/net/core/netdev_max_backlog"); err != nil {
					t.Skip("this machine is in a network namespace itself, so no test can be in the first one")
				}
				in = nil
			}
			p := begin(t, in, wait{Proxy: true}, tt.env...)
			p.until("not waiting for a proxy", tt.why)
			p.until("ok")
		})
	}
}

// The library also recognizes the agents of other meshes. They answer at once, instead of holding the request, and
// each has another API.
func TestOtherMeshes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		port, path  string
		before, now int
		body        string
		env         string
		at          []string
	}{
		"Istio, found":            {port: "15021", path: "/healthz/ready", before: 503, now: 200},
		"Linkerd, found":          {port: "4191", path: "/ready", before: 503, now: 200, body: "not ready\n"},
		"Dapr, by its variable":   {port: "3501", path: "/v1.0/healthz/outbound", before: 500, now: 204, body: `{"errorCode":"ERR_HEALTH_NOT_READY"}`, env: "DAPR_HTTP_PORT=3501"},
		"Dapr, named":             {port: "3500", path: "/v1.0/healthz/outbound", before: 500, now: 204, at: []string{"dapr"}},
		"Istio, by OUTRIDER_MESH": {port: "15020", path: "/healthz/ready", before: 404, now: 200, env: "OUTRIDER_MESH=istio"},
		"another one, by its URL": {port: "9902", path: "/ready", before: 503, now: 200, at: []string{"http://localhost:9902/ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := namespace(t)
			var ok atomic.Bool
			serve(t, listen(t, in, "127.0.0.1:"+tt.port), func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path != tt.path:
					w.WriteHeader(http.StatusNotFound)
				case ok.Load():
					w.WriteHeader(tt.now)
				default:
					w.WriteHeader(tt.before)
					fmt.Fprint(w, tt.body)
				}
			})
			p := begin(t, in, wait{Proxy: true, At: tt.at}, inPod, tt.env)
			p.until("waiting", fmt.Sprintf("it answers %d", tt.before))
			ok.Store(true)
			p.until("ok")
		})
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()
	in := namespace(t)
	board, _ := agent(t, in, status.Options{Ports: ports})
	board.Set(readiness.ControlPlane, true, "")
	begin(t, in, wait{Proxy: true, At: []string{"outrider"}}).until("ok")
	p := begin(t, in, wait{Proxy: true, At: []string{"outrider"}, Full: true})
	p.until("waiting", "app-not-healthy")
	board.Set(readiness.App, true, "")
	p.until("ok")

	other := namespace(t)
	serve(t, listen(t, other, ":15020"), func(http.ResponseWriter, *http.Request) {})
	begin(t, other, wait{Proxy: true, At: []string{"istio"}, Full: true}).until("error:", "level full is not supported")
	begin(t, other, wait{Proxy: true, At: []string{"istio"}, Full: true, Continue: true}).until("continuing without", "level full is not supported")
}

// The library waits for containers with a gate: it reads the state files that their gates write.
func TestContainers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place := func(name string) state.Place {
		p := state.Place{Container: name, States: filepath.Join(dir, "state"), Own: filepath.Join(dir, "state", name)}
		if err := os.MkdirAll(p.Own, 0o777); err != nil {
			t.Fatal(err)
		}
		return p
	}
	begin(t, nil, wait{On: []string{"cache"}, Dirs: dir}).until("error:", "this container does not see the states of others")
	migrate := place("migrate")
	p := begin(t, nil, wait{On: []string{"cache", "migrate is completed", "log is started"}, Dirs: dir})
	p.until("waiting", "cache is healthy (it has not started", "migrate is completed (it has not started", "log is started (it has not")
	m, err := state.Open(migrate, state.Record{Phase: state.Running})
	if err != nil {
		t.Fatal(err)
	}
	c, err := state.Open(place("cache"), state.Record{Phase: state.Running})
	if err != nil {
		t.Fatal(err)
	}
	l, err := state.Open(place("log"), state.Record{Phase: state.Running, StartingUp: true})
	if err != nil {
		t.Fatal(err)
	}
	p.until("waiting", "cache is healthy (it runs, and is not healthy)", "migrate is completed (it runs)", "log is started (it runs)")
	update := func(w *state.Writer, f func(*state.Record)) {
		t.Helper()
		if err := w.Update(f); err != nil {
			t.Fatal(err)
		}
	}
	update(m, func(r *state.Record) { r.Phase, r.Completed = state.Ended, true })
	m.Close() // the state "completed" stays valid after its writer has exited
	update(l, func(r *state.Record) { r.StartingUp = false })
	update(c, func(r *state.Record) { r.Healthy = true })
	p.until("ok")
	c.Close() // as if the writer were killed: the container is no longer healthy
	p = begin(t, nil, wait{On: []string{"cache"}, Dirs: dir})
	p.until("waiting", "cache is healthy (it was killed)")
	c, err = state.Open(place("cache"), state.Record{Phase: state.Running, Healthy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer l.Close()
	p.until("ok")

	// Each condition that the library can wait for has the same meaning as in a plan.
	for _, r := range []state.Record{{Phase: state.Waiting}, {Phase: state.Running}, {Phase: state.Running, StartingUp: true}, {Phase: state.Running, Healthy: true},
		{Phase: state.Ended}, {Phase: state.Ended, Completed: true}, {Phase: state.Ended, Code: 1, Completed: true}, {Phase: state.Ended, Code: 1}, {Phase: state.Waiting, Completed: true}} {
		for _, alive := range []bool{true, false} {
			held := place("x")
			w, err := state.Open(held, r)
			if err != nil {
				t.Fatal(err)
			}
			if !alive {
				w.Close()
			}
			here, err := state.Sandbox()
			if err != nil {
				t.Fatal(err)
			}
			seen, err := state.Read(held.States, here, "x")
			if err != nil {
				t.Fatal(err)
			}
			for _, reach := range []startup.Condition{startup.Started, startup.Healthy, startup.Completed} {
				want := seen.Status().Reached(reach)
				if reach == startup.Started { // Started also requires that the gate's startup probe has succeeded
					want = seen.Started() || want && !seen.Runs()
				}
				if got := once(t, dir, "x is "+string(reach)); got != want {
					t.Errorf("%+v, alive %t: %s is %t; want %t", r, alive, reach, got, want)
				}
			}
			if alive {
				w.Close()
			}
		}
	}
}

// once reports whether a container has reached a condition at this moment.
func once(t *testing.T, dir, on string) bool {
	t.Helper()
	w, err := ready.New(ready.On(on), ready.StateDirs(filepath.Join(dir, "own"), filepath.Join(dir, "state")), ready.Log(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	before := w.Missing()[0].Err
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Wait(ctx) }()
	defer func() { cancel(); <-ended }()
	for { // ends when the state has been read once
		missing := w.Missing()
		select {
		case <-w.Done():
			return true
		case <-time.After(time.Millisecond):
		}
		if len(missing) == 1 && missing[0].Err != before {
			return false
		}
	}
}

// In a container with a gate, the library finds the agent's socket in the directory of state files.
func TestTheAgentsSocketIsFound(t *testing.T) {
	t.Parallel()
	in := namespace(t)
	dir := t.TempDir()
	own := filepath.Join(dir, "state", contract.ProxyContainer)
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	p := begin(t, in, wait{Proxy: true, Dirs: dir}, inPod) // only the proxy's directory indicates that the pod has a proxy
	p.until("waiting", "no answer from")
	board, _ := agent(t, in, status.Options{Ports: []uint16{0}, Socket: filepath.Join(own, "agent.sock"), StateDir: own})
	p.until("waiting", "no-control-plane")
	board.Set(readiness.ControlPlane, true, "")
	p.until("ok")
}

// The command line with curl in docs/ready.md, for programs in other languages, works.
func TestTheLineOfCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl, which make test-deps installs")
	}
	page, err := os.ReadFile("../../docs/ready.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- curl -->\n```console\n")
	line, _, ok := strings.Cut(rest, "\n")
	if !ok || !strings.HasPrefix(line, "curl ") {
		t.Fatalf("the page has no such line: %q", line)
	}
	in := namespace(t)
	curl := process.Start(t, exec.Command("sh", "-c", line), process.Options{In: in.Do})
	board, _ := agent(t, in, status.Options{Ports: ports}) // starts before or after curl's first request
	process.Eventually(t, "a request that waits", func() bool { return board.Waiting() > 0 }, curl)
	board.Set(readiness.ControlPlane, true, "")
	if status := curl.Exit(); status != 0 || !strings.Contains(curl.Log(), "ready (outbound)") {
		t.Errorf("status %d: %s", status, curl.Log())
	}
}
