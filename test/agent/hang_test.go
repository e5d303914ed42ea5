package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// A hung Envoy is running and still listens, but serves no request. The agent's readiness reports this, and the agent
// still serves its own metrics and those of the application.
func TestAnEnvoyThatHangs(t *testing.T) {
	a := lone(t, `ISTIO_PROMETHEUS_ANNOTATIONS={"scrape": "true", "port": "8080", "path": "/metrics"}`)
	go http.Serve(harness.Listen(a.Pod.World, a.Pod.Namespace, harness.AppUser, ":8080"),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "app_things 7") }))
	scrape := func() harness.Answer { return a.Get(15020, "/metrics") }
	merged := func() bool { // callers retry this, because a busy Envoy may answer later than the scrape's time limit
		got := scrape().Body
		return strings.Contains(got, "\nenvoy_server_live") && strings.Contains(got, "\napp_things 7\n")
	}
	process.Eventually(t, "all metrics", merged, a)
	envoy := a.Envoy()
	if err := unix.Kill(envoy, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(envoy, unix.SIGCONT) })
	stopped := time.Now()
	a.Unready("envoy-not-live", "its admin interface has not answered for 3s")
	t.Logf("seen after %s", time.Since(stopped).Round(time.Millisecond))
	if got := scrape(); got.Status != 200 || strings.Contains(got.Body, "envoy_server_live") ||
		!strings.Contains(got.Body, `outrider_agent_ready{level="outbound"} 0`) || !strings.Contains(got.Body, "\napp_things 7\n") {
		t.Errorf("%d after %s, %v:\n%s", got.Status, got.Took, got.Err, got.Body)
	} else {
		t.Logf("metrics without Envoy's after %s", got.Took.Round(time.Millisecond))
	}
	if err := unix.Kill(envoy, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.Ready()
	process.Eventually(t, "all metrics after SIGCONT", merged, a)
}

// If another process occupies the DNS port, the agent reports that, and uses the port once it is free.
func TestTheDNSPortIsTaken(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("names")
	p.Env = []string{"ISTIO_META_DNS_CAPTURE=true"}
	taken := harness.Listen(w, p.Namespace, harness.AppUser, "127.0.0.1:15053")
	a := p.Agent()
	a.Unready("dns-proxy-silent", "listening for DNS: listen tcp 127.0.0.1:15053: bind: address already in use")
	taken.Close()
	a.Ready()
	if n := strings.Count(a.Log(), "answering for names"); n != 1 { // the agent updates its status before it writes the line
		t.Errorf("it is logged %d times", n)
	}
}

// The name of a condition describes the state in which it holds. The status has a code only for a condition that does
// not hold.
func TestConditionsThatHold(t *testing.T) {
	a := lone(t)
	var s readiness.Status
	got := a.Get(15020, "/healthz/ready")
	if err := json.Unmarshal([]byte(got.Body), &s); err != nil {
		t.Fatal(err)
	}
	certificate := false
	for _, n := range s.Notes {
		certificate = certificate || n.Condition == "certificate" && strings.Contains(n.Message, "valid until")
	}
	if !certificate || strings.Contains(got.Body, `"code"`) {
		t.Errorf("ready: %s", got.Body)
	}
	for _, name := range []string{"certificate", "control-plane", "envoy", "configuration", "listeners", "capture"} {
		process.Eventually(t, "an entry of the journal that "+name+" holds", func() bool {
			return slices.ContainsFunc(a.Journal().Entries, func(e status.Entry) bool { return e.Name == name && e.Why == "holds" })
		}, a)
	}
}
