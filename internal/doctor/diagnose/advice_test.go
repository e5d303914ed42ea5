package diagnose

import (
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// An advice is a pod with what the first finding says is to be done.
type advice struct {
	spec, meta, status string // as in cause
	files              map[string]string
	code               string // of the first finding
	does               string // in the sentence of its remedy
	command            string // of the remedy; "-": none
	not                string // in no sentence of the finding and its evidence
	decide             string // at the end of the command that would decide
}

func checkAdvice(t *testing.T, all map[string]advice) {
	t.Helper()
	for name, c := range all { // in any order: subtests
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, uid: u1, creationTimestamp: \"2026-03-02T13:00:08Z\"" + c.meta + "}\nspec: {" + c.spec + "}\nstatus: {phase: Running, " + c.status + "}\n"}
			for file, text := range c.files { // in any order
				files[file] = text
			}
			r := diagnoseFiles(t, files)
			if len(r.Findings) == 0 {
				t.Fatalf("%s: no finding", r.Sentence)
			}
			f := r.Findings[0]
			said := r.Sentence + f.Remedy.Sentence
			for _, q := range f.Evidence {
				said += "\n" + q.Text
			}
			command := f.Remedy.Command == c.command || c.command == "" || c.command == "-" && f.Remedy.Command == ""
			if string(f.Code) != c.code || !strings.Contains(f.Remedy.Sentence, c.does) || !command || c.not != "" && strings.Contains(said, c.not) || !strings.HasSuffix(r.Decide, c.decide) {
				t.Errorf("%s: %s\nDo: %s\n$ %s\nto decide: %s", f.Code, said, f.Remedy.Sentence, f.Remedy.Command, r.Decide)
			}
		})
	}
}

// endedOnce is a container that ended and is not started again, waits one between two runs.
const (
	endedOnce = `{name: NAME, ready: false, restartCount: 0, state: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:00:12Z"}}}`
	waits     = `{name: NAME, ready: false, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:00:12Z"}}}`
)

// kubectl has a previous log of a container that ran before alone, and a log that was read needs no command.
func TestWhichLogIsToBeSeen(t *testing.T) {
	const spec = "containers: [{name: web}]"
	once := strings.ReplaceAll(spec, "{name", "{image: a, name") + ", restartPolicy: Never"
	checkAdvice(t, map[string]advice{
		"of a container that does not restart": {spec: once, status: statusWith("", "web", endedOnce), code: "app-crash", does: "", command: "kubectl -n shop logs web-1 -c web", decide: "--timestamps"},
		"of a container that waits":            {spec: spec, status: statusWith("", "web", waits), code: "app-crash", does: "", command: "kubectl -n shop logs web-1 -c web --previous", decide: "--previous"},
		"of a container that runs again":       {spec: spec, status: statusWith("", "web", restarted), code: "app-crash", does: "", command: "kubectl -n shop logs web-1 -c web --previous", decide: "--previous"},
		"its log tells":                        {spec: once, status: statusWith("", "web", endedOnce), files: map[string]string{"web.log": "starting\nError: colour beige is not served here\n"}, code: "app-crash", does: "", command: "-", not: "see the end"},
		"its log tells, and what is to be done": {
			spec: once, status: statusWith("", "web", endedOnce), files: map[string]string{"web.log": "Error: unrecognized option '--colour'\n"}, code: "app-crash", does: "take --colour out of the arguments of the container", command: "-",
		},
		"its log does not tell": {spec: once, status: statusWith("", "web", endedOnce), files: map[string]string{"web.log": "2026-03-02T13:00:11Z INFO tables are read\n"}, code: "app-crash", does: "its log does not say why: have the program write that", command: "-", not: "see the end"},
		"its log is empty":      {spec: once, status: statusWith("", "web", endedOnce), files: map[string]string{"web.log": ""}, code: "app-crash", does: "", not: "see the end of its log,"},
		"the status means something": {
			spec: once, status: statusWith("", "web", strings.Replace(endedOnce, "exitCode: 1", "exitCode: 134", 1)), code: "app-crash", does: "", command: "kubectl -n shop logs web-1 -c web",
		},
	})
}

// The object that made a pod decides whether another one comes, and where the pod is changed.
func TestAdviceFitsTheOwner(t *testing.T) {
	const (
		spec      = "containers: [{name: web}]"
		preempted = `conditions: [{type: DisruptionTarget, status: "True", reason: PreemptionByScheduler, message: "preempting to accommodate a higher priority pod", lastTransitionTime: "2026-03-02T13:05:00Z"}], `
		owned     = ", ownerReferences: [{apiVersion: %, name: up, controller: true}]"
		deleted   = `, deletionTimestamp: "2026-03-02T13:05:30Z"`
	)
	by := func(owner string) string { return strings.Replace(owned, "%", owner, 1) }
	log := map[string]string{"web.previous.log": "Error: unknown flag: --colour\n"}
	checkAdvice(t, map[string]advice{
		"a bare pod was preempted":     {spec: spec, meta: deleted, status: statusWith(preempted, "web", running), code: "evicted", does: "it has no owner that creates another one", not: "owner creates"},
		"a pod of a set was preempted": {spec: spec, meta: by("apps/v1, kind: ReplicaSet"), status: statusWith(preempted, "web", running), code: "evicted", does: "ReplicaSet up creates another one"},
		"a pod of a Job was preempted": {spec: spec, meta: by("batch/v1, kind: Job"), status: statusWith(preempted, "web", running), code: "evicted", does: "as long as its backoffLimit allows"},
		"a static pod":                 {spec: spec + ", nodeName: n1", meta: ", annotations: {kubernetes.io/config.source: file}" + by("v1, kind: Node"), status: statusWith("", "web", waits), files: log, code: "app-crash", does: "static pod: change it in its file on node n1"},
		"a pod that is none":           {spec: spec + ", nodeName: n1", meta: by("apps/v1, kind: DaemonSet"), status: statusWith("", "web", waits), files: log, code: "app-crash", does: "take --colour out of the arguments of the container, or correct it"},
	})
	files := map[string]string{"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web-n1, namespace: kube-system" + by("v1, kind: Node") + "}\nspec: {nodeName: n1, " + spec + "}\nstatus: {" + statusWith("", "web", waits) + "}\n"}
	for _, m := range diagnoseFiles(t, files).Missing {
		if strings.Contains(m, "Node kube-system/") {
			t.Error(m)
		}
	}
	r := diagnoseFiles(t, map[string]string{"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1" + deleted + "}\nspec: {" + spec + "}\nstatus: {" + statusWith(preempted, "web", running) + "}\n"})
	if e := r.Findings[0].Evidence; len(e) != 2 || !strings.Contains(e[1].Text, "gone by then") {
		t.Errorf("%+v", e)
	}
}

// In a pod without a proxy nothing is said about one. Addresses that all clusters have are called by what answers there.
func TestWhatRefused(t *testing.T) {
	const spec, proxied = "containers: [{name: web}]", "containers: [{name: web}, {name: istio-proxy}]"
	log := func(line string) map[string]string {
		return map[string]string{"web.previous.log": "2026-03-02T13:00:11.500Z " + line + "\n"}
	}
	refused := func(to string) map[string]string {
		return log("ERROR dial tcp " + to + ": connect: connection refused")
	}
	status := statusWith(isReady, "web", restarted)
	checkAdvice(t, map[string]advice{
		"no proxy":                       {spec: spec, status: status, files: refused("10.2.3.4:5432"), code: "dependency-down", does: "check whether 10.2.3.4:5432 runs", not: "proxy"},
		"no proxy, and no name":          {spec: spec, status: status, files: log("ERROR connection refused"), code: "dependency-down", does: "see what web called", not: "proxy"},
		"the metadata server":            {spec: spec, status: status, files: refused("169.254.169.254:80"), code: "dependency-down", does: "check whether 169.254.169.254:80 (the node's metadata server) runs", not: "proxy"},
		"the API server":                 {spec: spec, status: status, files: refused("10.96.0.1:443"), code: "dependency-down", does: "check whether 10.96.0.1:443 (most likely the API server) runs", not: "the proxy"},
		"the name was not resolved":      {spec: spec, status: statusWith("", "web", waits), files: log("ERROR dial tcp: lookup db.shop on 10.96.0.10:53: no such host"), code: "name-not-resolved", does: "check whether the name is correct"},
		"a later run did not meet it":    {spec: spec, status: status, files: map[string]string{"web.previous.log": "2026-03-02T13:00:11.500Z ERROR dial tcp: lookup db.shop on 10.96.0.10:53: no such host\n", "web.log": "2026-03-02T13:00:21.500Z INFO serving\n"}, code: "name-not-resolved", does: "DNS answered then"},
		"the server of names is silent":  {spec: spec, status: statusWith("", "web", waits), files: log("ERROR getaddrinfo EAI_AGAIN db.shop"), code: "name-not-resolved", does: "DNS answered then"},
		"a proxy that has no part in it": {spec: proxied, meta: ", annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: '5432'}", status: statusWith(isReady, "web", restarted, "istio-proxy", running), files: refused("10.2.3.4:5432"), code: "dependency-down", does: "check whether 10.2.3.4:5432 runs"},
	})
}

// The previous log of a container that waits is of its last run: it is not missing beside that.
func TestThePreviousLogOfAWaitingContainer(t *testing.T) {
	started := `{"kind": "Event", "apiVersion": "v1", "metadata": {"name": "e", "namespace": "shop"}, "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1", "fieldPath": "spec.containers{web}"}, "reason": "Started", "message": "Started container", "source": {"component": "kubelet"}, "count": 4, "firstTimestamp": "2026-03-02T12:50:10Z", "lastTimestamp": "2026-03-02T13:00:10Z"}`
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop}\nspec: {containers: [{name: web}]}\nstatus: {" + statusWith("", "web", strings.Replace(waits, "restartCount: 3", "restartCount: 1", 1)) + "}\n"
	started = strings.Replace(started, `"count": 4`, `"count": 2`, 1)
	for _, m := range diagnoseFiles(t, map[string]string{"pod.yaml": pod, "events.json": started, "web.previous.log": "2026-03-02T13:00:11.500Z ERROR no colour\n"}).Missing {
		if strings.Contains(m, "log of container web") {
			t.Error(m)
		}
	}
	if m := diagnoseFiles(t, map[string]string{"pod.yaml": pod, "events.json": started}).Missing; !strings.Contains(strings.Join(m, "\n"), "log of container web") {
		t.Error("the log of the last run is missing, and that is not said: ", m)
	}
}

// That the times of a log have no zone is said where it matters alone, and such a time is none in UTC.
func TestZonesThatMatter(t *testing.T) {
	long := strings.Replace(running, "13:00:10Z", "01:00:10Z", 1) // until the events, twelve hours later
	const (
		lines = "2026-03-02 07:30:00 WARN dial tcp 10.2.3.4:5432: connect: connection refused\n"
		quiet = "2026-03-02 07:30:00 INFO serving\n"
	)
	for name, c := range map[string]struct {
		status, log string
		notes       bool
	}{
		"nothing is wrong":            {statusWith(isReady, "web", long), quiet, false},
		"a finding quotes its time":   {statusWith(isReady, "web", long), lines, true},
		"its times are of no finding": {statusWith(isReady, "web", long, "other", strings.Replace(waits, "exitCode: 1", "exitCode: 137, message: x", 1)), quiet, false},
	} {
		spec := "containers: [{name: web}, {name: other}]"
		if !strings.Contains(c.status, "other") {
			spec = "containers: [{name: web}]"
		}
		r := diagnoseFiles(t, map[string]string{"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1}\nspec: {" + spec + "}\nstatus: {phase: Running, " + c.status + "}\n", "web.log": c.log})
		if got := strings.Contains(strings.Join(r.Notes, "\n"), "zones fit"); got != c.notes {
			t.Errorf("%s: %v, notes %q", name, r.Sentence, r.Notes)
		}
	}
	at := evidence.Time{At: time.Date(2026, 3, 2, 7, 30, 0, 0, time.UTC), Error: time.Millisecond, Clock: "log web.log"}
	if got := result.Instant(at); got != "07:30:00.000 (zone not known)" {
		t.Error(got)
	}
}
