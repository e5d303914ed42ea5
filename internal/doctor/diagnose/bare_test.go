package diagnose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bareEnvoy is a pod from a cluster without a mesh: its proxy is a plain Envoy, and a script writes the capture
// rules.
const bareEnvoy = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"%DELETED%},
"spec": {"initContainers": [{"name": "istio-init", "command": ["sh", "-c", "iptables -t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001"]}],
  "containers": [{"name": "app", "image": "a"}, {"name": "istio-proxy", "image": "b"}]},
"status": {"phase": "Running", "startTime": "2026-03-02T10:00:00Z", "containerStatuses": [
  {"name": "app", "ready": true, "state": {"running": {"startedAt": "2026-03-02T10:00:02Z"}}},
  {"name": "istio-proxy", "ready": %READY%, "state": {"running": {"startedAt": "2026-03-02T10:00:02Z"}}}]}}
`

const workers = "2026-03-02T10:00:02.500Z [info][config] all dependencies initialized. starting workers\n"

func TestBareEnvoy(t *testing.T) {
	const refusedLater = "2026-03-02T10:05:04.500Z dial tcp 10.96.12.9:80: connect: connection refused\n"
	for name, c := range map[string]struct {
		deleted, ready, app, proxy, want string
	}{
		"its shutdown, of which the status of a deleted pod says nothing yet": {
			deleted: `, "deletionTimestamp": "2026-03-02T10:05:30Z"`, ready: "true", app: refusedLater,
			proxy: workers + "2026-03-02T10:05:00.100Z [warning][main] caught ENVOY_SIGTERM\n", want: "found shutdown-race",
		},
		"a call before its shutdown is none of it": {
			deleted: `, "deletionTimestamp": "2026-03-02T10:05:40Z"`, ready: "true", app: refusedLater,
			proxy: workers + "2026-03-02T10:05:10.100Z [warning][main] caught ENVOY_SIGTERM\n", want: "found dependency-down",
		},
		"nothing says when it was ready, and it is no race of its start": {
			deleted: `, "deletionTimestamp": "2026-03-02T10:05:30Z"`, ready: "true", app: refusedLater,
			proxy: "2026-03-02T10:05:00.100Z [warning][main] caught ENVOY_SIGTERM\n", want: "found shutdown-race",
		},
		"its workers start although its listeners were rejected": {
			ready: "false", app: "2026-03-02T10:00:02.600Z up\n",
			proxy: "2026-03-02T10:00:02.400Z [warning][config] Filesystem config update rejected: Error adding/updating listener(s) in: no filter chains specified\n" + workers, want: "found configuration-rejected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			pod := strings.NewReplacer("%DELETED%", c.deleted, "%READY%", c.ready).Replace(bareEnvoy)
			for file, text := range map[string]string{"pod.json": pod, "app.log": c.app, "istio-proxy.log": c.proxy} { // in any order: each is a file
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if r := diagnoseFolder(t, folder); key(r) != c.want {
				t.Errorf("%s: %s, want %s", key(r), r.Sentence, c.want)
			}
		})
	}
}
