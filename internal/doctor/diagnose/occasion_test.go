package diagnose

import (
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/evidence"
)

// A node that restarted is the occasion of what fails after it, and the cause if nothing does.
func TestANodeThatRestartedIsTheOccasion(t *testing.T) {
	pod := func(app string) string {
		return `apiVersion: v1
kind: Pod
metadata: {name: stock, namespace: shop}
spec:
  containers:
  - {name: cache, image: example.com/cache:1, ports: [{containerPort: 7070}]}
  - {name: stock, image: example.com/stock:4}
status:
  phase: Running
  startTime: "2026-04-01T08:00:00Z"
  containerStatuses:
  - {name: cache, ready: true, restartCount: 1, state: {running: {startedAt: "2026-04-09T05:00:10Z"}}, lastState: {terminated: {exitCode: 255, reason: Unknown, startedAt: "2026-04-01T08:00:02Z", finishedAt: "2026-04-09T04:59:00Z"}}}
  - {name: stock, restartCount: 2, ` + app + `}
`
	}
	const crashed = `ready: false, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 3, reason: Error, startedAt: "2026-04-09T05:00:12Z", finishedAt: "2026-04-09T05:00:14Z"}}`
	const runs = `ready: true, state: {running: {startedAt: "2026-04-09T05:00:20Z"}}`
	for name, c := range map[string]struct{ app, log, want string }{ // in any order: subtests
		"a call before the other one listens": {crashed, "2026-04-09T05:00:13.100Z dial tcp 127.0.0.1:7070: connect: connection refused\n", "found sibling-down"},
		"a crash of its own":                  {crashed, "2026-04-09T05:00:13.100Z panic: index out of range [3]\n", "found app-crash"},
		"nothing else fails":                  {runs, "2026-04-09T05:00:21.100Z up\n", "found node-lost"},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": pod(c.app), "stock.log": c.log})
			if key(r) != c.want || strings.Contains(r.Findings[0].Remedy.Sentence, "no fault") {
				t.Errorf("%s: %s", key(r), r.Sentence)
			}
			for _, q := range r.Findings[0].Evidence {
				if strings.Contains(q.Text, "cache started") && q.At.At.Day() != 9 {
					t.Errorf("the start of another run: %v", q)
				}
			}
		})
	}
}

// A time without a zone lies in a short window in one of the zones, or in none.
func TestInAnyZone(t *testing.T) {
	at := func(clock evidence.Clock, minute, second int) evidence.Time {
		return evidence.Time{At: time.Date(2026, 4, 9, 5, minute, second, 0, time.UTC), Clock: clock}
	}
	const log = evidence.Clock("log app.log")
	from, to := at(evidence.NodeClock, 20, 10), at(evidence.NodeClock, 20, 16)
	for name, c := range map[string]struct { // in any order
		at   evidence.Time
		to   evidence.Time
		want bool
	}{
		"in it":                 {at(log, 20, 12), to, true},
		"in another zone":       {at(log, 50, 12), to, true},
		"in a zone before":      {at(log, 5, 12), to, true},
		"before it":             {at(log, 20, 9), to, false},
		"after it":              {at(log, 35, 17), to, false},
		"of a known clock":      {at(evidence.NodeClock, 50, 12), to, false},
		"a window that is long": {at(log, 20, 12), at(evidence.NodeClock, 22, 0), false},
	} {
		if got := chain.InAnyZone(c.at, from, c.to); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A call that fails while its helper is down belongs to the helper's end, in whatever zone its log is; one of another time does not.
func TestCallsWhileAHelperIsDown(t *testing.T) {
	const pod = `apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: shop, annotations: {dapr.io/enabled: "true"}}
spec:
  containers:
  - {name: cart, image: example.com/cart:1}
  - {name: daprd, image: daprio/daprd:1.13, args: [/daprd, --dapr-http-port, "3500"], ports: [{containerPort: 3500}], resources: {limits: {memory: 64Mi}}}
status:
  phase: Running
  startTime: "2026-04-01T08:00:00Z"
  containerStatuses:
  - {name: cart, ready: true, restartCount: 0, state: {running: {startedAt: "2026-04-01T08:00:02Z"}}}
  - {name: daprd, ready: true, restartCount: 1, state: {running: {startedAt: "2026-04-01T11:30:41Z"}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: "2026-04-01T08:00:02Z", finishedAt: "2026-04-01T11:30:40Z"}}}
`
	const up = "time=\"2026-04-01T11:30:47.5Z\" level=info msg=\"dapr initialized. Status: Running. Init Elapsed 400ms\"\n"
	for minute, dropped := range map[string]bool{"13:30:43,100": true, "13:30:46,900": true, "13:41:43,100": false} { // in any order
		log := "2026-04-01 10:00:07,000 INFO started\n2026-04-01 " + minute + " ERROR publish failed, will retry: Connection refused: /127.0.0.1:3500\n"
		r := diagnoseFiles(t, map[string]string{"pod.yaml": pod, "cart.log": log, "daprd.log": up})
		if key(r) != "found proxy-out-of-memory" || dropped != (len(r.Findings) == 1) {
			t.Errorf("%s: %s, %d findings", minute, key(r), len(r.Findings))
		}
	}
}
