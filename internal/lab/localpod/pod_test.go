package localpod

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/startup"
	"outrider.dev/test/ns"
	tests "outrider.dev/test/process"
)

func TestStartAndStopOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(`
metadata: {name: order, annotations: {outrider.dev/depends-on.app: "sidecar, migrate=completed"}}
spec:
  terminationGracePeriodSeconds: 20
  initContainers:
  - {name: migrate, command: [sh, -c, "echo migrated"]}
  - name: sidecar
    restartPolicy: Always
    command: [sh, -c, "trap 'echo stops; exit 0' TERM; touch /tmp/up; while :; do sleep 0.1; done"]
    startupProbe: {exec: {command: [test, -f, /tmp/up]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1000}
  containers:
  - name: app
    command: [sh, -c, "trap 'echo last words; exit 0' TERM; echo runs; while :; do sleep 0.1; done"]
`)
	w.untilLine("app | runs")
	p.Delete(0)
	r := w.wait(p)
	want := []string{"migrate started", "migrate completed", "sidecar started", "sidecar healthy", "app started",
		"app stopping", "app completed", "sidecar stopping", "sidecar completed"}
	if diff := cmp.Diff(want, sequence(r.Timeline)); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
	if !r.OK() || !r.Deleted || len(r.Unjudged) != 0 {
		t.Errorf("result: %+v", r)
	}
	if got := w.logOf("app"); got != "runs\nlast words" {
		t.Errorf("the app's log is %q", got)
	}
}

func TestPostStartBlocksThenFailsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(`
metadata: {name: hold, annotations: {outrider.dev/depends-on.app: proxy}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: proxy
    command: [sleep, "1000"]
    lifecycle: {postStart: {exec: {command: [sh, -c, "echo not ready; sleep 1; exit 1"]}}}
  - {name: app, command: [sh, -c, "trap 'exit 0' TERM; echo runs; while :; do sleep 0.1; done"]}
`)
	w.untilLine("app | runs")
	p.Delete(time.Second)
	r := w.wait(p)
	var hook, app startup.Event
	for _, e := range r.Timeline {
		if e.What == startup.HookFailed && e.Incarnation == 0 {
			hook = e
		}
		if e.Container == "app" && e.What == startup.IsStarted && e.Incarnation == 0 {
			app = e
		}
	}
	if hook.At < time.Second || app.At < hook.At || !strings.Contains(hook.Detail, "not ready") {
		t.Errorf("the hook failed at %s (%s), the app started at %s", hook.At, hook.Detail, app.At)
	}
	if len(r.Violations) == 0 || r.Violations[0].How != startup.StartedTooEarly || r.OK() {
		t.Errorf("violations: %+v; the hold fails open, and that must show", r.Violations)
	}
}

func TestJobEndsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.wait(w.start(`
metadata: {name: job}
spec:
  restartPolicy: Never
  initContainers:
  - {name: sidecar, restartPolicy: Always, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}
  containers:
  - {name: work, command: [sh, -c, "echo done; echo all well > /dev/termination-log"]}
`))
	if r.Deleted || !r.OK() || r.Status.Phase != kubelet.Succeeded {
		t.Errorf("result: %+v", r)
	}
	if got := r.Containers[1].Message; got != "all well\n" {
		t.Errorf("termination message %q", got)
	}
}

func TestOnFailureIsRestartedWithBackOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.wait(w.start(`
metadata: {name: again}
spec:
  restartPolicy: OnFailure
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - name: work
    volumeMounts: [{name: v, mountPath: /v}]
    terminationMessagePolicy: FallbackToLogsOnError
    command: [sh, -c, "test -f /v/second && exit 0; touch /v/second /only-once; echo first; exit 4"]
  - {name: other, command: [sh, -c, "test ! -e /v"]}
`))
	if r.Containers[0].Restarts != 1 || !r.OK() || codes(r)["work"] != 0 {
		t.Errorf("result: %+v", r)
	}
	var ended, again time.Duration
	for _, e := range r.Timeline {
		if e.What == startup.HasFailed {
			ended = e.At
		}
		if e.Container == "work" && e.What == startup.IsStarted {
			again = e.At
		}
	}
	if again <= ended {
		t.Errorf("failed at %s, started last at %s", ended, again)
	}
}

func TestFourKindsOfProbes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		probe string
		well  bool
		want  string // part of the probe's error
	}{
		"exec that ends with 0":              {"exec: {command: [/bin/true]}", true, ""},
		"exec that does not":                 {"exec: {command: [sh, -c, 'echo sorry; exit 3']}", false, "exit status 3: sorry"},
		"exec of nothing":                    {"exec: {command: [/nope]}", false, "no such file or directory"},
		"exec that takes too long":           {"exec: {command: [sleep, '100']}", false, "no answer within 1s"},
		"http by a named port":               {"httpGet: {path: /ready, port: web, httpHeaders: [{name: Host, value: shop}, {name: X-Test, value: 'yes'}]}", true, ""},
		"http, redirected to another host":   {"httpGet: {path: /away, port: 8080}", true, ""},
		"http, not found":                    {"httpGet: {path: /gone, port: 8080}", false, "HTTP status 404"},
		"https where there is none":          {"httpGet: {path: /, port: 8080, scheme: HTTPS}", false, "server gave HTTP response to HTTPS client"},
		"tcp with a listener":                {"tcpSocket: {port: 8443}", true, ""},
		"tcp without one":                    {"tcpSocket: {port: 8444}", false, "connection refused"},
		"grpc":                               {"grpc: {port: 9090}", true, ""},
		"grpc of a service that is not well": {"grpc: {port: 9090, service: sick}", false, "gRPC health status NOT_SERVING, want SERVING"},
		"grpc of an unknown service":         {"grpc: {port: 9090, service: who}", false, "code = NotFound"},
		"grpc where there is none":           {"grpc: {port: 8080}", false, ""},
	}
	for name, tt := range tests {
		timeout := 20 // in seconds, because most cases do not test the timeout
		if strings.Contains(name, "too long") {
			timeout = 1
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.start(`
metadata: {name: probe}
spec:
  containers:
  - {name: app, SERVER, ports: [{name: web, containerPort: 8080}],
     lifecycle: {postStart: {exec: {command: [sh, -c, "touch /tmp/ready; until grep -q ':2382' /proc/net/tcp6 /proc/net/tcp; do sleep 0.05; done"]}}},
     readinessProbe: {periodSeconds: 1, failureThreshold: 1, timeoutSeconds: ` + strconv.Itoa(timeout) + `, ` + tt.probe + `}}
`)
			w.until("a probe is answered", func() bool { return answered(w.entries) != nil })
			p.Delete(0)
			w.wait(p)
			w.mu.Lock()
			defer w.mu.Unlock()
			got := *answered(w.entries)
			if got.Failed == tt.well || !strings.Contains(got.Detail, tt.want) {
				t.Errorf("failed=%t, %q; want well=%t, %q", got.Failed, got.Detail, tt.well, tt.want)
			}
			if strings.HasPrefix(name, "http by a named") && !slices.Contains(w.lines, "app | request for shop kube-probe/1.36 10.244.0.1 yes") {
				t.Errorf("the request is not a kubelet's: %q", w.lines)
			}
		})
	}
}

func answered(entries []Entry) *Entry {
	for i, e := range entries {
		if e.What == string(kubelet.ProbeAnswered) {
			return &entries[i]
		}
	}
	return nil
}

func TestReadinessComesAndGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(`
metadata: {name: ready}
spec:
  containers:
  - {name: app, SERVER, volumeMounts: [{name: ready, mountPath: /tmp/ready.d}],
     readinessProbe: {periodSeconds: 1, failureThreshold: 1, httpGet: {path: /ready, port: 8080}}}
  volumes: [{name: ready, emptyDir: {}}]
`)
	file := p.Volume("ready") + "/ready"
	w.untilLine("app | serving")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.untilHappened("app", startup.IsHealthy)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.untilHappened("app", startup.IsUnhealthy)
	p.Delete(0)
	if r := w.wait(p); codes(r)["app"] != 0 || !r.OK() {
		t.Errorf("result: %+v", r)
	}
}

func TestLivenessRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(`
metadata: {name: live}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    command: [sh, -c, "trap 'exit 0' TERM; echo runs; while :; do sleep 0.1; done"]
    livenessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: ["false"]}}
`)
	w.until("a second life", func() bool {
		return strings.Count(strings.Join(w.lines, "\n"), "app | runs") == 2
	})
	p.Delete(0)
	if r := w.wait(p); r.Containers[0].Restarts < 1 {
		t.Errorf("result: %+v", r)
	}
}

func TestGraceIsExceeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(`
metadata: {name: deaf}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: deaf, command: [sh, -c, "trap 'echo no' TERM; echo runs; while :; do sleep 0.1; done"]}
  - {name: first, command: [sleep, "1000"]} # the first process has no handler: SIGTERM does nothing
  - name: polite
    command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    lifecycle: {preStop: {sleep: {seconds: 1}}}
`)
	w.untilLine("deaf | runs")
	w.untilHappened("polite", startup.IsStarted)
	p.Delete(0)
	r := w.wait(p)
	if diff := cmp.Diff(map[string]int{"deaf": 137, "first": 137, "polite": 0}, codes(r)); diff != "" {
		t.Errorf("exit codes (-want +got):\n%s", diff)
	}
	if !slices.Contains(w.lines, "deaf | no") || !r.OK() {
		t.Errorf("SIGTERM did not come first, or a deletion counts as a failure: %+v", r)
	}
}

func TestKillEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(`
metadata: {name: kill}
spec:
  terminationGracePeriodSeconds: 1000
  containers:
  - {name: deaf, command: [sh, -c, "echo runs; sleep 10000"], lifecycle: {preStop: {exec: {command: [sleep, "1000"]}}}}
`)
	w.untilLine("deaf | runs")
	p.Delete(0)
	p.Kill()
	p.Kill()
	if r := w.wait(p); codes(r)["deaf"] != 137 {
		t.Errorf("result: %+v", r)
	}
}

func TestCannotBeStarted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ command, want string }{
		"no such file":         {`[/no/such/file]`, `exec: "/no/such/file": stat /no/such/file: no such file or directory`},
		"not in the PATH":      {`[no-such-command]`, `exec: "no-such-command": executable file not found in $PATH`},
		"not to be executed":   {`[/etc/passwd]`, `exec: "/etc/passwd": permission denied`},
		"no working directory": {`[sh], workingDir: /etc/passwd`, `chdir to the working directory: chdir /etc/passwd: not a directory`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.wait(w.start("metadata: {name: missing}\nspec: {restartPolicy: Never, containers: [{name: app, command: " + tt.command + "}]}"))
			if r.Containers[0].Reason != tt.want || codes(r)["app"] != 128 || r.OK() {
				t.Errorf("result: %+v; want reason %q and exit code 128", r.Containers, tt.want)
			}
		})
	}
}

func TestPodsReachOneAnother(t *testing.T) {
	t.Parallel()
	var wait func() error
	t.Cleanup(func() { // runs before the node's cleanup
		if wait != nil && wait() == nil {
			t.Error("a command outlived its node")
		}
	})
	w := newWorld(t)
	server := w.start(`
metadata: {name: server}
spec: {containers: [{name: server, SERVER}]}
`)
	w.untilLine("server | serving")
	o := w.options(`
metadata: {name: client}
spec:
  restartPolicy: Never
  containers:
  - {name: v4, command: [curl, -s, -o, /dev/null, -w, "%{http_code}", "http://shop:8080/ready"]}
  - {name: node, command: [curl, -s, "http://$(NODE):15012/"], env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]}
`)
	o.Hosts = map[string]string{"shop": server.Addresses()[0].String()}
	l, err := w.node.Listen(w.node.Addresses()[0].String() + ":15012")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "control plane\n") }))
	if r := w.wait(w.run(o)); !r.OK() {
		t.Errorf("result: %+v\n%s", r, w.log())
	}
	if w.logOf("v4") != "503" || w.logOf("node") != "control plane" {
		t.Errorf("the clients received %q and %q", w.logOf("v4"), w.logOf("node"))
	}
	// From within the pod's network, the server is reachable at 127.0.0.1.
	err = server.Do(func() error {
		conn, err := net.Dial("tcp", "127.0.0.1:8443")
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	server.Delete(0)
	w.wait(server)
	if wait, err = w.node.Command(exec.Command("sleep", "1000")); err != nil {
		t.Fatal(err)
	}
}

func TestNothingOutlivesItsProgram(t *testing.T) {
	ns.RequireRoot(t)
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := "victim-" + time.Now().Format("150405.000000")
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), asWhat+"=victim", "LOCALPOD_TEST_NAME="+name)
	victim := tests.Start(t, cmd, tests.Options{})
	tests.Eventually(t, "its namespaces", func() bool { return strings.HasSuffix(victim.Log(), "\n") }, victim)
	namespaces := strings.Fields(victim.Log())
	if len(namespaces) != 3 || !strings.HasPrefix(namespaces[0], "net:") {
		t.Errorf("the program prints %q", victim.Log())
	}
	running := leftBehind(namespaces, []string{name})
	if len(running) < 6 {
		t.Errorf("only %q runs: the test looks in the wrong place", running)
	}
	for _, l := range running {
		if path, of, _ := strings.Cut(l, " "); slices.Contains(namespaces, of) {
			hold(t, path)
		}
	}
	victim.Kill()
	nothingLeft(t, namespaces, []string{name})
}
