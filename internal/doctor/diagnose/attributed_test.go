package diagnose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// A log counts as far as it is known whose it is: one that nothing names is quoted as such, one that is taken as a
// container's makes nothing certain, and a proxy of which no more than the log is known is a proxy.
func TestLogsOfOneKnowsWhom(t *testing.T) {
	const (
		row = "NAME    READY   STATUS    RESTARTS   AGE\ntill-0  2/2     Running   1          11m\n"
		pod = `kind: Pod
metadata: {name: till-0, namespace: pay}
spec: {containers: [{name: till}, {name: clerk}]}
status:
  phase: Running
  startTime: "2026-03-02T10:00:00Z"
  containerStatuses:
  - {name: till, restartCount: 1, ready: true, state: {running: {startedAt: "2026-03-02T10:00:19Z"}}, lastState: {terminated: {exitCode: 3, startedAt: "2026-03-02T10:00:06Z", finishedAt: "2026-03-02T10:00:09Z"}}}
  - {name: clerk, restartCount: 0, ready: true, state: {running: {startedAt: "2026-03-02T10:00:06Z"}}}
`
		statuses = `- {name: till, restartCount: 1, ready: true, state: {running: {startedAt: "2026-03-02T10:00:19Z"}}, lastState: {terminated: {exitCode: 3, startedAt: "2026-03-02T10:00:06Z", finishedAt: "2026-03-02T10:00:09Z"}}}
- {name: consul-dataplane, restartCount: 0, ready: true, state: {running: {startedAt: "2026-03-02T10:00:07Z"}}}
`
		stern = "+ till-0 › till\n+ till-0 › linkerd-proxy\n" +
			"till-0 till 2026-03-02T10:00:08.126Z FATAL dial tcp 10.0.3.20:9092: connect: connection refused\n" +
			"till-0 linkerd-proxy 2026-03-02T10:00:08.941Z [     0.041690s]  INFO ThreadId(02) daemon:identity: linkerd_app: Certified identity: till.pay\n"
	)
	for name, c := range map[string]struct {
		files      map[string]string
		verdict    result.Verdict
		code       string
		confidence result.Confidence
		says       string
	}{
		"a log that may be of two": {map[string]string{"pod.yaml": pod, "crash.txt": "panic: no licence for this host\n"}, result.Undecided, "app-crash", result.Possible,
			"till ended (exit code 3), and a log that names no container says: panic: no licence for this host"},
		"a log that names none beside a line": {map[string]string{"a.md": "```\n" + row + "```\n\n```\npanic: no licence for this host\n```\n"}, result.Undecided, "state-not-known", result.Possible, "the line looks well (Running), and a log says: panic: no licence for this host, after 1 restarts"},
		"the only log that is left": {map[string]string{"pod.yaml": pod, "clerk.log": "ready\n", "crash.txt": "panic: no licence for this host\n"}, result.Found, "app-crash", result.Likely,
			"till ended by itself: panic: no licence for this host"},
		"a proxy of which the log alone is known": {map[string]string{"q.txt": row, "stern.txt": stern}, result.Undecided, "startup-race", result.Possible, "startup-race and dependency-down"},
		"what Consul's proxy may serve": {map[string]string{"status.yaml": statuses, "till.previous.log": "FATAL dial tcp 127.0.0.1:2345: connect: connection refused\n"}, result.Found, "sibling-down", result.Likely,
			"till called its own pod at 127.0.0.1:2345 before consul-dataplane listened there"},
		"sentences beside a pod": {map[string]string{"pod.yaml": pod, "log.txt": "It fails since the move, and the error says nothing at all. Who knows more?\n"}, result.Undecided, "app-crash", result.Possible,
			"till ended (exit code 3), and its log is not among the evidence"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := diagnoseFolder(t, dir)
			if len(r.Findings) == 0 {
				t.Fatalf("%s: %s", r.Verdict, r.Sentence)
			}
			if f := r.Findings[0]; r.Verdict != c.verdict || string(f.Code) != c.code || f.Confidence != c.confidence || !strings.Contains(r.Sentence, c.says) {
				t.Errorf("%s %s %s: %s", r.Verdict, f.Code, f.Confidence, r.Sentence)
			}
		})
	}
}
