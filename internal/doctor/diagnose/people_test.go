package diagnose

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence/gather"
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
		"1/2 Running 0 3h": "undecided state-not-known", "1/1 Running 7 3h": "undecided state-not-known", "1/1 Running 0 3h": "nothing", "0/1 Completed 0 3h": "nothing", "1/1 Terminating 0 3h": "undecided state-not-known", "2/2 Terminating 0 41s": "undecided state-not-known", "0/1 Unknown 0 3h": "found node-lost",
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

// Logs alone say why their program ended, and no more than that: not that nothing is wrong, and nothing for certain.
func TestLogsAlone(t *testing.T) {
	for name, tt := range map[string]struct{ log, want, says string }{
		"a cause":       {"booting\nFATAL: open /data/index: permission denied\n", "found app-crash", "shop ended by itself, as its log says: "},
		"a failed call": {"ERROR dial tcp 10.1.0.9:5432: connect: connection refused, retrying\nFATAL: no database\n", "undecided dependency-down", ""},
		"a remark":      {"ERROR cannot load theme, using the default\nlistening\n", "undecided state-not-known", "not known whether the pod is well"},
	} {
		r := diagnoseFolder(t, folderOf(t, map[string]string{"shop.log": tt.log}))
		if key(r) != tt.want || !strings.Contains(r.Sentence, tt.says) || r.Findings[0].Confidence == result.Certain {
			t.Errorf("%s: %s: %s (%s)", name, key(r), r.Sentence, r.Findings[0].Confidence)
		}
	}
	r := diagnoseFolder(t, folderOf(t, map[string]string{"a.txt": "$ kubectl get pod\nclean-27952560-wq4lp   1/2   NotReady   0   3d\ndescribe says  work: Terminated/Completed exit 0  istio-proxy: Running since noon\n", "cron.yaml": "kind: CronJob\nmetadata: {name: clean, namespace: shop}\n"}))
	if key(r) != "found job-never-ends" || r.Findings[0].Confidence != result.Likely {
		t.Errorf("words: %s: %s", key(r), r.Sentence)
	}
}

// Logs beside a line of kubectl get pods decide; without them, or where one was not read, nothing is said to be well.
func TestRowWithLogs(t *testing.T) {
	const (
		refused = "2026-11-24T09:00:25Z dial tcp 127.0.0.1:5432: connect: connection refused\n"
		listens = "2026-11-24T08:00:00Z Listening on 127.0.0.1:5432\n"
		told    = "2026-11-24T09:00:11Z received SIGTERM, 1 connection is open\n"
		panics  = "panic: cannot open /data/x: no such file or directory\n"
		names   = "\ncontainers: app (r.example/app:1), sql (r.example/cloud-sql-proxy:1 --port=5432)\n"
	)
	for name, tt := range map[string]struct {
		rows  string
		more  string            // text below the table
		logs  map[string]string // by file
		want  string
		says  string // a part of the sentence
		files int    // that are not used
	}{
		"told to stop before its caller":       {"web 2/2 Terminating 0 3h", names, map[string]string{"app.log": refused, "sql.log": listens + told}, "found shutdown-race", "sql was told to stop", 0},
		"without a text that names them":       {"web 2/2 Terminating 0 3h", "", map[string]string{"app.log": refused, "sql.log": listens + told}, "found shutdown-race", "sql was told to stop", 0},
		"the other pods are well":              {"web-1 2/2 Terminating 0 3h\nweb-2 2/2 Running 0 9s", names, map[string]string{"app.log": refused, "sql.log": listens + told}, "found shutdown-race", "sql was told to stop", 0},
		"the caller's clock has no zone":       {"web 2/2 Terminating 0 3h", names, map[string]string{"app.log": "worker: Warm shutdown (MainProcess)\n" + strings.Replace(strings.Replace(refused, "T", " ", 1), "Z", "", 1), "sql.log": listens + told}, "found shutdown-race", "sql was told to stop", 0},
		"it was told to stop after the call":   {"web 2/2 Terminating 0 3h", names, map[string]string{"app.log": refused, "sql.log": listens + strings.Replace(told, "09:00:11", "09:00:41", 1)}, "found sibling-down", "", 0},
		"it was not told to stop":              {"web 2/2 Terminating 0 3h", names, map[string]string{"app.log": refused, "sql.log": listens + "2026-11-24T09:00:11Z will drain on SIGTERM for 30s\n"}, "found sibling-down", "", 0},
		"a container without a log":            {"web 0/3 Error 0 3h", "", map[string]string{"app.log": refused}, "undecided app-crash", "", 0},
		"why it ends":                          {"web 0/1 CrashLoopBackOff 4 3h", "", map[string]string{"app.previous.log": panics}, "found app-crash", "app ended by itself: panic", 0},
		"which pod, the name of the file says": {"web-1 0/1 CrashLoopBackOff 4 3h\nweb-2 0/1 CrashLoopBackOff 4 3h", "", map[string]string{"app.log": panics}, "undecided app-crash", "", 1},
		"a log says an error":                  {"web 1/1 Running 0 3h", "", map[string]string{"web.log": panics}, "undecided state-not-known", "a log says: panic", 0},
		"a log says nothing":                   {"web 1/1 Running 0 3h", "", map[string]string{"web.log": "serving on 8080\n"}, "nothing", "", 0},
		"of one of two pods":                   {"web 1/1 Running 0 3h\napi 1/1 Running 0 3h", "", map[string]string{"app.log": panics}, "undecided state-not-known", "was not read (app.log)", 1},
		"a text names another container":       {"web 1/1 Running 0 3h", "\ncontainer app is meant\n", map[string]string{"app.log": "x\n", "other.log": panics}, "undecided state-not-known", "was not read (other.log)", 1},
		"it goes":                              {"web 1/1 Terminating 0 3h", "", map[string]string{"app.log": "serving on 8080\n"}, "undecided state-not-known", "is being deleted", 0},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(tt.logs)
			files["pods.txt"] = "NAME   READY   STATUS    RESTARTS   AGE\n" + strings.ReplaceAll(tt.rows, " ", "   ") + "\n" + tt.more
			set, err := gather.Read(t.Context(), gather.Options{}, folderOf(t, files))
			if err != nil {
				t.Fatal(err)
			}
			r, err := Diagnose(t.Context(), set.Pods[0], Options{})
			if err != nil || key(r) != tt.want || !strings.Contains(r.Sentence, tt.says) {
				t.Errorf("%s: %s, %v", key(r), r.Sentence, err)
			}
			for _, f := range r.Findings {
				if f.Confidence == result.Certain {
					t.Errorf("certain by a line: %+v", f)
				}
			}
			for _, u := range set.Unused {
				if tt.files--; strings.Contains(u.Why, "()") {
					t.Errorf("%q", u.Why)
				}
			}
			if tt.files != 0 {
				t.Errorf("the unused %+v", set.Unused)
			}
		})
	}
}

// A line of kubectl get nodes is quoted where it matters, and a table of which nothing is read is named as such.
func TestNodesBeside(t *testing.T) {
	const head = "NAME   STATUS   ROLES    AGE   VERSION\n"
	pod := "kind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {nodeName: n1, containers: [{name: app}]}\nstatus:\n  " + strings.ReplaceAll("containerStatuses: [{name: app, restartCount: 1, state: {running: {startedAt: \"2026-11-24T13:16:36Z\"}}, lastState: {terminated: {exitCode: 1, startedAt: \"2026-11-24T13:16:22Z\", finishedAt: \"2026-11-24T13:16:23Z\"}}}]\n", "\n", "\n  ")
	for row, want := range map[string]string{
		"n1     Ready    <none>   70s   v1.34.1": "node n1 is Ready, and was 1 min 10 s old", "n1     NotReady    <none>   9d   v1.34.1": "node n1 is NotReady", "n1     Ready    <none>   9d   v1.34.1": "", "n2     Ready    <none>   70s   v1.34.1": "",
	} {
		folder := folderOf(t, map[string]string{"pod.yaml": pod, "nodes.txt": head + row + "\n", "svc.txt": "NAME   TYPE        CLUSTER-IP   AGE\nweb    ClusterIP   10.0.0.1     3h\n"})
		set, err := gather.Read(t.Context(), gather.Options{}, folder)
		if err != nil || len(set.Unused) == 0 || !strings.HasPrefix(set.Unused[0].Why, "a table of kubectl get") {
			t.Errorf("%+v, %v", set.Unused, err)
		}
		q := diagnoseFolder(t, folder).Findings[0].Evidence
		if got := q[len(q)-1].Text; want != "" && !strings.HasPrefix(got, want) || want == "" && strings.Contains(got, "node n") {
			t.Errorf("%s: %s", row, got)
		}
	}
}
