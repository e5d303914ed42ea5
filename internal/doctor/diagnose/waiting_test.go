package diagnose

import (
	"strings"
	"testing"
)

// A pod that should end is not well if its application has said for long nothing but that it waits.
func TestApplicationThatWaits(t *testing.T) {
	const (
		pod = `kind: Pod
metadata: {name: till-0, namespace: pay}
spec: {restartPolicy: Never, containers: [{name: till}], initContainers: [{name: istio-proxy, restartPolicy: Always}]}
status:
  phase: Running
  containerStatuses: [{name: till, restartCount: 0, ready: true, started: true, state: {running: {startedAt: "2026-03-02T02:00:08Z"}}}]
  initContainerStatuses: [{name: istio-proxy, restartCount: 0, ready: true, started: true, state: {running: {startedAt: "2026-03-02T02:00:05Z"}}}]
`
		begin = "2026-03-02 02:00:13.101  INFO 1 --- [main] app.Till : open\n2026-03-02 02:00:13.512  INFO 1 --- [main] app.Till : Waiting for the lock of the ledger\n"
		again = "2026-03-02 02:00:23.520  INFO 1 --- [main] app.Till : Waiting for the lock of the ledger\n"
		now   = "2026-03-02 02:58:43.917  INFO 1 --- [main] app.Till : Waiting for the lock of the ledger\n"
		soon  = "2026-03-02 02:00:33.529  INFO 1 --- [main] app.Till : Waiting for the lock of the ledger\n"
		other = "2026-03-02 02:58:44.000  INFO 1 --- [main] app.Till : 7 entries moved\n"
	)
	for name, c := range map[string]struct { // in any order: subtests
		pod, log string
		waits    bool
	}{
		"for long":               {pod, begin + again + now, true},
		"not for long":           {pod, begin + again + soon, false},
		"it says something else": {pod, begin + again + now + other, false},
		"it should run for ever": {strings.Replace(pod, "Never", "Always", 1), begin + again + now, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": c.pod, "till.log": c.log})
			if is := strings.Contains(r.Sentence, "till runs on, and waits: for 58 min 30 s or longer its log has said nothing else than: Waiting for the lock of the ledger"); is != c.waits {
				t.Errorf("waits: %v, want %v: %s", is, c.waits, r.Sentence)
			}
		})
	}
}
