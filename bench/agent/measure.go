package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// phases are the entries of the agent's journal that mark the progress of a start, in order. The field why is a
// part of the entry's reason.
var phases = []struct{ title, name, why string }{
	{"Envoy's exec", "proxy starting", ""},
	{"certificate", "certificate have", ""},
	{"connected", "control-plane", "holds"},
	{"configuration", "configuration", "holds"},
	{"listeners bound", "listeners", "holds"},
}

const megabyte = 1 << 20

// measure starts Envoy alone and an agent with Envoy, n times each. They alternate, so that other load on the
// machine affects both.
func measure(t *figures.Table, w *harness.World, services, n int) {
	w.Fill(services)
	w.Serve()
	w.Known(services, 0)
	p := w.Pod("app")
	w.Known(services, 1)
	alone := fmt.Sprintf("Envoy alone, static (beside %d)", services)
	proxy := fmt.Sprintf("%d services", services)
	for i := range n + 1 { // the first run warms up
		took := startEnvoy(w, p)
		if i > 0 {
			t.Add(alone, "ready", took.Seconds()*1e3, alone)
		}
		start(t, p, proxy, alone, i > 0)
	}
}

// start measures one start of an agent that has no certificate yet.
func start(t *figures.Table, p *harness.Pod, title, alone string, counts bool) {
	if err := os.RemoveAll(filepath.Join(p.Dir, "work", "certs")); err != nil {
		p.World.T.Fatal(err)
	}
	begin := time.Now()
	a := p.Agent()
	defer func() { process.AwaitEnd(p.World.T, endOf(a)) }() // also after the warm-up, because the next agent needs the ports
	ready := readyAt(p, a.Process, "127.0.0.1:15021", "/healthz/ready?wait=60s")
	if !counts {
		return
	}
	t.Add(title, "ready", ready.Sub(begin).Seconds()*1e3, alone)
	t.Add(title, "agent MiB", float64(harness.Resident(a.PID()))/megabyte, "")
	t.Add(title, "Envoy MiB", float64(harness.Resident(a.Envoy()))/megabyte, "")
	t.Add(title, "agent CPU ms", process.Spent(a.PID()).Seconds()*1e3, "")
	t.Add(title, "Envoy CPU ms", process.Spent(a.Envoy()).Seconds()*1e3, "")
	journal := a.Journal()
	for _, phase := range phases {
		for _, e := range journal.Entries {
			if e.Name == phase.name && strings.Contains(e.Why, phase.why) {
				t.Add(title, "  "+phase.title, journal.Process.Add(e.Begin).Sub(begin).Seconds()*1e3, "")
				break
			}
		}
	}
}

// endOf kills the agent and returns the process ID of its Envoy, which ends with the agent.
func endOf(a *harness.Agent) (envoy int) {
	envoy = a.Envoy()
	a.Kill()
	return envoy
}

// readyAt sends requests from the pod's namespace until the answer is 200, and returns the time of that answer.
// It ends the benchmark after a minute.
func readyAt(p *harness.Pod, server *process.Process, address, path string) (at time.Time) {
	p.Do(func() {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			c, err := net.Dial("tcp4", address)
			if err != nil {
				continue
			}
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
			line, _ := bufio.NewReader(c).ReadString('\n')
			c.Close()
			if strings.HasPrefix(line, "HTTP/1.1 200") {
				at = time.Now()
				return
			}
		}
	})
	if at.IsZero() {
		p.World.T.Fatalf("%s%s is never ready:\n%s", address, path, server.Log())
	}
	return at
}

// static is the configuration of an Envoy without a control plane, which answers requests on one port.
const static = `{"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 15000}}},
"static_resources": {"listeners": [{"address": {"socket_address": {"address": "0.0.0.0", "port_value": 15001}}, "filter_chains": [{"filters": [
{"name": "hcm", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
"stat_prefix": "s", "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]}]},
"http_filters": [{"name": "r", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}]}}`

// startEnvoy measures one start of Envoy alone.
func startEnvoy(w *harness.World, p *harness.Pod) time.Duration {
	begin := time.Now()
	e := p.Program("envoy", w.Binaries.Envoy, "--config-yaml", static, "--concurrency", "2", "--disable-hot-restart", "--log-level", "error")
	defer e.Kill()
	return readyAt(p, e, "127.0.0.1:15000", "/ready").Sub(begin)
}

// rest measures processor time and memory of an idle proxy, n times, each for the time d. d must be long, because
// the kernel counts processor time in hundredths of a second.
func rest(t *figures.Table, w *harness.World, n int, d time.Duration) {
	p := w.Pod("idle")
	a := p.Agent()
	a.Ready()
	time.Sleep(2 * time.Second)
	envoy := a.Envoy()
	percent := func(spent time.Duration) float64 { return 100 * spent.Seconds() / d.Seconds() }
	const title = "idle"
	for range n {
		before := [2]time.Duration{process.Spent(a.PID()), process.Spent(envoy)}
		time.Sleep(d)
		ofAgent, ofEnvoy := percent(process.Spent(a.PID())-before[0]), percent(process.Spent(envoy)-before[1])
		t.Add(title, "agent CPU %", ofAgent, "")
		t.Add(title, "Envoy CPU %", ofEnvoy, "")
		t.Add(title, "both CPU %", ofAgent+ofEnvoy, "")
		t.Add(title, "agent MiB", float64(harness.Resident(a.PID()))/megabyte, "")
		t.Add(title, "Envoy MiB", float64(harness.Resident(envoy))/megabyte, "")
	}
}
