package diagnose

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/evidence"
)

// siblingPod is a pod whose application was refused at its own pod at 10:00:05 and ended; {cache} is the status of the
// other container.
const siblingPod = `apiVersion: v1
kind: Pod
metadata:
  name: shop-0
  namespace: shop
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: shop, controller: true, uid: a}]
  {deleted}
spec:
  containers:
  - {name: app, image: example.com/app:1}
  - {name: cache, image: example.com/cache:1, {cache}}
status:
  phase: Running
  startTime: "2026-03-02T10:00:00Z"
  containerStatuses:
  - name: app
    ready: false
    restartCount: 0
    state: {terminated: {exitCode: 1, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:00:06Z", reason: Error}}
  - name: cache
    ready: true
    restartCount: 0
    state: {state}
`

// The order of the containers is advised only where the order is the fault, for a container that is set to listen there.
func TestRemediesOfSiblings(t *testing.T) {
	const (
		tcp     = "2026-03-02T10:00:05.100Z dial tcp 127.0.0.1:6379: connect: connection refused\n"
		unix    = "2026-03-02T10:00:05.100Z dial unix /run/cache/cache.sock: connect: connection refused\n"
		started = `{running: {startedAt: "2026-03-02T10:00:0%Z"}}`
		early   = `{running: {startedAt: "2026-03-02T09:50:00Z"}}`
		failed  = `{terminated: {exitCode: 3, startedAt: "2026-03-02T10:00:01Z", finishedAt: "2026-03-02T10:00:03Z", reason: Error}}`
		stopped = `{terminated: {exitCode: 143, startedAt: "2026-03-02T09:00:01Z", finishedAt: "2026-03-02T10:00:03Z", reason: Error}}`
		waiting = `{waiting: {reason: ImagePullBackOff}}`
	)
	const sidecar = "make cache a native sidecar"
	for name, c := range map[string]struct{ cache, state, log, deleted, says string }{
		"it starts later":             {"ports: [{containerPort: 6379}]", strings.ReplaceAll(started, "%", "7"), tcp, "", sidecar + " (an init container with restartPolicy: Always and a startup probe), so that app starts after it"},
		"it has only just started":    {"args: [--port=6379]", strings.ReplaceAll(started, "%", "4"), tcp, "", sidecar},
		"it ran for long":             {"args: [--port, \"6379\"]", early, tcp, "", "see whether cache listens at 127.0.0.1:6379"},
		"it failed":                   {"ports: [{containerPort: 6379}]", failed, tcp, "", "see first why cache, which is set to listen there, does not: it ended (exit code 3)"},
		"it cannot run":               {"ports: [{containerPort: 6379}]", waiting, tcp, "", "it waits (ImagePullBackOff)"},
		"it listens at another port":  {"ports: [{containerPort: 6380}]", early, tcp, "", "correct the port that app calls"},
		"no port is known":            {"command: [serve]", early, tcp, "", "see whether cache listens at 127.0.0.1:6379, or where"},
		"a port of the app itself":    {"args: [--app-port=6379]", early, tcp, "", "see whether cache listens at 127.0.0.1:6379, or where"},
		"it was stopped":              {"ports: [{containerPort: 6379}]", stopped, tcp, "deletionTimestamp: \"2026-03-02T10:00:32Z\"", "which the kubelet stops after app"},
		"a socket in a shared folder": {"volumeMounts: [{name: run, mountPath: /run/cache}]", strings.ReplaceAll(started, "%", "7"), unix, "", sidecar},
		"a socket elsewhere":          {"volumeMounts: [{name: run, mountPath: /run/other}]", strings.ReplaceAll(started, "%", "7"), unix, "", "correct the address that app calls"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			pod := strings.NewReplacer("{cache}", c.cache, "{state}", c.state, "{deleted}", c.deleted).Replace(siblingPod)
			for file, text := range map[string]string{"pod.yaml": pod, "app.log": c.log} { // in any order: each is written
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := diagnoseFolder(t, folder)
			for _, f := range r.Findings {
				if f.Container == "app" && strings.Contains(f.Remedy.Sentence, c.says) {
					return
				}
			}
			t.Errorf("%s: %+v, want the remedy %q", r.Verdict, r.Findings, c.says)
		})
	}
}

// The line by which a sibling says that it listens proves the order, where its container had started before the call.
func TestASiblingThatListensLater(t *testing.T) {
	pod := strings.NewReplacer("{cache}", "ports: [{containerPort: 6379}]", "{state}", `{running: {startedAt: "2026-03-02T10:00:03Z"}}`, "{deleted}", "").Replace(siblingPod)
	for at, want := range map[string]bool{"10:00:05.700": true, "10:00:04.300": false} { // in any order: each is of its own
		r := diagnoseFiles(t, map[string]string{
			"pod.yaml": pod, "app.log": "2026-03-02T10:00:05.100Z dial tcp 127.0.0.1:6379: connect: connection refused\n",
			"cache.log": "2026-03-02T10:00:03.500Z load\n2026-03-02T" + at + "Z listening on 127.0.0.1:6379\n",
		})
		f := r.Findings[0]
		if has := slices.ContainsFunc(f.Evidence, func(q evidence.Quote) bool { return strings.Contains(q.Text, "listening on") }); has != want {
			t.Errorf("%s: %s %+v", at, f.Sentence, f.Evidence)
		}
	}
}

// The remedy for a pod of a Job is a part of its manifest: its template takes no patch.
func TestRemedyOfAJob(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(incidents+"/awesome-app")); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(folder, "pod.yaml"), "kind: ReplicaSet, name: awesome-app-5d9c7b6f4d", "kind: Job, name: awesome-app")
	edit(t, filepath.Join(folder, "pod.yaml"), "apiVersion: apps/v1", "apiVersion: batch/v1")
	f := diagnoseFolder(t, folder).Findings[0]
	if f.Code != "startup-race" || f.Patch != "" || !strings.HasPrefix(f.Change, "spec:\n  template:\n") || f.Remedy.Command != "kubectl -n shop replace --force -f job.yaml" {
		t.Errorf("%+v", f)
	}
}

// A patch goes on with the annotation that the pod has, and shows no secret of it.
func TestRemediesShowNoSecrets(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(incidents+"/awesome-app")); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(folder, "pod.yaml"), "metadata:\n", "metadata:\n  annotations: {proxy.istio.io/config: '{concurrency: 2, proxyMetadata: {DB_PASSWORD: hunter2-in-a-pod}}'}\n")
	f := diagnoseFolder(t, folder).Findings[0]
	if strings.Contains(f.Patch+f.Remedy.Sentence, "hunter2") || !strings.Contains(f.Patch, "concurrency") || f.Remedy.Command != "" || !strings.Contains(f.Remedy.Sentence, "--show-secrets") {
		t.Errorf("%+v", f)
	}
}

// A hold that failed since the proxy never was ready is no reason to wait longer.
func TestRemedyOfAProxyThatIsNeverReady(t *testing.T) {
	const native = "make istio-proxy a native sidecar"
	for log, says := range map[string]string{ // in any order: each is reported
		"": "if it only needs longer, " + native,
		"2026-11-24T08:40:02.0Z info Envoy proxy is ready\n":    native,
		"2026-11-24T08:39:25.0Z warning ca client error: x\n":   "istio-proxy does not get ready since it has no certificate",
		"2026-11-24T08:39:25.0Z info Waiting for Envoy proxy\n": "find out why istio-proxy does not get ready",
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(incidents+"/java-istio-hold-fails")); err != nil {
			t.Fatal(err)
		}
		if log != "" {
			if err := os.WriteFile(filepath.Join(folder, "istio-proxy.log"), []byte(log), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		found := false
		r := diagnoseFolder(t, folder)
		for _, f := range r.Findings {
			found = found || f.Code == "hold-fails-open" && strings.Contains(f.Remedy.Sentence, says)
		}
		if !found {
			t.Errorf("%s: %+v, want %q", log, r.Findings, says)
		}
	}
}

// A Job that is held by a helper is deleted, not its pod, for which it makes another; a pod that a deadline has ended
// is not ended again.
func TestHowAJobIsEnded(t *testing.T) {
	for name, c := range map[string]struct{ from, to, command string }{
		"it is held":      {"", "", "kubectl -n shop delete job nightly"},
		"made by another": {"batch/v1\n    kind: Job", "example.com/v1\n    kind: Batch", ""},
		"the deadline":    {"      running:\n", "      terminated:\n        exitCode: 143\n        signal: 15\n        finishedAt: '2026-05-11T10:24:06Z'\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.CopyFS(folder, os.DirFS(incidents+"/cron-hangs-linkerd")); err != nil {
				t.Fatal(err)
			}
			if c.from != "" {
				edit(t, filepath.Join(folder, "pod.yaml"), c.from, c.to)
			}
			if name == "the deadline" {
				edit(t, filepath.Join(folder, "pod.yaml"), "status:\n", "status:\n  reason: DeadlineExceeded\n")
			}
			for _, f := range diagnoseFolder(t, folder).Findings {
				if f.Code == "job-never-ends" && f.Remedy.Command == c.command {
					return
				}
			}
			t.Errorf("%+v", diagnoseFolder(t, folder).Findings)
		})
	}
}
