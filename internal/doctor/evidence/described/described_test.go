package described

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

//go:embed testdata/web.txtar
var webFiles []byte

var (
	web     = string(txtar.Parse(webFiles).Files[0].Data)
	wantWeb = txtar.Parse(webFiles).Files[1].Data
)

func asYAML(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The output of kubectl describe becomes the object from which it was made, wherever the text stands.
func TestPod(t *testing.T) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(wantWeb, &pod); err != nil {
		t.Fatal(err)
	}
	want := asYAML(t, &pod)
	indented := func(by string) string { return by + strings.ReplaceAll(strings.TrimRight(web, "\n"), "\n", "\n"+by) }
	for name, text := range map[string]string{
		"alone":              web,
		"with prose":         "Hello,\nthis is our pod, Name: unknown.\n\n" + web + "\nThanks: Ada\nName: Ada\n",
		"in a code block":    "```\n$ kubectl describe pod web\n" + web + "```\nState: Running\n",
		"quoted in a mail":   "Ada wrote:\n" + indented("> "),
		"with carriages":     strings.ReplaceAll(web, "\n", "\r\n"),
		"after another text": "NAME READY\n" + web,
	} {
		t.Run(name, func(t *testing.T) {
			if !Is([]byte(text)) {
				t.Error("it is not recognised")
			}
			got := Read([]byte(text))
			if len(got.Objects) != 1 || got.Objects[0].Kind != "Pod" || !got.Objects[0].Whole {
				t.Fatalf("%+v", got)
			}
			if d := cmp.Diff(want, asYAML(t, got.Objects[0].Pod)); d != "" {
				t.Error(d)
			}
			var events []string
			for _, e := range got.Objects[0].Events {
				events = append(events, fmt.Sprint(e.Reason, " ", e.From, " ", e.Container, " ", e.First.Least, " ", e.Last.Least, " ±", e.Last.Error, " x", e.Count))
			}
			if d := cmp.Diff([]string{"Scheduled default-scheduler  6m50s 6m50s ±1s x1", "Started kubelet web 6m47s 2m27s ±1s x6", "Unhealthy kubelet  0s 0s ±0s x1", "BackOff kubelet web 6m3s 9s ±1s x16"}, events); d != "" {
				t.Error(d)
			}
		})
	}
	if got := Read([]byte(web + "\n" + strings.ReplaceAll(web, "x2x7k", "other"))); len(got.Objects) != 2 || got.Objects[1].Meta.Name != "web-5d9c7b6f4d-other" {
		t.Errorf("two pods: %+v", got)
	}
}

// Of a text that was cut off at any line, no field is made up.
func TestCutOff(t *testing.T) {
	lines := strings.SplitAfter(web, "\n")
	full := Read([]byte(web)).Objects[0].Pod
	for i := 3; i < len(lines); i++ {
		got := Read([]byte(strings.Join(lines[:i], "")))
		for _, o := range got.Objects {
			for j, c := range o.Pod.Status.ContainerStatuses {
				if c.Name != full.Status.ContainerStatuses[j].Name || c.RestartCount != 0 && c.RestartCount != full.Status.ContainerStatuses[j].RestartCount {
					t.Errorf("the first %d lines: %+v", i, c)
				}
			}
			if o.Whole && i < len(lines)-6 {
				t.Errorf("the first %d lines are the whole", i)
			}
		}
	}
	at := strings.Index(web, "Containers:\n  web:")
	got := Read([]byte(web[at:]))
	if len(got.Objects) != 1 || got.Objects[0].Pod.Name != "" || len(got.Objects[0].Pod.Spec.Containers) != 2 || len(got.Objects[0].Events) != 4 {
		t.Errorf("the end alone: %+v", got)
	}
	at = strings.Index(web, "    Restart Count:  5")
	if o := Read([]byte(web[:at])).Objects[0]; o.Unit["web"].Restarts || !o.Unit["rules"].Restarts {
		t.Errorf("%+v", o.Unit)
	}
}

// A text that has lost its indents still has containers.
func TestWithoutIndents(t *testing.T) {
	var flat strings.Builder
	for line := range strings.Lines(web[strings.Index(web, "Containers:\n  web:"):]) {
		flat.WriteString(strings.TrimLeft(line, " "))
	}
	got := Read([]byte(flat.String()))
	if len(got.Objects) != 1 {
		t.Fatalf("%+v", got)
	}
	p := got.Objects[0].Pod
	if len(p.Status.ContainerStatuses) != 2 || p.Status.Reason != "" || p.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode != 143 {
		t.Errorf("%s", asYAML(t, p))
	}
}

// A pod that is being deleted has a deletion whose time is not known.
func TestTerminating(t *testing.T) {
	got := Read([]byte(strings.Replace(web, "Status:           Running", "Status:                    Terminating (lasts 5m)\nTermination Grace Period:  30s", 1))).Objects[0].Pod
	if got.DeletionTimestamp == nil || !got.DeletionTimestamp.IsZero() || *got.DeletionGracePeriodSeconds != 30 || got.Status.Phase != "" {
		t.Errorf("%s", asYAML(t, got))
	}
}

const replicaSet = `Name:           web-5d9c7b6f4d
Namespace:      shop
Selector:       app=web
Controlled By:  Deployment/web
Replicas:       2 current / 4 desired
Pods Status:    2 Running / 0 Waiting / 0 Succeeded / 0 Failed
Pod Template:
  Labels:  app=web
  Containers:
   web:
    Image:  registry/web:3
Conditions:
  Type             Status  Reason
  ----             ------  ------
  ReplicaFailure   True    FailedCreate
Events:
  Type     Reason        Age                 From                   Message
  ----     ------        ----                ----                   -------
  Warning  FailedCreate  3m (x12 over 20m)   replicaset-controller  Error creating: pods "web-5d9c7b6f4d-abcde" is forbidden: exceeded quota: q
`

// Workloads are read as far as their pods are concerned.
func TestWorkload(t *testing.T) {
	for name, tt := range map[string]struct {
		text       string
		kind       string
		want, have int
		failing    string
	}{
		"a ReplicaSet":  {replicaSet, "ReplicaSet", 4, 2, "-"},
		"a StatefulSet": {"Name: db\nNamespace: shop\nUpdate Strategy: RollingUpdate\nReplicas: 3 desired | 1 total\nEvents: <none>\n", "StatefulSet", 3, 1, ""},
		"a Deployment":  {"Name: web\nNamespace: shop\nStrategyType: RollingUpdate\nReplicas: 3 desired | 1 updated | 2 total | 2 available\n", "Deployment", 3, 2, ""},
		"a DaemonSet":   {"Name: log\nNamespace: shop\nDesired Number of Nodes Scheduled: 5\nCurrent Number of Nodes Scheduled: 4\n", "DaemonSet", 5, 4, ""},
		"a Job":         {"Name: mig\nNamespace: shop\nParallelism: 1\nPods Statuses: 0 Active (0 Ready) / 0 Succeeded / 0 Failed\n", "Job", -1, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Read([]byte(tt.text))
			if len(got.Objects) != 1 {
				t.Fatalf("%+v", got)
			}
			o := got.Objects[0]
			if o.Kind != tt.kind || o.Want != tt.want || o.Have != tt.have || o.Failing != tt.failing || o.Pod != nil || o.Meta.Namespace != "shop" {
				t.Errorf("%+v", o)
			}
		})
	}
	if e := Read([]byte(replicaSet)).Objects[0].Events[0]; e.Count != 12 || e.First.Least != 20*time.Minute || e.Last.Error != time.Minute {
		t.Errorf("%+v", e)
	}
	if got := Read([]byte("Name: a\nNamespace: shop\nType: ClusterIP\nEvents: <none>\n")); !got.Empty() {
		t.Errorf("a Service: %+v", got)
	}
}

// The tables of kubectl get are read by the names of their columns.
func TestTables(t *testing.T) {
	got := Read([]byte(`$ kubectl get pods -A
NAMESPACE   NAME                   READY   STATUS             RESTARTS        AGE   IP       NODE
shop        web-5d9c7b6f4d-x2x7k   1/2     CrashLoopBackOff   5 (2m27s ago)   7m    10.1.0.7   node-1
shop        db-0                   1/1     Running            0               3d2h  10.1.0.8   node-1

$ kubectl get events
LAST SEEN   TYPE      REASON         OBJECT                      MESSAGE
3m          Warning   FailedCreate   replicaset/web-5d9c7b6f4d   Error creating:  two spaces
2m          Normal    Started        pod/web-5d9c7b6f4d-x2x7k    Started container web

$ kubectl get events -o wide
LAST SEEN   TYPE      REASON    OBJECT     SUBOBJECT               SOURCE            MESSAGE              FIRST SEEN   COUNT   NAME
9s          Warning   BackOff   pod/web    spec.containers{app}    kubelet, node-1   Back-off restarting  6m           16      web.1
`))
	rows := []Row{
		{Namespace: "shop", Name: "web-5d9c7b6f4d-x2x7k", Status: "CrashLoopBackOff", Ready: 1, Of: 2, Restarts: 5, Ended: Age{147 * time.Second, time.Second}, Node: "node-1", Age: Age{7 * time.Minute, time.Minute}, Line: 3},
		{Namespace: "shop", Name: "db-0", Status: "Running", Ready: 1, Of: 1, Age: Age{74 * time.Hour, time.Hour}, Node: "node-1", Line: 4},
	}
	if d := cmp.Diff(rows, got.Pods); d != "" {
		t.Error(d)
	}
	minutes := func(n int) Age { return Age{time.Duration(n) * time.Minute, time.Minute} }
	events := []Event{
		{Kind: "ReplicaSet", Name: "web-5d9c7b6f4d", Type: "Warning", Reason: "FailedCreate", Message: "Error creating:  two spaces", Count: 1, Last: minutes(3), First: minutes(3), Line: 8},
		{Kind: "Pod", Name: "web-5d9c7b6f4d-x2x7k", Container: "web", Type: "Normal", Reason: "Started", Message: "Started container web", Count: 1, Last: minutes(2), First: minutes(2), Line: 9},
		{Kind: "Pod", Name: "web", Container: "app", Type: "Warning", Reason: "BackOff", From: "kubelet", Message: "Back-off restarting", Count: 16, Last: Age{9 * time.Second, time.Second}, First: minutes(6), Line: 13},
	}
	if d := cmp.Diff(events, got.Events); d != "" {
		t.Error(d)
	}
	// A message of several lines, which are not indented, belongs to its event if a further event follows.
	const head = "Events:\n  Type     Reason       Age   From     Message\n  ----     ------       ----  ----     -------\n"
	long := head + "  Warning  FailedMount  3m    kubelet  MountVolume.SetUp failed: the driver says\nstatus: 401\n{\n  \"reason\": \"Expired\"\n}\n"
	for text, want := range map[string]string{
		long + "  Normal   Pulled       2m    kubelet  pulled\n":                      "MountVolume.SetUp failed: the driver says\nstatus: 401\n{\n\"reason\": \"Expired\"\n}",
		long + "\n  Normal   Pulled       2m    kubelet  pulled\n":                    "MountVolume.SetUp failed: the driver says",
		long + "$ kubectl get events\n  Normal   Pulled  2m    kubelet  of another\n": "MountVolume.SetUp failed: the driver says",
		long: "MountVolume.SetUp failed: the driver says",
	} {
		if got := Read([]byte(text)); len(got.Events) == 0 || got.Events[0].Message != want {
			t.Errorf("%q: %+v", text, got.Events)
		}
	}
	// As kubectl described events once, with tabs and empty cells.
	old := Read([]byte("Name: web\nNamespace: shop\nNode: n\nEvents:\n  FirstSeen\tLastSeen\tCount\tFrom\tSubObjectPath\tType\tReason\tMessage\n  ---------\t--------\t-----\t----\t-------------\t--------\t------\t-------\n" +
		"  8m\t8m\t1\tdefault-scheduler\t\tNormal\tScheduled\tassigned\n  7m\t9s\t20\tkubelet, n\tspec.containers{app}\tWarning\tBackOff\tBack-off\n"))
	want := []Event{
		{Type: "Normal", Reason: "Scheduled", From: "default-scheduler", Message: "assigned", Count: 1, Last: minutes(8), First: minutes(8), Line: 7},
		{Container: "app", Type: "Warning", Reason: "BackOff", From: "kubelet", Message: "Back-off", Count: 20, Last: Age{9 * time.Second, time.Second}, First: minutes(7), Line: 8},
	}
	if len(old.Objects) != 1 {
		t.Fatalf("%+v", old)
	}
	if d := cmp.Diff(want, old.Objects[0].Events); d != "" {
		t.Error(d)
	}
}

func TestAge(t *testing.T) {
	for text, want := range map[string]Age{
		"9s": {9 * time.Second, time.Second}, "4m33s": {273 * time.Second, time.Second}, "3h5m": {185 * time.Minute, time.Minute}, "2y1d": {731 * 24 * time.Hour, 24 * time.Hour},
		"<unknown>": {}, "5": {}, "5m3": {}, "5s3m": {}, "99999999999d": {}, "": {},
	} { // in any order: each is checked by itself
		if got := age(text); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// A log is not taken for a text of kubectl.
func TestIs(t *testing.T) {
	for text, want := range map[string]bool{
		"Name: x\nother: y\n": false, "2024-05-30 ERROR Name: x\nNamespace: y": false, "Containers:\n": false, "Reason Age From": false,
		"NAME   READY   STATUS    RESTARTS   AGE\n": true, "Events:\n  Type    Reason  Age   From     Message\n": true,
	} { // in any order: each is checked by itself
		if Is([]byte(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// A text that repeats itself makes no field grow without a limit.
func TestLongTexts(t *testing.T) {
	for _, text := range []string{"Containers:\n", web, "Name: a\nNamespace: b\n", "  a:\n    Image: x\n", " x\n", "Type  Reason  Age  From  Message\n", "a\n b\n"} {
		begin := web[:strings.Index(web, "IPs:")] + "Containers:\n  a:\n    Image: x\n    Args:\n"
		for _, long := range []string{begin + strings.Repeat(text, 1<<20/len(text)), web + strings.Repeat(text, 1<<20/len(text))} {
			got := Read([]byte(long))
			if len(got.Objects) > mostObjects {
				t.Errorf("%.20q: %d objects", text, len(got.Objects))
			}
			for _, o := range got.Objects {
				for _, c := range o.Pod.Spec.Containers {
					for _, a := range c.Args {
						if len(a) > 2*longest {
							t.Errorf("%.20q: an argument of %d bytes", text, len(a))
						}
					}
				}
				for _, e := range o.Events {
					if len(e.Message) > 2*longest {
						t.Errorf("%.20q: a message of %d bytes", text, len(e.Message))
					}
				}
			}
		}
	}
}

// No text makes the reader fail, or an object without a kind.
// Lines of tables are known by their form, where their heads were left out; those of other kinds are not.
func TestWithoutHeads(t *testing.T) {
	got := Read([]byte("see\n> shop        web-0   0/2   Init:CrashLoopBackOff   5 (91s ago)   6m   10.1.0.7   n-1   <none>   <none>\nweb-1 1/1 Running 0\nweb   3/3   3   3   5d\njob.batch/x   0/1   3d   3d\n" +
		"  Warning  FailedScheduling  3m (x5 over 23m)  default-scheduler  0/5 nodes\n6m5s   Normal   Killing   pod/web-2   Stopping container web\n"))
	rows := []Row{
		{Namespace: "shop", Name: "web-0", Status: "Init:CrashLoopBackOff", Ready: 0, Of: 2, Restarts: 5, Ended: Age{91 * time.Second, time.Second}, Age: Age{6 * time.Minute, time.Minute}, Node: "n-1", Line: 2},
		{Name: "web-1", Status: "Running", Ready: 1, Of: 1, Line: 3},
	}
	if d := cmp.Diff(rows, got.Pods); d != "" {
		t.Error(d)
	}
	if len(got.Events) != 2 || got.Events[0].Name != "web-1" || got.Events[0].Count != 5 || got.Events[1].Name != "web-2" || got.Events[1].Container != "web" {
		t.Errorf("%+v", got.Events)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(web))
	f.Add([]byte("LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n1m\tNormal\tA\tpod/x\ty\nNAME  READY  STATUS  RESTARTS  AGE\nx  1/1  Running  0  1m\n"))
	f.Add([]byte(replicaSet))
	f.Add([]byte("> shop   x-0   0/2   Init:CrashLoopBackOff   5 (91s ago)   6m   10.1.0.7   n-1   <none>\n  Warning  BackOff  3m (x5 over 23m)  kubelet  y\n6m5s  Normal  Killing  pod/x-0  z\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, o := range Read(text).Objects {
			if o.Kind == "" || (o.Kind == "Pod") != (o.Pod != nil) {
				t.Errorf("%+v", o)
			}
			for _, e := range o.Events {
				if e.Count < 1 || e.First.Least < 0 || e.Last.Least < 0 {
					t.Errorf("%+v", e)
				}
			}
		}
	})
}

// A Service has an address, as a pod has, and is none. A few lines of the description of a pod are a part of it, if the command
// before them names it.
func TestParts(t *testing.T) {
	const service = "Name:              orders\nNamespace:         shop\nType:              ClusterIP\nIP:                10.96.0.20\nPort:              http  80/TCP\nTargetPort:        8080/TCP\n"
	if got := Read([]byte(service)); !got.Empty() {
		t.Errorf("%+v", got.Objects)
	}
	const part = "$ kubectl describe po web-0 -n shop | grep -A5 app:\n  app:\n    Image:  app:7\n    State:  Running\n      Started:  Mon, 02 Mar 2026 10:00:09 +0000\n"
	for text, want := range map[string]string{
		part: "shop/web-0 app",
		strings.Replace(part, "$ kubectl", "see kubectl", 1):               "shop/web-0 app",
		strings.Replace(part, " -n shop", "", 1):                           "/web-0 app",
		strings.Replace(part, "describe po web-0", "logs po", 1):           "",
		part + "$ kubectl get pods -n other\n  app:\n    State: Running\n": "shop/web-0 app",
	} {
		got := ""
		for _, o := range Read([]byte(text)).Objects {
			got += o.Meta.Namespace + "/" + o.Meta.Name
			for _, c := range o.Pod.Spec.Containers {
				got += " " + c.Name
			}
		}
		if got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
