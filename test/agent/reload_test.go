package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/status"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// annotate writes annotations, pairs of name and value, to the pod's file of annotations, as the kubelet does.
func annotate(p *harness.Pod, pairs ...string) {
	t := p.World.T
	t.Helper()
	file := filepath.Join(p.Dir, "annotations")
	p.Env = append(slices.DeleteFunc(p.Env, func(e string) bool { return strings.HasPrefix(e, "OUTRIDER_ANNOTATIONS=") }), "OUTRIDER_ANNOTATIONS="+file)
	text := ""
	for i := 0; i < len(pairs); i += 2 {
		text += fmt.Sprintf("%s=%q\n", pairs[i], pairs[i+1])
	}
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// logged is a log line of the agent about a change of a setting.
type logged struct{ Msg, Setting, From, To, Reason, Later string }

func changes(a *harness.Agent) (out []logged) {
	for line := range strings.Lines(a.Log()) {
		var l logged
		if json.Unmarshal([]byte(line), &l) == nil && (l.Msg == "changed" || l.Msg == "change refused" || strings.HasPrefix(l.Msg, "changing ")) {
			out = append(out, l)
		}
	}
	return out
}

// await waits for the agent's log line number *n about a change, compares it with want, and increments *n.
func await(a *harness.Agent, n *int, want logged) {
	t := a.Pod.World.T
	t.Helper()
	process.Eventually(t, "a line in the log about "+want.Setting, func() bool { return len(changes(a)) > *n }, a)
	got := changes(a)[*n]
	*n++
	if !strings.Contains(got.Reason, want.Reason) || !strings.Contains(got.Later, want.Later) {
		t.Errorf("%+v; want %+v", got, want)
	}
	got.Reason, got.Later = want.Reason, want.Later
	if got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}

// levelOf returns Envoy's log level of a component.
func levelOf(a *harness.Agent, component string) string {
	c := harness.NewClient(a.Pod.Namespace, harness.AppUser)
	defer c.Close()
	_, rest, _ := strings.Cut(c.Do("POST", "http://127.0.0.1:15000/logging", "").Body, "  "+component+": ")
	level, _, _ := strings.Cut(rest, "\n")
	return level
}

// another kills Envoy and waits until the next one serves. The killed Envoy, and all before it, must have served. The
// results are times before and after the exit.
func another(t *testing.T, a *harness.Agent) (before, after time.Time) {
	t.Helper()
	ends := strings.Count(a.Log(), ended)
	before, after = harness.KillAndWatch(t, a.Envoy())
	next(t, a, ends)
	return before, after
}

// Log messages of the agent when its Envoy exits, and when the next one serves.
const (
	ended   = `"msg":"proxy ended"`
	serving = `"state":"serving"`
)

// next waits until Envoy has exited ends+1 times and its successor serves. It reads the agent's log, which contains
// every event even on a busy machine.
func next(t *testing.T, a *harness.Agent, ends int) {
	t.Helper()
	process.Eventually(t, "another Envoy", func() bool { return strings.Count(a.Log(), serving) >= ends+2 }, a)
	a.Ready()
}

const (
	levelKey     = "sidecar.istio.io/logLevel"
	componentKey = "sidecar.istio.io/componentLogLevel"
	configKey    = "proxy.istio.io/config"
)

// Changed log levels take effect in the running Envoy at once, and also in the Envoy that replaces it.
func TestReloadLogLevels(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("app")
	annotate(p)
	p.Args = []string{"--proxyLogLevel=warning", "--proxyComponentLogLevel=misc:error"} // the flags that the injector sets
	a := p.Agent()
	a.Ready()
	n := 0

	annotate(p, levelKey, "error", componentKey, "misc:off,upstream:info")
	await(a, &n, logged{Msg: "changed", Setting: "log level", From: "warning", To: "error"})
	await(a, &n, logged{Msg: "changed", Setting: "component log levels", From: "map[misc:error]", To: "map[misc:off upstream:info]"})
	want := map[string]string{"http": "error", "upstream": "info", "misc": "off", "config": "info"}
	check := func(when string) {
		t.Helper()
		process.EventuallyEqual(t, when, want, func() map[string]string {
			got := map[string]string{}
			for component := range want { // any order: a map
				got[component] = levelOf(a, component)
			}
			return got
		}, a)
	}
	check("changed")
	another(t, a)
	check("the next Envoy")

	// An unknown component would prevent the start of the next Envoy. The change is refused as a whole, and the
	// levels stay.
	annotate(p, levelKey, "warning", componentKey, "unknown:debug")
	await(a, &n, logged{Msg: "change refused", Setting: "log level", From: "error", To: "warning", Reason: "logging"})
	await(a, &n, logged{Msg: "change refused", Setting: "component log levels", From: "map[misc:off upstream:info]", To: "map[unknown:debug]", Reason: "logging"})
	process.EventuallyEqual(t, "the level of before", "error", func() string { return levelOf(a, "http") }, a)
	another(t, a)
	check("after a refusal")

	// An Envoy that does not answer receives the new levels once it answers again.
	annotate(p, levelKey, "error", componentKey, "misc:off,upstream:info")
	pid := a.Envoy()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	annotate(p, levelKey, "info", componentKey, "misc:off,upstream:info")
	await(a, &n, logged{Msg: "changing log levels, which is tried again"})
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(a, &n, logged{Msg: "changed", Setting: "log level", From: "error", To: "info"})
	process.EventuallyEqual(t, "the level that was tried again", "info", func() string { return levelOf(a, "http") }, a)

	// At its own log level error, the agent still applies the levels, but does not log changes.
	annotate(p, levelKey, "error", componentKey, "misc:off,upstream:info", "sidecar.istio.io/agentLogLevel", "default:error")
	process.EventuallyEqual(t, "the level", "error", func() string { return levelOf(a, "http") }, a)
	if got := changes(a)[n:]; len(got) > 0 {
		t.Errorf("at the level error: %+v", got)
	}
	// A restarted agent uses the annotations instead of its flags.
	a.Kill()
	a = p.Agent()
	a.Ready()
	check("the next agent")
}

// The agent reports a change that needs a new pod once, with the reason, and does not report that the change is
// undone. Package config tests which changes are refused.
func TestReloadRefuses(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("app")
	annotate(p)
	a := p.Agent()
	a.Ready()
	envoy, n := a.Envoy(), 0
	refused := logged{Msg: "change refused", Setting: "concurrency", To: "7", Reason: "make a new pod"}
	for _, step := range []struct {
		config string
		want   logged // the next log line about a change
	}{
		{"{concurrency: 7}", refused},
		{"{concurrency: 7, terminationDrainDuration: 6s}", logged{Msg: "changed", Setting: "terminationDrainDuration", From: "5s", To: "6s"}},
		{"{}", logged{Msg: "changed", Setting: "terminationDrainDuration", From: "6s", To: "5s"}},
		{"{concurrency: 7}", refused},
		{"{terminationDrainDuration: soon}", logged{Msg: "changing the configuration"}}, // a malformed value changes nothing
	} {
		annotate(p, configKey, step.config)
		await(a, &n, step.want)
	}
	if a.Envoy() != envoy {
		t.Error("Envoy was started again")
	}
	process.Eventually(t, "the refusals in the journal", func() bool {
		refusals := slices.DeleteFunc(a.Journal().Entries, func(e status.Entry) bool { return e.Name != "change refused" })
		return len(refusals) == 2
	}, a)
}

// The time for which inbound connections are served after SIGTERM can be changed in a running pod, although
// Envoy's own drain time cannot.
func TestReloadDrainTime(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("server", vip, "server", ports...)
	w.Serve()
	p := w.Pod("server")
	app(p)
	w.Known(1, 1)
	p.Args = []string{"--grace", "1h"}
	annotate(p, configKey, "{terminationDrainDuration: 1s, drainDuration: 1h}")
	a := p.Agent()
	a.Ready()
	n := 0
	annotate(p, configKey, "{terminationDrainDuration: 1s, drainDuration: 2s}")
	await(a, &n, logged{Msg: "changed", Setting: "drainDuration", From: "1h0m0s", To: "2s", Later: "control plane"})

	outsider := w.Machine("outsider")
	request := fresh(outsider, "http://"+p.Address.String()+"/", "server HTTP/1.1")
	if err := request(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	a.Signal(syscall.SIGTERM)
	process.Eventually(t, "a refusal", func() bool {
		err := request()
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		return err != nil
	}, a)
	refused := time.Since(begin)
	t.Logf("refused after %s", refused.Round(time.Millisecond))
	if refused < 2*time.Second { // the value before the change was an hour
		t.Errorf("refused after %s; want the new drain time of 2s", refused)
	}
	// The app's open sockets keep the proxy running.
	if s, ok := a.Status(); !ok || !s.Ready {
		t.Errorf("after the drain: %v, %v", s, ok)
	}
}
