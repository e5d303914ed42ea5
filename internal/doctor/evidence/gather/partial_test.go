package gather

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/partial"
)

// one reads the files of a folder, in which there must be one pod.
func one(t *testing.T, files map[string]string) *evidence.Pod {
	t.Helper()
	s := read(t, Options{}, folder(t, files))
	if len(s.Pods) != 1 {
		t.Fatalf("%d pods, unused %v", len(s.Pods), s.Unused)
	}
	return s.Pods[0]
}

const someStatuses = `
containerStatuses:
- name: app
  ready: true
  restartCount: 2
  state: {running: {startedAt: "2026-11-24T13:16:36Z"}}
  lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-11-24T13:16:22Z", finishedAt: "2026-11-24T13:16:23Z"}}
- name: istio-proxy
  image: istio/proxyv2:1.6.8
  ready: true
  restartCount: 0
  state: {running: {startedAt: "2026-11-24T13:16:20Z"}}
`

// A person may copy any part of a pod. What is not there is marked as omitted, and the rest is used.
func TestShortened(t *testing.T) {
	inner := func(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }
	const meta = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n"
	const spec = "spec:\n  containers:\n  - {name: app, image: app}\n  - {name: istio-proxy}\n"
	all, noSpec := evidence.Omitted{Meta: true, Spec: true, Hooks: true}, evidence.Omitted{Spec: true, Hooks: true}
	for name, tt := range map[string]struct {
		file, text string
		pod        string
		omitted    evidence.Omitted
	}{
		"the whole":             {"pod.yaml", meta + spec + "status:" + inner(someStatuses), "shop/web", evidence.Omitted{}},
		"no spec":               {"pod.yaml", meta + "status:" + inner(someStatuses), "shop/web", noSpec},
		"an empty spec":         {"pod.yaml", meta + "spec: ...\nstatus:" + inner(someStatuses), "shop/web", all},
		"a line left out":       {"pod.yaml", meta + "spec:\n  containers:\n  - name: app\n    image: app\n    [...]\n  - {name: istio-proxy}\nstatus:" + inner(someStatuses), "shop/web", all},
		"no name":               {"pod.yaml", "kind: Pod\n" + spec + "status:" + inner(someStatuses), "POD", evidence.Omitted{Meta: true}},
		"a name left out":       {"pod.yaml", strings.Replace(meta, "name: web", "name: '***'", 1) + spec + "status:" + inner(someStatuses), "shop/POD", evidence.Omitted{Meta: true}},
		"no kind":               {"pod.yaml", "metadata: {name: web}\n" + spec + "status:" + inner(someStatuses), "web", evidence.Omitted{}},
		"the status":            {"status.yaml", "status:" + inner(someStatuses), "POD", all},
		"its statuses":          {"status.yaml", someStatuses, "POD", all},
		"the list of them":      {"status.yaml", strings.ReplaceAll(strings.TrimPrefix(someStatuses, "\ncontainerStatuses:\n"), "- name", "- name"), "POD", all},
		"the same in a text":    {"status.txt", "Hi,\nthis is what we see:\n\n```yaml" + someStatuses + "```\n\nAny idea?\n", "POD", all},
		"a pod in a text":       {"pod.txt", "$ kubectl get pod -o yaml\n" + meta + spec + "status:" + inner(someStatuses), "shop/web", evidence.Omitted{}},
		"a container left out":  {"pod.yaml", meta + "spec: {containers: [{name: app}]}\nstatus:" + inner(someStatuses), "shop/web", noSpec},
		"JSON without a kind":   {"pod.json", `{"containerStatuses":[{"name":"app","restartCount":2,"state":{"running":{"startedAt":"2026-11-24T13:16:36Z"}},"lastState":{"terminated":{"exitCode":1,"startedAt":"2026-11-24T13:16:22Z","finishedAt":"2026-11-24T13:16:23Z"}}}]}`, "POD", all},
		"a count left out":      {"pod.yaml", meta + "status: {containerStatuses: [{name: app, state: {running: {startedAt: \"2026-11-24T13:16:36Z\"}}, lastState: {terminated: {exitCode: 1, startedAt: \"2026-11-24T13:16:22Z\", finishedAt: \"2026-11-24T13:16:23Z\"}}}]}", "shop/web", noSpec},
		"one status by itself":  {"app.yaml", "name: app\nrestartCount: 1\nlastState: {terminated: {exitCode: 1, startedAt: \"2026-11-24T13:16:22Z\", finishedAt: \"2026-11-24T13:16:23Z\"}}\nstate: {running: {startedAt: \"2026-11-24T13:16:36Z\"}}\n", "POD", all},
		"cut off in a line":     {"pod.yaml", meta + spec + "status:" + inner(someStatuses) + "  message: \"it ended wi", "shop/web", all},
		"words in place of any": {"pod.yaml", meta + spec + "  volumes: <snip>\nstatus:" + inner(someStatuses), "shop/web", all},
	} {
		t.Run(name, func(t *testing.T) {
			p := one(t, map[string]string{tt.file: tt.text, "app.previous.log": "Connection refused\n"})
			if p.Name() != tt.pod || p.Omitted != tt.omitted {
				t.Errorf("%s, omitted %+v", p.Name(), p.Omitted)
			}
			app := p.Container("app")
			if app == nil || len(app.Runs) != 2 || *app.Runs[0].Exit != 1 || app.Log(app.Restarts-1) == nil || p.Object.Spec.Containers[0].Name != "app" {
				t.Errorf("%+v", app)
			}
			noted := slices.ContainsFunc(p.Missing, func(m evidence.Missing) bool { return m.What == "the spec of the pod" })
			if noted != tt.omitted.Spec {
				t.Errorf("%v", p.Missing)
			}
		})
	}
}

// A status without containers is one too.
func TestStatusWithoutContainers(t *testing.T) {
	for _, text := range []string{`{"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}}`, `{"phase": "Failed", "reason": "Evicted", "message": "low on memory"}`} {
		p := one(t, map[string]string{"x.json": text})
		if p.Object.Status.Reason != "Evicted" || p.Omitted != (evidence.Omitted{Meta: true, Spec: true, Hooks: true}) || len(p.Containers) > 0 {
			t.Errorf("%+v", p)
		}
	}
}

// A status that names no container belongs to one nevertheless.
func TestStatusWithoutName(t *testing.T) {
	p := one(t, map[string]string{"x.yaml": "lastState: {terminated: {exitCode: 137, reason: OOMKilled}}\nrestartCount: 3\nstate: {waiting: {reason: CrashLoopBackOff}}\n", "previous.log": "x"})
	if len(p.Containers) != 1 || p.Containers[0].Name != partial.NoContainer || p.Containers[0].Last().Reason != "OOMKilled" || len(p.Containers[0].Logs) != 1 {
		t.Errorf("%+v", p.Containers)
	}
}

// The parts of one pod in a folder become one, also with the pod that is there.
func TestParts(t *testing.T) {
	spec, event := "spec:\n  containers:\n  - {name: app}\n  - {name: istio-proxy}\n", "kind: Event\nmetadata: {name: e}\ninvolvedObject: {kind: Pod, name: web}\nreason: Killing\nmessage: x\n"
	p := one(t, map[string]string{"a.yaml": spec, "b.yaml": someStatuses, "events.yaml": event})
	if p.Omitted != (evidence.Omitted{Meta: true}) || len(p.Container("app").Runs) != 2 || len(p.Events) != 1 {
		t.Errorf("%+v, %+v", p.Omitted, p.Events)
	}
	p = one(t, map[string]string{"pod.yaml": "kind: Pod\nmetadata: {name: web}\n" + spec, "status.yaml": someStatuses})
	if p.Name() != "web" || p.Omitted != (evidence.Omitted{}) || len(p.Container("app").Runs) != 2 {
		t.Errorf("%s, %+v", p.Name(), p.Omitted)
	}
}

func TestLeftOut(t *testing.T) {
	for text, want := range map[string]bool{
		"...": true, "…": true, "[...]": true, "# ...": true, "<redacted>": true, "REDACTED": true, "***": true, "--- snip ---": true, "(omitted)": true, "xxxx": true,
		"": false, "-": false, ".": false, "*": false, "0.0.0.0/0": false, "a...": false, "x": false, "cut -f1": false, "hidden-service": false, "[]": false,
	} {
		if evidence.LeftOut(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

const description = `Name:         web
Namespace:    shop
Node:         node-1/10.0.0.1
Start Time:   Tue, 24 Nov 2026 13:16:18 +0000
Status:       Running
Containers:
  app:
    Image:          registry/app:3
    State:          Running
      Started:      Tue, 24 Nov 2026 13:16:36 +0000
    Last State:     Terminated
      Reason:       Error
      Exit Code:    1
      Started:      Tue, 24 Nov 2026 13:16:22 +0000
      Finished:     Tue, 24 Nov 2026 13:16:23 +0000
    Ready:          True
    Restart Count:  2
    Liveness:       http-get http://:8080/live delay=0s timeout=1s period=10s #success=1 #failure=3
Events:
  Type     Reason     Age                  From     Message
  ----     ------     ----                 ----     -------
  Normal   Started    84s (x3 over 103s)   kubelet  Started container app
  Normal   Pulled     84s (x3 over 103s)   kubelet  Container image "registry/app:3" already present on machine
  Warning  Unhealthy  9s (x2 over 19s)     kubelet  Liveness probe failed: HTTP probe failed with statuscode: 500
`

// The description of a pod is evidence as its object is. The ages of its events become times by the start of a container.
func TestDescription(t *testing.T) {
	p := one(t, map[string]string{"describe.txt": description, "app-previous.log": "x\n"})
	if p.Name() != "shop/web" || p.Omitted != (evidence.Omitted{Hooks: true}) || p.Container("app").Log(1) == nil {
		t.Errorf("%s, %+v", p.Name(), p.Omitted)
	}
	var got []string
	for _, e := range p.Events {
		got = append(got, fmt.Sprint(e.Reason, " ", e.Container, " ", e.Count, " ", e.First.At.Format("15:04:05"), " ", e.Last.At.Format("15:04:05"), " ±", e.Last.Error))
	}
	want := []string{"Started app 3 13:16:16 13:16:35 ±3s", "Pulled app 3 13:16:16 13:16:35 ±3s", "Unhealthy app 2 13:17:40 13:17:50 ±3s"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if show(p.Taken) != "2026-11-24T13:18:00Z" || p.Taken.Error.Seconds() != 2 {
		t.Errorf("taken %s ±%s", show(p.Taken), p.Taken.Error)
	}
}

// An event of a description whose message names no container belongs to the only one that it can mean.
func TestContainerOfAnEvent(t *testing.T) {
	const proxy = `  proxy:
    Image:          registry/proxy:1
    State:          Running
    Ready:          False
    Restart Count:  0
    Readiness:      http-get http://:15021/healthz/ready delay=0s timeout=3s period=15s #success=1 #failure=4
  web:
    Image:          registry/web:1
    State:          Waiting
      Reason:       CreateContainerConfigError
    Ready:          False
    Restart Count:  0
    Readiness:      tcp-socket :8080 delay=0s timeout=3s period=15s #success=1 #failure=4
Events:
`
	for message, want := range map[string]string{ // in any order: each is checked by itself
		`Unhealthy  1s  kubelet  Readiness probe failed: Get "http://10.1.0.7:15021/healthz/ready": dial tcp 10.1.0.7:15021: connect: connection refused`: "proxy",
		`Unhealthy  1s  kubelet  Readiness probe failed: dial tcp 10.1.0.7:8080: connect: connection refused`:                                             "web",
		`Unhealthy  1s  kubelet  Readiness probe failed: `:                                                                                                "",
		`Unhealthy  1s  kubelet  Liveness probe failed: HTTP probe failed`:                                                                                "app",
		`Failed  1s  kubelet  Error: configmap "settings" not found`:                                                                                      "web",
		`Failed  1s  kubelet  Failed to pull image "registry/proxy:1": not found`:                                                                         "proxy",
		`FailedPostStartHook  1s  kubelet  Exec lifecycle hook ([x]) for Container "app" in Pod "web" failed`:                                             "app",
		`FailedScheduling  1s  default-scheduler  0/3 nodes are available`:                                                                                "",
	} {
		text := strings.Replace(description, "Events:\n", proxy, 1)
		p := one(t, map[string]string{"describe.txt": text + "  Warning  " + message + "\n"})
		i := slices.IndexFunc(p.Events, func(e evidence.Event) bool {
			return strings.HasSuffix(strings.TrimSpace(message), strings.TrimSpace(e.Message))
		})
		if i < 0 || p.Events[i].Container != want {
			t.Errorf("%s: %+v, want %q", message, p.Events, want)
		}
	}
}

// Without an event that fits a start, the events of a description have no times, and their order.
func TestDescriptionWithoutATime(t *testing.T) {
	p := one(t, map[string]string{"describe.txt": strings.ReplaceAll(description, "(x3 over", "(x9 over")})
	if p.Taken.Known() || len(p.Events) != 3 || p.Events[0].Last.Known() || p.Events[2].Reason != "Unhealthy" || p.Events[2].Count != 2 {
		t.Errorf("%+v", p.Events)
	}
}

// A description beside the object, or beside one that is older, adds what that lacks.
func TestDescriptionBesides(t *testing.T) {
	object := "kind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: app, image: 'registry/app:3'}]}\n"
	p := one(t, map[string]string{"a/pod.yaml": object, "b/describe.txt": description, "b/app.log": "x"})
	if p.Omitted != (evidence.Omitted{}) || len(p.Events) != 3 || len(p.Container("app").Logs) != 1 {
		t.Errorf("%+v, %d events", p.Omitted, len(p.Events))
	}
	event := "---\nkind: Event\nmetadata: {name: e, namespace: shop}\ninvolvedObject: {kind: Pod, name: web, namespace: shop}\nreason: Killing\nmessage: x\n"
	if p := one(t, map[string]string{"pod.yaml": object + event, "describe.txt": description}); len(p.Events) != 1 {
		t.Errorf("the same events twice: %+v", p.Events)
	}
	p = one(t, map[string]string{"1.txt": strings.Replace(description, "Restart Count:  2", "Restart Count:  1", 1), "2.txt": description})
	if p.Container("app").Restarts != 2 {
		t.Errorf("the older description: %+v", p.Container("app"))
	}
	// The log of a container that prints such a text is a log.
	p = one(t, map[string]string{"pod.yaml": object, "app.log": strings.ReplaceAll(description, "web", "other")})
	if len(p.Container("app").Logs) != 1 {
		t.Errorf("%+v", p.Container("app"))
	}
}

// A table of events names no namespace: the events belong to the only object of that name.
func TestTableOfEvents(t *testing.T) {
	const table = "LAST SEEN   TYPE      REASON         OBJECT             MESSAGE\n5s          Warning   Unhealthy      pod/web            Liveness probe failed: x\n9s          Warning   FailedCreate   replicaset/web-1   Error creating: y\n"
	const pod = "kind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: app, livenessProbe: {exec: {command: [x]}}}]}\n"
	const set = "---\nkind: ReplicaSet\nmetadata: {name: web-1, namespace: shop}\nspec: {replicas: 3}\nstatus: {replicas: 1}\n"
	s := read(t, Options{}, folder(t, map[string]string{"pod.yaml": pod + set, "events.txt": table}))
	if len(s.Pods) != 1 || len(s.Pods[0].Events) != 1 || s.Pods[0].Events[0].Container != "app" {
		t.Errorf("%+v", s.Pods[0].Events)
	}
	if len(s.Creators) != 1 || s.Creators[0].About() != "ReplicaSet shop/web-1" || s.Creators[0].Want != 3 || len(s.Creators[0].Events) != 1 {
		t.Errorf("%+v", s.Creators)
	}
	s = read(t, Options{}, folder(t, map[string]string{"1.yaml": pod, "2.yaml": strings.Replace(pod, "shop", "other", 1), "events.txt": table}))
	if len(s.Pods[0].Events)+len(s.Pods[1].Events) > 0 {
		t.Errorf("two pods of that name: %+v", s.Pods)
	}
}

// A line of kubectl get pods is all that is known of a pod, or nothing beside more.
func TestRows(t *testing.T) {
	const rows = "NAME   READY   STATUS             RESTARTS   AGE\nweb    0/1     CrashLoopBackOff   5          3m\ndb     1/1     Running            0          3d\n"
	p := one(t, map[string]string{"pods.txt": rows})
	if d := cmp.Diff(&evidence.Row{Source: p.Source, Status: "CrashLoopBackOff", Ready: 0, Of: 1, Restarts: 5, Age: 3 * 60e9}, p.Row); d != "" || p.Name() != "web" {
		t.Error(p.Name(), d)
	}
	if p := one(t, map[string]string{"pods.txt": rows, "describe.txt": description}); p.Row != nil {
		t.Errorf("%+v", p)
	}
	s := read(t, Options{Stdin: strings.NewReader(strings.Replace(rows, "web    0/1     CrashLoopBackOff", "web    1/1     Running", 1))}, "-")
	if len(s.Pods) != 1 || s.Pods[0].Name() != "web" {
		t.Errorf("all run, and one restarted: %+v", s.Pods)
	}
	if s := read(t, Options{Stdin: strings.NewReader(strings.Replace(rows, "0/1     CrashLoopBackOff   5         ", "1/1     Running            5 (9d ago)", 1))}, "-"); len(s.Pods) != 2 {
		t.Errorf("all are well: %+v", s.Pods)
	}
}

// Names of logs say of which run they are, in any order.
func TestNamesOfLogs(t *testing.T) {
	const object = "kind: Pod\nmetadata: {name: web-1, annotations: {kubectl.kubernetes.io/default-container: app}}\nspec: {containers: [{name: app}, {name: previous-orders}]}\n" +
		"status: {containerStatuses: [{name: app, restartCount: 1, state: {running: {startedAt: \"2026-11-24T13:16:36Z\"}}}, {name: previous-orders, state: {running: {}}}]}\n"
	for file, run := range map[string]int{
		"app-logs-current.txt": 1, "app-logs-previous.txt": 0, "previous_app.logs.txt": 0,
		"app.log": 1, "app.txt": 1, "app.log.txt": 1, "current-app.log": 1, "app.current.log": 1, "app-logs.txt": 1, "web-1.log": 1, "web.log": 1, "logs.txt": 1, "web-1_app.log": 1,
		"previous-app.log": 0, "app-previous.log": 0, "app.previous.log": 0, "app_previous.txt": 0, "prev-app.log": 0, "app.prev.log": 0, "previous.log": 0, "app.previous.log.txt": 0, "web-1-app-previous.log": 0,
	} {
		p := one(t, map[string]string{"pod.yaml": object, file: "x\n"})
		if logs := p.Container("app").Logs; len(logs) != 1 || logs[0].Run != run {
			t.Errorf("%s: %d logs", file, len(logs))
		}
	}
	p := one(t, map[string]string{"pod.yaml": object, "previous-orders.log": "x\n"})
	if logs := p.Container("previous-orders").Logs; len(logs) != 1 || logs[0].Previous || logs[0].Run != 0 {
		t.Errorf("a container of that name: %+v", logs)
	}
}

// An archive in a folder is read as if it was unpacked there.
func TestArchiveInAFolder(t *testing.T) {
	p := one(t, map[string]string{"pod.yaml": awesome, "logs.tgz": string(tarGz(t, map[string]string{"app.log": currentLog})), "istio-proxy.log.gz": string(gzipped(t, []byte(proxyLog)))})
	if len(p.Container("app").Logs) != 1 || len(p.Container("istio-proxy").Logs) != 1 {
		t.Errorf("%+v", p.Missing)
	}
}

// There is a line for each reason why input was not used.
func TestLeft(t *testing.T) {
	files := map[string]string{"pod.yaml": awesome, "README.md": "# x", "ABOUT.txt": "x", "notes.txt": "x", "a.png": "\x89PNG"}
	for i := range 19 {
		files[fmt.Sprintf("x%02d.txt", i)] = "x"
	}
	dir := folder(t, files)
	got := strings.ReplaceAll(strings.Join(read(t, Options{}, dir).Left(), "\n"), dir+"/", "")
	want := `21 files are not used (ABOUT.txt, notes.txt, x00.txt, x01.txt, x02.txt, x03.txt, x04.txt, x05.txt, x06.txt, x07.txt, x08.txt, x09.txt, x10.txt, x11.txt, x12.txt, x13.txt, x14.txt, x15.txt, x16.txt, x17.txt, and 1 more): it is not named after a container of a pod beside it, as CONTAINER.log or CONTAINER.previous.log (istio-init, app, istio-proxy)
README.md is not used: it has sentences, and nothing that kubectl printed: put it in a block of its own, below the command
a.png is not used: .png is neither the name of objects (.yaml, .yml, .json) nor of a log (.log, .txt, .out)`
	lines := strings.Split(got, "\n")
	slices.Sort(lines)
	if d := cmp.Diff(want, strings.Join(lines, "\n")); d != "" {
		t.Error(d)
	}
}

// Workloads whose pods cannot be created are evidence without a pod.
func TestCreators(t *testing.T) {
	set := func(more string) string {
		return "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web-1, namespace: shop, ownerReferences: [{kind: Deployment, name: web, controller: true}]}\n" +
			"spec: {replicas: 3, template: {spec: {containers: [{name: a, resources: {limits: {cpu: 500m}, requests: {cpu: 100m}}}, {name: b, resources: {limits: {cpu: 1}}}]}}}\n" +
			"status: {replicas: 1, conditions: [" + more + "]}\n"
	}
	const failure = `{type: ReplicaFailure, status: "True", reason: FailedCreate, message: "exceeded quota"}`
	const deployment = "---\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 3}\nstatus: {replicas: 1, conditions: [" + failure + "]}\n"
	const event = "---\nkind: Event\nmetadata: {name: e, namespace: shop}\ninvolvedObject: {kind: ReplicaSet, name: web-1, namespace: shop}\nreason: FailedCreate\nmessage: 'Error creating: x'\ncount: 4\n"
	const pod = "---\nkind: Pod\nmetadata: {name: web-1-a, namespace: shop, ownerReferences: [{kind: ReplicaSet, name: web-1, controller: true}]}\nspec: {containers: [{name: a}]}\n"
	for name, tt := range map[string]struct {
		text string
		want string
	}{
		"a condition":                  {set(failure), "ReplicaSet shop/web-1 1/3 failing=true events=0"},
		"an event":                     {set("") + event, "ReplicaSet shop/web-1 1/3 failing=false events=1"},
		"an event alone":               {event, "ReplicaSet shop/web-1 -1/-1 failing=false events=1"},
		"with its owner":               {set(failure) + deployment, "ReplicaSet shop/web-1 1/3 failing=true events=0"},
		"the owner alone":              {deployment, "Deployment shop/web 1/3 failing=true events=0"},
		"some pods are there":          {set(failure) + event + pod, "ReplicaSet shop/web-1 1/3 failing=true events=1"},
		"it was over":                  {set("") + event + pod, ""},
		"all pods are there":           {strings.Replace(set(""), "replicas: 1", "replicas: 3", 1) + event + strings.ReplaceAll(pod, "web", "other"), ""},
		"a Job that succeeded later":   {strings.ReplaceAll(event, "kind: ReplicaSet", "kind: Job") + "---\nkind: Job\nmetadata: {name: web-1, namespace: shop}\nspec: {parallelism: 1}\nstatus: {succeeded: 1}\n" + strings.ReplaceAll(pod, "web", "other"), ""},
		"a Job that has no pod":        {strings.ReplaceAll(event, "kind: ReplicaSet", "kind: Job") + "---\nkind: Job\nmetadata: {name: web-1, namespace: shop}\nspec: {parallelism: 1}\nstatus: {}\n", "Job shop/web-1 -1/1 failing=false events=1"},
		"an event about no pod at all": {strings.Replace(event, "FailedCreate", "SuccessfulCreate", 1) + pod, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := read(t, Options{}, folder(t, map[string]string{"all.yaml": tt.text}))
			var got []string
			for _, w := range s.Creators {
				got = append(got, fmt.Sprintf("%s %d/%d failing=%v events=%d", w.About(), w.Have, w.Want, w.Failing, len(w.Events)))
			}
			if d := cmp.Diff(tt.want, strings.Join(got, "\n")); d != "" {
				t.Error(d)
			}
		})
	}
	limits := read(t, Options{}, folder(t, map[string]string{"rs.yaml": set(failure)})).Creators[0].Asks["limits.cpu"]
	if limits.String() != "1500m" {
		t.Errorf("the template asks %s", limits.String())
	}
	described := read(t, Options{Stdin: strings.NewReader("Name: db\nNamespace: shop\nUpdate Strategy: RollingUpdate\nReplicas: 3 desired | 0 total\nEvents:\n  Type     Reason        Age   From         Message\n  Warning  FailedCreate  3m (x12 over 20m)   statefulset-controller  create Pod db-0 failed\n")}, "-")
	if len(described.Creators) != 1 || described.Creators[0].Want != 3 || described.Creators[0].Events[0].Count != 12 {
		t.Errorf("%+v", described.Creators)
	}
}

// Notes of people in Markdown have the pod if nothing else has one; a page without an object is never a log.
func TestNotes(t *testing.T) {
	const note = "# it fails\n\n```yaml\napiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop}\nspec: {containers: [{name: app}]}\n```\n"
	p := one(t, map[string]string{"ticket.md": note, "README.md": "# how to\nrun it\n", "app.log": "x\n", "others.txt": "NAME   READY   STATUS    RESTARTS   AGE\ndb     1/1     Running   0          3d\n"})
	if p.Name() != "shop/web-1" || len(p.Container("app").Logs) != 1 {
		t.Errorf("%s: %+v", p.Name(), p.Containers)
	}
	s := read(t, Options{}, folder(t, map[string]string{"ticket.md": note, "README.md": "# how to\nrun it\n", "pod.yaml": strings.Replace(note[strings.Index(note, "apiVersion"):strings.LastIndex(note, "```")], "web-1", "web-2", 1)}))
	if len(s.Pods) != 1 || s.Pods[0].Object.Name != "web-2" || len(s.Unused) != 2 {
		t.Errorf("%+v %+v", s.Pods, s.Unused)
	}
}
