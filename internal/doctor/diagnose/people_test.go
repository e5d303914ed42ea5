package diagnose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// folderOf writes files into a folder.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for file, text := range files { // in any order: each is a file
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

const statuses = `containerStatuses:
- name: app
  ready: true
  restartCount: 1
  state: {running: {startedAt: "2026-11-24T13:16:36Z"}}
  lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-11-24T13:16:22Z", finishedAt: "2026-11-24T13:16:23Z"}}
- name: PROXY
  ready: true
  restartCount: 0
  state: {running: {startedAt: "PROXY STARTED"}}
`

// Parts of a pod that a person left out are unknown: a call may have been captured.
func TestShortenedPod(t *testing.T) {
	const refused = "java.net.ConnectException: connect to config-server:8080: Connection refused\n"
	pod := func(init string) string {
		return "kind: Pod\nmetadata: {name: web}\nspec:\n  initContainers: [" + init + "]\n  containers: [{name: app}, {name: PROXY}]\nstatus:\n  " + strings.ReplaceAll(statuses, "\n", "\n  ")
	}
	for name, c := range map[string]struct {
		object, proxy, started, log string
		want                        string
		sure                        result.Confidence
	}{
		"the statuses alone":                         {statuses, "istio-proxy", "2026-11-24T13:16:20Z", refused, "found startup-race", result.Likely},
		"the statuses alone, the proxy was there":    {statuses, "istio-proxy", "2026-11-24T13:10:20Z", refused, "undecided startup-race", result.Possible},
		"of a plain Envoy":                           {statuses, "envoy", "2026-11-24T13:16:20Z", refused, "undecided startup-race", result.Possible},
		"of a proxy that is called by its address":   {statuses, "daprd", "2026-11-24T13:16:20Z", refused, "found dependency-down", result.Certain},
		"the arguments of the rules":                 {pod("{name: istio-init, args: ['...']}"), "istio-proxy", "2026-11-24T13:16:20Z", refused, "found startup-race", result.Likely},
		"no arguments":                               {pod("{name: istio-init}"), "istio-proxy", "2026-11-24T13:16:20Z", refused, "found startup-race", result.Likely},
		"the arguments, of which the port is left":   {pod("{name: istio-init, args: [istio-iptables, '-o', '8080', '...']}"), "istio-proxy", "2026-11-24T13:16:20Z", refused, "found dependency-down", result.Certain},
		"the arguments, and the call was to the pod": {pod("{name: istio-init, args: ['...']}"), "istio-proxy", "2026-11-24T13:16:20Z", strings.Replace(refused, "config-server", "127.0.0.1", 1), "found sibling-down", result.Certain},
	} {
		t.Run(name, func(t *testing.T) {
			object := strings.NewReplacer("PROXY STARTED", c.started, "PROXY", c.proxy).Replace(c.object)
			r := diagnoseFolder(t, folderOf(t, map[string]string{"pod.yaml": object, "app.previous.log": c.log}))
			if key(r) != c.want || r.Findings[0].Confidence != c.sure {
				t.Errorf("%s %s: %s\n%+v", key(r), r.Findings[0].Confidence, r.Sentence, r.Findings)
			}
		})
	}
}

// Of a proxy whose status was left out it is not known when it started, and nothing says that it had.
func TestProxyWithoutStatus(t *testing.T) {
	object := "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app}, {name: istio-proxy}]}\nstatus:\n  " + strings.ReplaceAll(statuses[:strings.Index(statuses, "- name: PROXY")], "\n", "\n  ")
	r := diagnoseFolder(t, folderOf(t, map[string]string{"pod.yaml": object, "app.previous.log": "connect to config-server:8080: Connection refused\n"}))
	if key(r) != "found startup-race" && key(r) != "undecided startup-race" || len(r.Findings[0].Against) == 0 {
		t.Errorf("%s: %+v", key(r), r.Findings)
	}
}

const described = `Name:         web
Namespace:    shop
Node:         node-1/10.0.0.1
Start Time:   Tue, 24 Nov 2026 13:16:18 +0000
Annotations:  proxy.istio.io/config: {"holdApplicationUntilProxyStarts":true}
Status:       Running
Containers:
  istio-proxy:
    Image:          istio/proxyv2:1.21.2
    State:          Running
      Started:      Tue, 24 Nov 2026 13:16:20 +0000
    Ready:          True
    Restart Count:  0
  app:
    Image:          registry/app:3
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       Error
      Exit Code:    1
      Started:      Tue, 24 Nov 2026 13:19:22 +0000
      Finished:     Tue, 24 Nov 2026 13:19:23 +0000
    Ready:          False
    Restart Count:  5
Events:           <none>
`

// A description shows no hooks: that the hold has no effect cannot be said of it. Without a log, that of the crash
// would decide.
func TestDescribedPod(t *testing.T) {
	r := diagnoseFolder(t, folderOf(t, map[string]string{"describe.txt": described}))
	if key(r) != "undecided app-crash" || !strings.Contains(r.Decide, "-c app ") || !strings.Contains(r.Decide, "--previous") {
		t.Errorf("%s: %s", key(r), r.Decide)
	}
	early := strings.NewReplacer("13:19:2", "13:16:2", "Restart Count:  5", "Restart Count:  1", "Waiting\n      Reason:       CrashLoopBackOff", "Running\n      Started:      Tue, 24 Nov 2026 13:16:40 +0000").Replace(described)
	r = diagnoseFolder(t, folderOf(t, map[string]string{"describe.txt": early, "app.previous.log": "connect to config-server:8080: Connection refused\n"}))
	if key(r) != "found startup-race" {
		t.Errorf("%s: %+v", key(r), r.Findings)
	}
}

// A container that was killed with its pod did not end by itself.
func TestEvictedAlone(t *testing.T) {
	evicted := strings.NewReplacer("Status:       Running", "Status:       Failed\nReason:       Evicted\nMessage:      The node was low on resource: memory.", "Exit Code:    1\n", "Exit Code:    137\n",
		"State:          Waiting\n      Reason:       CrashLoopBackOff\n    Last State:  ", "State:       ").Replace(described)
	r := diagnoseFolder(t, folderOf(t, map[string]string{"describe.txt": evicted, "app.log": "x\n"}))
	if key(r) != "found evicted" || len(r.Findings) != 1 {
		t.Errorf("%s: %+v", key(r), r.Findings)
	}
}

// A line of kubectl get pods has the state of a pod, and not why.
func TestRow(t *testing.T) {
	for status, want := range map[string]string{
		"0/1 CrashLoopBackOff 5 3m": "undecided app-crash", "0/2 Init:Error 1 3m": "undecided app-crash", "0/1 ImagePullBackOff 0 3m": "found image-missing", "0/1 Init:ErrImagePull 0 3m": "found image-missing",
		"0/1 Evicted 0 3m": "found evicted", "0/1 OOMKilled 1 3m": "found out-of-memory", "0/1 Pending 0 3m": "undecided not-scheduled", "0/1 ContainerCreating 0 3m": "starting", "0/1 ContainerCreating 0 3h": "undecided state-not-known",
		"1/2 Running 0 3h": "undecided state-not-known", "1/1 Running 7 3h": "nothing", "0/1 Completed 0 3h": "nothing", "1/1 Terminating 0 3h": "nothing", "0/1 Unknown 0 3h": "found node-lost",
		"0/1 CreateContainerConfigError 0 3m": "found container-not-created", "0/1 SomethingElse 0 3h": "undecided state-not-known",
	} {
		f := strings.Fields(status)
		r := diagnoseFolder(t, folderOf(t, map[string]string{"pods.txt": "NAME   READY   STATUS    RESTARTS   AGE\nweb   " + strings.Join(f, "   ") + "\n"}))
		if key(r) != want {
			t.Errorf("%s: %s: %s", status, key(r), r.Sentence)
		}
		if !r.Verdict.Well() && r.Decide != "kubectl describe pod web" {
			t.Errorf("%s: %s", status, r.Decide)
		}
	}
}
