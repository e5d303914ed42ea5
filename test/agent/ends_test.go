package agent

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// An exit of Envoy is reported in the journal, in the metrics, and in the log, which contains Envoy's last lines.
func TestEndsOfEnvoyAreReported(t *testing.T) {
	a := lone(t)
	const total, restarts = `outrider_agent_envoy_ends_total{how="`, "outrider_agent_envoy_restarts_total "
	metrics := a.Get(15020, "/metrics").Body
	for _, want := range []string{total + `SIGKILL"} 0`, total + `exit"} 0`, restarts + "0"} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("before anything happened: no line %s", want)
		}
	}
	for i, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV} {
		pid := a.Envoy()
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		next(t, a, i)
	}
	for _, want := range []string{total + `SIGKILL"} 1`, total + `SIGSEGV"} 1`, total + `exit"} 0`, restarts + "2"} {
		process.Eventually(t, "the line "+want, func() bool {
			metrics = a.Get(15020, "/metrics").Body
			return strings.Contains(metrics, want+"\n")
		}, a)
	}
	if n := strings.Count(metrics, "# HELP outrider_agent_envoy_ends_total "); n != 1 {
		t.Errorf("the help is printed %d times", n)
	}
	var why []string
	for _, e := range a.Journal().Entries {
		if e.Name == "proxy ended" {
			why = append(why, e.Why)
		}
	}
	if len(why) != 2 || why[0] != "killed by SIGKILL" || strings.Count(why[1], "SIGSEGV") != 1 {
		t.Errorf("the journal has %q", why)
	}
	var tails [][]string
	for line := range strings.Lines(a.Log()) {
		var e struct {
			Msg  string
			Tail []string
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Msg == "proxy ended" {
			tails = append(tails, e.Tail)
		}
	}
	if len(tails) != 2 || !strings.Contains(strings.Join(tails[1], "\n"), "Caught Segmentation fault") {
		t.Errorf("the log has these last lines: %q", tails)
	}
}

// The agent passes SIGUSR1 (with which operators reopen log files) and SIGHUP (from a terminal) on to Envoy. Neither
// process exits.
func TestSignalsForEnvoy(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	p := w.Pod("app")
	p.Args = []string{"--proxyLogLevel", "info"}
	a := p.Agent()
	a.Ready()
	// The supervisor drops signals until it has noticed that Envoy is ready, a little after Envoy becomes ready.
	a.Logs(`"event":"child ready"`)
	envoy := a.Envoy()
	for s, line := range map[syscall.Signal]string{syscall.SIGUSR1: "caught SIGUSR1", syscall.SIGHUP: "caught and eating SIGHUP"} {
		a.Signal(s)
		a.Logs(line)
	}
	if now := a.Envoy(); now != envoy {
		t.Errorf("Envoy is process %d, and was %d", now, envoy)
	}
	a.Ready()
}
