package evidence

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"outrider.dev/internal/bugreport"
	"outrider.dev/internal/contract"
	"outrider.dev/internal/kubeclient"
)

// awesome is the pod of a start-up race: the app's first run ended after a second.
const awesome = `apiVersion: v1
kind: Pod
metadata:
  name: awesome-app
  namespace: shop
  uid: 5d3f2a54-0000-0000-0000-000000000001
  creationTimestamp: "2026-11-24T13:16:15Z"
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: awesome-app-7d9, uid: u, controller: true}]
spec:
  nodeName: n1
  aFieldOfALaterVersion: {x: 1}
  initContainers: [{name: istio-init, image: i}]
  containers: [{name: app, image: a}, {name: istio-proxy, image: p}]
status:
  phase: Running
  startTime: "2026-11-24T13:16:15Z"
  conditions: [{type: PodScheduled, status: "True", lastTransitionTime: "2026-11-24T13:16:15Z"}]
  initContainerStatuses:
  - {name: istio-init, restartCount: 0, state: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-11-24T13:16:17Z", finishedAt: "2026-11-24T13:16:18Z"}}}
  containerStatuses:
  - name: app
    restartCount: 2
    state: {running: {startedAt: "2026-11-24T13:16:36Z"}}
    lastState: {terminated: {exitCode: 1, reason: Error, message: "Connection refused", startedAt: "2026-11-24T13:16:22Z", finishedAt: "2026-11-24T13:16:23Z"}}
  - {name: istio-proxy, restartCount: 0, state: {running: {startedAt: "2026-11-24T13:16:20Z"}}}
`

const (
	previousLog = `2026-11-24 21:16:22,803 INFO [main] starting
2026-11-24 21:16:23,110 ERROR [main] Logging system failed to initialize using configuration from 'http://log-config-server:12345/logback.xml'
java.net.ConnectException: Connection refused
	at java.base/sun.nio.ch.Net.connect0(Native Method)
`
	currentLog = "2026-11-24 21:16:37,001 INFO [main] starting\n2026-11-24 21:16:39,480 INFO [main] serving\n"
	proxyLog   = "2026-11-24T13:16:20.480123Z\tinfo\tstarting\n2026-11-24T13:16:23.900000Z\tinfo\tEnvoy proxy is ready\n"
	eventList  = `apiVersion: v1
kind: EventList
items:
- metadata: {name: e2, uid: e2, creationTimestamp: "2026-11-24T13:16:19Z"}
  involvedObject: {kind: Pod, namespace: shop, name: awesome-app, uid: 5d3f2a54-0000-0000-0000-000000000001, fieldPath: "spec.containers{app}"}
  reason: Started
  message: Started container app
  type: Normal
  count: 3
  firstTimestamp: "2026-11-24T13:16:19Z"
  lastTimestamp: "2026-11-24T13:16:36Z"
  source: {component: kubelet, host: n1}
- metadata: {name: e1, uid: e1, creationTimestamp: "2026-11-24T13:16:15Z"}
  involvedObject: {kind: Pod, namespace: shop, name: awesome-app}
  reason: Scheduled
  message: Successfully assigned
  type: Normal
  eventTime: "2026-11-24T13:16:15.123456Z"
  reportingComponent: default-scheduler
- metadata: {name: e3, uid: e3}
  involvedObject: {kind: Pod, namespace: shop, name: awesome-app, uid: another-pod-of-that-name}
  reason: Killing
`
	newerEvent = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e4","uid":"e4","creationTimestamp":"2026-11-24T13:16:16Z"},
"regarding":{"kind":"ReplicaSet","namespace":"shop","name":"awesome-app-7d9"},"reason":"SuccessfulCreate","note":"Created pod","type":"Normal",
"eventTime":"2026-11-24T13:16:15.000001Z","reportingController":"replicaset-controller","series":{"count":4,"lastObservedTime":"2026-11-24T13:16:18.500000Z"}}`
	replicaSet = `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"awesome-app-7d9","namespace":"shop","ownerReferences":[{"kind":"Deployment","name":"awesome-app","controller":true}]}}`
	journal    = `{"process_started":"2026-11-24T13:16:20.1Z","at":"2026-11-24T13:17:00Z","entries":[{"kind":"phase","name":"certificate","begin_ns":100000000,"end_ns":2100000000,"ended":"got it"},{"kind":"wait","name":"app","begin_ns":1,"open":true}]}`
)

// handmade is the folder that a person makes.
func handmade() map[string]string {
	return map[string]string{"pod.yaml": awesome, "app.log": currentLog, "app.previous.log": previousLog, "istio-proxy.log": proxyLog, "events.yaml": eventList,
		"more.json": newerEvent + "\n" + replicaSet, "startup.json": journal, "envoy-stats.txt": "server.live: 1\n"}
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t *testing.T, o Options, paths ...string) *Set {
	t.Helper()
	o.Dir = t.TempDir()
	s, err := Read(t.Context(), o, paths...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return s
}

// summary is what was found of a pod, as lines.
func summary(t *testing.T, p *Pod) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s\n", p.Name())
	for _, c := range p.Containers {
		for _, r := range c.Runs {
			end := "not known"
			switch {
			case r.Running:
				end = "running"
			case r.Exit != nil:
				end = fmt.Sprintf("%s exit %d signal %d %q", show(r.Finished)[11:], *r.Exit, r.Signal, r.Message)
			}
			fmt.Fprintf(&b, "%s run %d: %s to %s\n", c.Name, r.Number, show(r.Started)[11:], end)
		}
		for _, l := range c.Logs {
			lines, outside, first := 0, 0, ""
			for line, err := range l.Lines(t.Context()) {
				if err != nil {
					t.Error(err)
				}
				if lines++; lines == 1 {
					first = fmt.Sprintf("%s ±%s %s", show(line.Time)[11:], line.Time.Error, line.Time.Clock)
				}
				if line.Outside {
					outside++
				}
			}
			fmt.Fprintf(&b, "%s %s of run %d: %d lines, %d outside, first %s\n", c.Name, l.Source.Kind, l.Run, lines, outside, first)
		}
	}
	return b.String()
}

const wantAwesome = `pod shop/awesome-app
istio-init run 0: 13:16:17Z to 13:16:18Z exit 0 signal 0 ""
app run 0: 13:16:19Z to not known
app run 1: 13:16:22Z to 13:16:23Z exit 1 signal 0 "Connection refused"
app run 2: 13:16:36Z to running
app previous log of run 1: 4 lines, 0 outside, first 13:16:22.803Z ±1ms node
app log of run 2: 2 lines, 0 outside, first 13:16:37.001Z ±1ms node
istio-proxy run 0: 13:16:20Z to running
istio-proxy log of run 0: 2 lines, 0 outside, first 13:16:20.480123Z ±1µs node
`

func TestHandMadeFolder(t *testing.T) {
	s := read(t, Options{}, folder(t, handmade()))
	if len(s.Pods) != 1 || len(s.Unused) > 0 {
		t.Fatalf("%d pods, unused %v", len(s.Pods), s.Unused)
	}
	p := s.Pods[0]
	if diff := cmp.Diff(wantAwesome, summary(t, p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if z := p.Container("app").Zone; !z.Known || z.Offset != 8*time.Hour {
		t.Errorf("zone %+v: the previous run places the current one too", z)
	}
	var events []string
	for _, e := range p.Events {
		events = append(events, fmt.Sprintf("%s %s %s ×%d %s..%s ±%s %s", e.Reason, e.Container, e.Reporter, e.Count, show(e.First)[11:], show(e.Last)[11:], e.First.Error, e.First.Clock))
	}
	if diff := cmp.Diff([]string{
		"SuccessfulCreate  replicaset-controller ×4 13:16:15.000001Z..13:16:18.5Z ±1µs API server",
		"Scheduled  default-scheduler ×1 13:16:15.123456Z..13:16:15.123456Z ±1µs API server",
		"Started app kubelet ×3 13:16:19Z..13:16:36Z ±1s node",
	}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(p.Owners) != 2 || p.Owners[0].Name != "awesome-app-7d9" || p.Owners[0].Object == nil || p.Owners[1].Kind != "Deployment" || p.Owners[1].Object != nil {
		t.Errorf("owners %+v", p.Owners)
	}
	if j := p.Journal; j == nil || len(j.Entries) != 2 || show(j.Entries[0].End) != "2026-11-24T13:16:22.2Z" || j.Entries[1].End.Known() {
		t.Errorf("journal %+v", j)
	}
	want := []Missing{{FromOwner, "Deployment shop/awesome-app", "it is not among the evidence"}, {FromLog, "log of container istio-init", "it is not among the evidence"}}
	if diff := cmp.Diff(want, p.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if len(p.Notes) > 0 {
		t.Errorf("notes %v", p.Notes)
	}
}

// The same facts in each layout lead to the same pod.
func TestLayouts(t *testing.T) {
	list := `{"kind": "PodList", "apiVersion": "v1", "items": []}` + "\n"
	section := func(c, log string) string {
		return "==== START logs for container " + c + " of pod shop/awesome-app ====\n" + log + "==== END logs for container " + c + " of pod shop/awesome-app ====\n"
	}
	gather := "quay-io-openshift/namespaces/shop/pods/awesome-app/"
	noPrevious := strings.ReplaceAll(wantAwesome, "app previous log of run 1: 4 lines, 0 outside, first 13:16:22.803Z ±1ms node\n", "")
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"kubectl cluster-info dump": {map[string]string{"nodes.json": `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n1"}}]}`, "shop/pods.json": list, "shop/pods.yaml": awesome, "shop/events.yaml": eventList,
			"shop/awesome-app/logs.txt": section("app", currentLog) + section("istio-proxy", proxyLog)},
			// Without the previous run's log, each offset fits that puts the log after the start: the zone is not known.
			strings.Replace(noPrevious, "13:16:37.001Z ±1ms node", "21:16:37.001Z ±1ms log FILE", 1)},
		"must-gather": {map[string]string{gather + "awesome-app.yaml": "---\n" + awesome, gather + "app/app/logs/current.log": currentLog, gather + "app/app/logs/previous.log": previousLog,
			gather + "app/app/logs/previous.insecure.log": "", gather + "istio-proxy/istio-proxy/logs/current.log": proxyLog, gather + "istio-proxy/istio-proxy/logs/previous.log": "", "quay-io-openshift/namespaces/shop/core/events.yaml": eventList, "event-filter.html": "<html>"}, wantAwesome},
		"a node's folder of logs": {map[string]string{"pod.yaml": awesome, "events.yaml": eventList, "shop_awesome-app_5d3f2a54-0000-0000-0000-000000000001/app/1.log": previousLog,
			"shop_awesome-app_5d3f2a54-0000-0000-0000-000000000001/app/2.log": currentLog, "shop_awesome-app_5d3f2a54-0000-0000-0000-000000000001/istio-proxy/0.log": proxyLog}, strings.ReplaceAll(wantAwesome, "previous log", "log")},
		"pods beside each other": {map[string]string{"pods.yaml": awesome + "---\n" + strings.ReplaceAll(strings.ReplaceAll(awesome, "awesome-app", "other"), "app, ", "web, "), "events.yaml": eventList,
			"awesome-app_app.log": currentLog, "awesome-app-app.previous.log": previousLog, "awesome-app.istio-proxy.log": proxyLog}, wantAwesome},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, path := range map[string]string{"folder": folder(t, tt.files), "archive": filepath.Join(folder(t, map[string]string{"a.tgz": string(archive(t, tt.files))}), "a.tgz")} {
				s := read(t, Options{}, path)
				got := summary(t, s.Pods[0])
				for _, l := range s.Pods[0].Container("app").Logs {
					got = strings.ReplaceAll(got, l.Source.File, "FILE")
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s\n%v", kind, diff, s.Unused)
				}
			}
		})
	}
}

// All in one stream, as kubectl cluster-info dump prints it.
func TestStandardInput(t *testing.T) {
	dump := `{
    "kind": "PodList",
    "apiVersion": "v1",
    "items": [{"metadata":{"name":"a","namespace":"shop"},"spec":{"containers":[{"name":"app"}]}}]
}
==== START logs for container app of pod shop/a ====
{"level":"info","time":1795490299480,"msg":"x"}
==== END logs for container app of pod shop/a ====
{
    "kind": "EventList",
    "apiVersion": "v1",
    "items": []
}
`
	s := read(t, Options{Stdin: strings.NewReader(dump)}, "-")
	if len(s.Pods) != 1 || len(s.Pods[0].Container("app").Logs) != 1 || len(s.Unused) > 0 {
		t.Errorf("%+v, unused %v", s.Pods[0].Container("app"), s.Unused)
	}
}

// What is given and is of no use is named, with what would be right.
func TestUnused(t *testing.T) {
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: app}]}\n"
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // in a line of file and reason
	}{
		"a log of another container":    {map[string]string{"web.log": "x"}, `web.log: no pod beside it has container "web"; want CONTAINER.log or CONTAINER.previous.log, containers are app`},
		"logs of two pods":              {map[string]string{"other.yaml": pod("b"), "app.log": "x"}, "app.log: pods a, b have a container of this name: name the file POD_CONTAINER.log, or give each pod a folder"},
		"a log of a pod without object": {map[string]string{"namespaces/x/pods/y/c/c/logs/current.log": "x"}, "current.log: no pod of the evidence is x/y; want its object beside the log"},
		"what kubectl describe prints":  {map[string]string{"describe.txt": "Name:         a\nNamespace:    shop\n"}, "describe.txt: what kubectl describe prints is not read: kubectl get pod NAME -o yaml has more"},
		"a picture":                     {map[string]string{"a.png": "\x89PNG"}, `a.png: a name that ends with ".png" is neither`},
		"YAML that is none":             {map[string]string{"b.yaml": "a: [\n"}, "b.yaml:1: this is not YAML"},
		"JSON that ends too early":      {map[string]string{"b.json": "{\"kind\":\n"}, "b.json:1: this is not JSON from here on"},
		"a number that is a text":       {map[string]string{"b.yaml": "---\n" + strings.Replace(pod("b"), "spec:", "status: {containerStatuses: [{name: app, restartCount: many}]}\nspec:", 1)}, `b.yaml:2: Pod: status.containerStatuses[0].restartCount: must be a whole number, not a string`},
		"a pod without containers":      {map[string]string{"b.yaml": "kind: Pod\nmetadata: {name: b}"}, "b.yaml:1: Pod b: spec.containers: a pod has at least one"},
		"a list":                        {map[string]string{"b.yaml": "- a"}, "b.yaml:1: this is no Kubernetes object"},
		"a log that is compressed":      {map[string]string{"app.log.gz": "\x1f\x8bxx"}, "app.log.gz: it is compressed"},
		"a journal of no process":       {map[string]string{"b.json": `{"process_started":"0001-01-01T00:00:00Z"}`}, "b.json:1: startup journal: process_started: missing"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.files["pod.yaml"] = pod("a")
			dir := folder(t, tt.files)
			s := read(t, Options{}, dir)
			if len(s.Unused) != 1 {
				t.Fatalf("%v", s.Unused)
			}
			if got := strings.TrimPrefix(s.Unused[0].Source.String(), dir+"/") + ": " + s.Unused[0].Why; !strings.Contains(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	dir := folder(t, map[string]string{"app.log": "x", "plain.txt": "x", "many/1.log": "", "many/2.log": "", "many/3.log": "", "half.gz": "\x1f\x8b\x08", "big.tgz": string(archive(t, map[string]string{"a.log": strings.Repeat("x", 1<<20)}))})
	for name, tt := range map[string]struct {
		path, want string
	}{
		"nothing there":     {"none", "no such file or directory"},
		"no pod":            {"app.log", "no pod in it; want the object of a pod, as kubectl get pod NAME -o yaml prints it"},
		"too many files":    {"many", "has more than 2 files"},
		"a tar bomb":        {"big.tgz", "it unpacks to more than 0 MiB"},
		"half a header":     {"half.gz", "it begins as gzip does, and is none"},
		"no standard input": {"-", "needs a standard input"},
	} {
		t.Run(name, func(t *testing.T) {
			path := tt.path
			if path != "-" {
				path = filepath.Join(dir, path)
			}
			s, err := Read(t.Context(), Options{Files: 2, Unpack: 1 << 16, Dir: t.TempDir()}, path)
			if s != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// What comes before the damage of an archive is used, and nothing leads out of it.
func TestArchives(t *testing.T) {
	files := handmade()
	files["zzz.log"] = strings.Repeat("not much to compress "+previousLog, 100)
	whole := archive(t, files)
	cut := filepath.Join(folder(t, map[string]string{"cut.tar.gz": string(whole[:len(whole)-60])}), "cut.tar.gz")
	s := read(t, Options{}, cut)
	if len(s.Unused) == 0 || !strings.Contains(s.Unused[0].Why, "damaged or ends too early") || len(s.Pods[0].Container("app").Logs) != 2 {
		t.Errorf("%v", s.Unused)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{{Name: "../evil.log", Size: 1}, {Name: "link.log", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, {Name: "pod.yaml", Size: int64(len(awesome))}} {
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			fmt.Fprint(w, awesome[:h.Size])
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s = read(t, Options{Stdin: &b}, "-")
	var got []string
	for _, u := range s.Unused {
		got = append(got, u.Source.File+": "+u.Why)
	}
	want := []string{"standard input:../evil.log: its path leads out of the archive", "standard input:link.log: it is no regular file: links of archives are not followed"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLinksOutOfAFolder(t *testing.T) {
	dir := folder(t, map[string]string{"in/pod.yaml": awesome, "secret/app.log": "x"})
	if err := os.Symlink("../secret/app.log", filepath.Join(dir, "in", "app.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pod.yaml", filepath.Join(dir, "in", "same.yaml")); err != nil {
		t.Fatal(err)
	}
	s := read(t, Options{}, filepath.Join(dir, "in"))
	if len(s.Pods) != 1 || len(s.Unused) != 1 || !strings.Contains(s.Unused[0].Why, "a link out of the folder") {
		t.Errorf("%v", s.Unused)
	}
}

// What outrider bug-report writes is read: its pods, logs, events and what it could not have.
func TestBugReport(t *testing.T) {
	core := shop(t)
	pod, err := core.CoreV1().Pods("shop").Get(t.Context(), "awesome-app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.Containers[1].Name = contract.ProxyContainer
	pod.Spec.Containers[1].Args = []string{"proxy", "sidecar"}
	if _, err := core.CoreV1().Pods("shop").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err = bugreport.Write(t.Context(), &b, bugreport.Options{
		Client: &kubeclient.Client{Core: core, Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme.Scheme, map[schema.GroupVersionResource]string{{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "List"})}, ControlPlane: "outrider-system", Namespace: "shop", Progress: quiet{},
		Checks: func(context.Context) (any, error) { return nil, nil }, Values: func(context.Context) (map[string]any, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	p := read(t, Options{Stdin: &b}, "-").Pods[0]
	if p.Name() != "shop/awesome-app" || len(p.Events) != 1 || !p.Taken.Known() || len(p.Container("app").Logs) != 2 {
		t.Errorf("%s: events %v, taken %v, logs of app %v", p.Name(), p.Events, p.Taken, p.Container("app").Logs)
	}
}

// What a bug report says of its logs is said of the pod.
func TestGapsOfABugReport(t *testing.T) {
	files := handmade()
	files["index.json"] = `{"format": 1, "made": "2026-11-24T13:20:00Z", "files": [{"path": "app.log", "kind": "log", "truncated": true}]}`
	files["errors.txt"] = "log of shop/awesome-app, istio-init.log: container is gone\n"
	p := read(t, Options{}, folder(t, files)).Pods[0]
	for _, want := range []Missing{{FromLog, "log of container istio-init", "container is gone"}, {FromLog, "the rest of the log of container app, run 2", "truncated"}} {
		if !slices.Contains(p.Missing, want) {
			t.Errorf("%v is not in %v", want, p.Missing)
		}
	}
}

type quiet struct{}

func (quiet) Step(string, ...any) {}
func (quiet) Wait(string, ...any) {}
