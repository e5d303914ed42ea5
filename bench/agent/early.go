package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// greeter is the Service of a server without a proxy, so that only the caller's Envoy is measured. The name of
// its port declares a protocol in which the server speaks first, so the proxy does not wait for bytes of the
// client.
const greeter = `apiVersion: v1
kind: Service
metadata: {name: greeter, namespace: %[1]s}
spec: {clusterIP: 10.96.0.10, ports: [{name: mysql, port: 91}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: greeter, namespace: %[1]s, labels: {kubernetes.io/service-name: greeter}}
addressType: IPv4
ports: [{name: mysql, port: 91}]
endpoints: [{addresses: [%[2]s]}]
`

// A caller is a pod that makes connections to the greeter.
type caller struct {
	*harness.Pod
	token []byte
}

var called = netip.MustParseAddrPort("10.96.0.10:91")

func newCaller(w *harness.World) *caller {
	server := w.Machine("greeter")
	server.Greet(called.Port())
	w.Manifest("greeter", fmt.Sprintf(greeter, harness.Namespace, server.Address))
	w.Serve()
	p := w.Pod("caller")
	w.Known(1, 1)
	token, err := os.ReadFile(p.Token)
	if err != nil {
		w.T.Fatal(err)
	}
	p.Token = filepath.Join(p.Dir, "token")
	return &caller{p, token}
}

// hold starts an agent whose Envoy gets no configuration until release is called: without a token the agent
// cannot get a certificate.
func (c *caller) hold() *harness.Agent {
	for _, path := range []string{c.Token, filepath.Join(c.Dir, "work", "certs")} {
		if err := os.RemoveAll(path); err != nil {
			c.World.T.Fatal(err)
		}
	}
	a := c.Agent()
	process.Eventually(c.World.T, "the standby listens", func() bool { return c.Bound(15001) })
	return a
}

// release gives the agent its token.
func (c *caller) release() {
	if err := os.WriteFile(c.Token, c.token, 0o644); err != nil {
		c.World.T.Fatal(err)
	}
}

// end kills the agent, and waits until its Envoy has ended, because the next agent needs the ports.
func (c *caller) end(a *harness.Agent) { process.AwaitEnd(c.World.T, endOf(a)) }

// early measures a number of connections (size) that are made before Envoy is ready, and then as many with a
// ready Envoy.
func early(t *figures.Table, c *caller, size int) {
	waited, atOnce := fmt.Sprintf("%d early connections", size), fmt.Sprintf("%d at once, Envoy ready", size)
	a := c.hold()
	defer c.end(a)
	conns := c.Connections(called, harness.Pace{Total: size})
	process.Eventually(c.World.T, "all are connected", func() bool { return conns.Connected() == size })
	spent := spentBy(a)
	c.release()
	calls := conns.Wait()
	a.Ready()
	status, _ := a.Status()
	answers(t, waited, atOnce, status.Since, calls)
	spent.since(t, waited, a) // the processor time includes the rest of Envoy's start

	time.Sleep(300 * time.Millisecond)
	spent = spentBy(a)
	calls = c.Connections(called, harness.Pace{Total: size}).Wait()
	answers(t, atOnce, "", calls[0].Begin, calls)
	spent.since(t, atOnce, a)
}

// answers adds rows with the time from a start (since) to the first byte of a call, in milliseconds: first,
// median, p99 and last.
func answers(t *figures.Table, title, baseline string, since time.Time, calls []harness.Call) {
	var list []float64
	for _, call := range calls {
		if call.Err == nil {
			list = append(list, max(0, call.Served.Sub(since).Seconds()*1e3))
		}
	}
	slices.Sort(list)
	if n := len(list); n > 0 {
		t.Add(title, "first answer", list[0], baseline)
		t.Add(title, "median answer", list[n/2], baseline)
		t.Add(title, "p99 answer", list[n*99/100], baseline)
		t.Add(title, "last answer", list[n-1], baseline)
	}
	t.Add(title, "lost", float64(len(calls)-len(list)), "")
}

// handOver measures calls at a steady rate while Envoy takes over from the agent, and then for the same time
// without a hand-over.
func handOver(t *figures.Table, c *caller, rate float64, d time.Duration) {
	// Stay below the standby's connection limit, which a slow machine would reach otherwise.
	pace := harness.Pace{Rate: rate, Limit: 2000}
	while, after := fmt.Sprintf("hand-over, %.0f/s begun", rate), fmt.Sprintf("no hand-over, %.0f/s begun", rate)
	a := c.hold()
	defer c.end(a)
	c.release()
	conns := c.Connections(called, pace)
	a.Ready()
	status, _ := a.Status()
	time.Sleep(d)
	stream(t, while, after, status.Since, conns.Leave())

	spent, begin := spentBy(a), time.Now()
	conns = c.Connections(called, pace)
	time.Sleep(d)
	stream(t, after, "", begin, conns.Leave())
	spent.since(t, after, a)
}

// stream adds rows with the number of calls that were answered per second after a start (since), and with lost
// and slow calls.
func stream(t *figures.Table, title, baseline string, since time.Time, calls []harness.Call) {
	lost, slowest, last, answered := 0, time.Duration(0), since, 0
	for _, call := range calls {
		if call.Err != nil {
			lost++
			continue
		}
		if call.Served.After(since) {
			answered++
		}
		if call.Served.After(last) {
			last = call.Served
		}
		slowest = max(slowest, call.Served.Sub(call.Begin))
	}
	t.Add(title, "answered a second", float64(answered)/last.Sub(since).Seconds(), baseline)
	t.Add(title, "connections", float64(len(calls)), "")
	t.Add(title, "lost", float64(lost), "")
	t.Add(title, "slowest", slowest.Seconds()*1e3, baseline)
}

// processorTime is the processor time of the agent, of Envoy, and of this process, which makes and answers the
// calls.
type processorTime [3]time.Duration

func spentBy(a *harness.Agent) processorTime {
	return processorTime{process.Spent(a.PID()), process.Spent(a.Envoy()), process.Spent(os.Getpid())}
}

func (before processorTime) since(t *figures.Table, title string, a *harness.Agent) {
	now := spentBy(a)
	for i, process := range []string{"agent", "Envoy", "callers"} {
		t.Add(title, process+" CPU ms", (now[i]-before[i]).Seconds()*1e3, "")
	}
}
