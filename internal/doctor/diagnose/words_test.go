package diagnose

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// initArgs are arguments of init containers, which would be unknown without them.
var initArgs = map[string]string{"linkerd-proxy": `, "args": ["--incoming-proxy-port", "4143", "--outgoing-proxy-port", "4140", "--proxy-uid", "2102"]`}

// A small is a pod of one application, with what its evidence says. The pod began at 10:00:00.
type small struct {
	mesh   string            // container of the proxy, started at 10:00:04; empty: none
	state  string            // of the application, as JSON; empty: it ended at 10:00:05 with status 1, and waits
	spec   string            // further fields of the application
	status string            // further fields of the pod's status
	events string            // items of a list
	files  map[string]string // logs
	extra  string            // further fields of the proxy

	initArgs   string // further fields of the mesh's init container
	deleted    bool
	proxyState string // of the proxy, as JSON; empty: it runs since 10:00:04
	beside     string // name of another container, which runs since 10:00:02
}

// folder writes the evidence of the pod.
func (p small) folder(t *testing.T) string {
	t.Helper()
	if p.state == "" {
		p.state = ended(1)
	}
	containers, statuses, inits := `{"name": "web", "image": "example.com/web:1"`+p.spec+`}`, `{"name": "web", "ready": false, `+p.state+`}`, ""
	if p.beside != "" {
		containers += `, {"name": "` + p.beside + `", "image": "example.com/beside:1"}`
		statuses += `, {"name": "` + p.beside + `", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:02Z"}}}`
	}
	if p.mesh != "" {
		containers += `, {"name": "` + p.mesh + `", "image": "example.com/proxy:1"` + p.extra + `}`
		statuses += `, {"name": "` + p.mesh + `", "ready": true, ` + cmp.Or(p.proxyState, `"restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:04Z"}}`) + `}`
		inits = `"initContainers": [{"name": "` + map[string]string{"istio-proxy": "istio-init", "linkerd-proxy": "linkerd-init"}[p.mesh] + `", "image": "example.com/init:1"` + cmp.Or(p.initArgs, initArgs[p.mesh]) + `}], `
	}
	dir := t.TempDir()
	files := map[string]string{"pod.json": `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": "2026-03-02T10:00:00Z"` + map[bool]string{true: `, "deletionTimestamp": "2026-03-02T10:20:30Z"`}[p.deleted] + `},
		"spec": {"nodeName": "n1", ` + inits + `"containers": [` + containers + `]},
		"status": {"phase": "Running", "startTime": "2026-03-02T10:00:00Z"` + p.status + `, "containerStatuses": [` + statuses + `]}}`}
	if p.events != "" {
		files["events.json"] = `{"apiVersion": "v1", "kind": "List", "items": [` + p.events + `]}`
	}
	for name, text := range p.files { // in any order: each is a file
		files[name] = text
	}
	for name, text := range files { // in any order: each is a file
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ended returns the state of an application that ended with a status, and waits.
func ended(status int) string {
	return fmt.Sprintf(`"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": %d, "reason": "Error", "startedAt": "2026-03-02T10:00:04Z", "finishedAt": "2026-03-02T10:00:05Z"}}`, status)
}

// podEvent returns an event about the whole pod.
func podEvent(reason, message, reporter string) string {
	return strings.NewReplacer(`, "fieldPath": "spec.containers{web}"`, "", `"kubelet"`, `"`+reporter+`"`).Replace(event(reason, message))
}

// event returns an event about the application, with the kubelet as its reporter.
func event(reason, message string) string {
	return `{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "` + reason + `", "creationTimestamp": "2026-03-02T10:00:06Z"}, "reason": "` + reason + `", "message": "` + message + `",
		"involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web", "fieldPath": "spec.containers{web}"}, "source": {"component": "kubelet"}, "count": 1,
		"firstTimestamp": "2026-03-02T10:00:06Z", "lastTimestamp": "2026-03-02T10:00:06Z"}`
}

func TestWords(t *testing.T) {
	const banner = "[     0.001000s]  INFO ThreadId(01) linkerd2_proxy: release 2.300.0 (abc) by linkerd on 2025-09-01T22:31:18Z\n"
	const certified = "[     1.700000s]  INFO ThreadId(02) daemon:identity: linkerd_app: Certified identity id=default.ns\n"
	for name, c := range map[string]struct {
		pod  small
		want string // code, confidence, and text of the sentence
	}{
		"the date of a proxy's build is no time": {
			small{mesh: "linkerd-proxy", files: map[string]string{"web.previous.log": "Error: connect ECONNREFUSED 10.43.12.7:5432\n", "linkerd-proxy.log": banner + certified}},
			"startup-race likely startup race: web made a call",
		},
		"a time since the proxy's start that is long after the call": {
			small{mesh: "linkerd-proxy", files: map[string]string{"web.previous.log": "2026-03-02T10:00:05.100Z Error: connect ECONNREFUSED 10.43.12.7:5432\n", "linkerd-proxy.log": banner + strings.ReplaceAll(certified, " 1.7", "11.7")}},
			"startup-race certain startup race: web made a call",
		},
		"the line that tells why, and its cause": {
			small{files: map[string]string{"web.previous.log": "starting\nException in thread \"main\" java.lang.IllegalStateException: no licence\n" + strings.Repeat("\tat a.B.c(D.java:1)\n", 80) + "Caused by: java.io.FileNotFoundException: /etc/licence\n\t... 79 more\n"}},
			`app-crash likely web ended by itself: Exception in thread "main" java.lang.IllegalStateException: no licence, caused by java.io.FileNotFoundException: /etc/licence (exit code 1)`,
		},
		"a log that begins before the pod has calls of another time": {
			small{mesh: "istio-proxy", files: map[string]string{"web.previous.log": "2026-03-01T22:00:00Z WARN dial tcp 10.96.3.3:5432: connect: connection refused\n2026-03-02T10:00:05Z FATAL no licence\n"}},
			"app-crash likely web ended by itself: no licence (exit code 1)",
		},
		"a log whose clock is off tells no time": {
			small{mesh: "linkerd-proxy", files: map[string]string{"web.previous.log": "2026-03-01T22:00:00Z FATAL dial tcp 10.96.3.3:5432: connect: connection refused\n"}},
			"startup-race likely",
		},
		"a time in the only line that has one may be of what it quotes": {
			small{mesh: "linkerd-proxy", files: map[string]string{"web.previous.log": "notes: the last attempt (2026-02-24T22:00:00Z) ended with: dial tcp 10.96.3.3:5432: connect: connection refused\nmigrator 10\nERROR: checksum mismatch for migration 42\n"}},
			"app-crash likely web ended by itself",
		},
		"a port of the proxy": {
			small{mesh: "istio-proxy", files: map[string]string{"web.previous.log": "2026-03-02T10:00:04.100Z INFO starting\n2026-03-02T10:00:04.900Z panic: listen tcp :15021: bind: address already in use\n2026-03-02T10:00:04.950Z INFO stopping\n"}},
			"proxy-port-conflict likely web ended by itself: it could not listen on port 15021, which istio-proxy has (its readiness)",
		},
		"a port of the proxy, in Java's words": {
			small{mesh: "linkerd-proxy", files: map[string]string{"web.previous.log": "Web server failed to start. Port 4191 was already in use.\n"}},
			"proxy-port-conflict likely web ended by itself: it could not listen on port 4191",
		},
		"a port that the proxy declares": {
			small{mesh: "istio-proxy", extra: `, "ports": [{"containerPort": 7777}]`, files: map[string]string{"web.previous.log": "Error: listen EADDRINUSE: address already in use :::7777\n    at Server.setupListenHandle (node:net:1817:16)\n"}},
			"proxy-port-conflict likely web ended by itself: it could not listen on port 7777, which istio-proxy has (a port that it declares)",
		},
		"a port of which no owner is known": {
			small{mesh: "istio-proxy", files: map[string]string{"web.previous.log": "Error: listen EADDRINUSE: address already in use 0.0.0.0:8080\n"}},
			"app-crash likely web ended by itself: Error: listen EADDRINUSE: address already in use 0.0.0.0:8080 (exit code 1)",
		},
		"a probe of a port on which the application does not listen": {
			small{state: ended(137), spec: `, "livenessProbe": {"httpGet": {"port": "http", "path": "/healthz"}}, "ports": [{"name": "http", "containerPort": 80}]`,
				events: event("Killing", "Container web failed liveness probe, will be restarted") + "," + event("Unhealthy", `Liveness probe failed: Get \"http://10.2.4.9:80/healthz\": dial tcp 10.2.4.9:80: connect: connection refused`),
				files:  map[string]string{"web.previous.log": "info: Microsoft.Hosting.Lifetime[14]\n      Now listening on: http://[::]:8080\n"}},
			"killed-by-probe certain web was killed because its liveness probe failed: nothing listened on port 80; by its log, web listens on 8080",
		},
		"a probe that the proxy's agent asks": {
			small{mesh: "istio-proxy", state: ended(137), events: event("Killing", "Container web failed liveness probe, will be restarted") + "," + event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 500"),
				files: map[string]string{"web.previous.log": "Tomcat started on port(s): 8080 (http) with context path ''\n",
					"istio-proxy.log": "2026-03-02T10:00:05.1Z\terror\tRequest to probe app failed: Get \"http://10.2.4.9:80/healthz\": dial tcp 127.0.0.6:0->10.2.4.9:80: connect: connection refused, original URL path = /app-health/web/livez\n"}},
			"killed-by-probe certain web was killed because its liveness probe failed: nothing listened on port 80; by its log, web listens on 8080",
		},
		"a probe of an application that listens on the loopback address": {
			small{state: ended(137), events: event("Killing", "Container web failed liveness probe, will be restarted") + "," + event("Unhealthy", "Liveness probe failed: dial tcp 10.2.4.9:8000: connect: connection refused"),
				files: map[string]string{"web.previous.log": "INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)\n"}},
			"killed-by-probe certain web was killed because its liveness probe failed: nothing listened on port 8000; by its log, web listens on the loopback address only",
		},
		"a probe of a path that is not there": {
			small{state: ended(137), spec: `, "livenessProbe": {"httpGet": {"port": 8080, "path": "/health"}}`, events: event("Killing", "Container web failed liveness probe, will be restarted") + "," + event("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 404")},
			"killed-by-probe certain web was killed because its liveness probe failed: it answers 404 for /health",
		},
		"a probe without an answer": {
			small{state: ended(137), spec: `, "livenessProbe": {"timeoutSeconds": 3, "httpGet": {"port": 8080, "path": "/health"}}`, events: event("Killing", "Container web failed liveness probe, will be restarted") + "," + event("Unhealthy", `Liveness probe failed: Get \"http://10.2.4.9:8080/health\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`)},
			"killed-by-probe certain web was killed because its liveness probe failed: it did not answer within 3 s",
		},
		"a hook whose command the image does not have": {
			small{state: ended(0), events: event("FailedPostStartHook", `Exec lifecycle hook ([/bin/sh -c true]) for Container \"web\" in Pod \"web_shop(1)\" failed - error: rpc error: code = Unknown desc = failed to exec in container: failed to start exec \"9d\": OCI runtime exec failed: exec failed: unable to start container process: exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown, message: \"\"`)},
			`container-not-created certain the kubelet ends web, since its postStart hook fails: exec: "/bin/sh": stat /bin/sh: no such file or directory`,
		},
		"a hook whose command fails": {
			small{state: ended(0), events: event("FailedPostStartHook", `Exec lifecycle hook ([/warm]) for Container \"web\" in Pod \"web_shop(1)\" failed - error: command '/warm' exited with 3: no cache, message: \"no cache\\n\"`), files: map[string]string{"web.previous.log": "started\n"}},
			`container-not-created certain the kubelet ends web, since its postStart hook fails: command '/warm' exited with 3: no cache`,
		},
		"a node that does not answer": {
			small{state: `"restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:04Z"}}`, events: podEvent("NodeNotReady", "Node is not ready", "node-controller")},
			"node-lost certain node n1 is not ready: what its containers do is not known",
		},
		"a taint for which the pod is removed": {
			small{state: `"restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:04Z"}}`, events: podEvent("TaintManagerEviction", "Marking for deletion Pod shop/web", "taint-eviction-controller")},
			"evicted certain the pod is removed from node n1, whose taint it does not tolerate",
		},
		"a taint that was taken back": {
			small{state: ended(0), events: podEvent("TaintManagerEviction", "Cancelling deletion of Pod shop/web", "taint-eviction-controller")},
			"app-crash",
		},
		"a volume that another node has": {
			small{state: `"restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}`, events: podEvent("FailedAttachVolume", `Multi-Attach error for volume \"pvc-1\" Volume is already used by pod(s) web-0`, "attachdetach-controller")},
			`volume-missing certain a volume of the pod cannot be attached to its node: Multi-Attach error for volume "pvc-1"`,
		},
		"a log in local time, in a shutdown": {
			small{mesh: "istio-proxy", state: `"restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:04Z"}}`, deleted: true, initArgs: `, "args": ["istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*"]`,
				events: strings.ReplaceAll(event("FailedPreStopHook", `Exec lifecycle hook ([/wait]) for Container \"istio-proxy\" in Pod \"x\" failed - error: command '/wait' exited with 1: no netstat, message: \"\"`), "{web}", "{istio-proxy}"),
				files: map[string]string{"web.log": "2026-03-02 18:00:05.101 INFO started\n2026-03-02 18:20:10.404 ERROR [NA] failed to request, java.net.ConnectException: Connection refused (Connection refused)\n",
					"istio-proxy.log": "2026-03-02T10:00:05Z\tinfo\tEnvoy proxy is ready\n2026-03-02T10:20:00.1Z\tinfo\tAgent draining Proxy\n"}},
			"shutdown-race likely shutdown race: istio-proxy was told to stop, and took no new calls, while web still made some; the preStop hook of istio-proxy failed (command '/wait' exited with 1: no netstat)",
		},
		"a socket with another name": {
			small{mesh: "istio-proxy", spec: `, "env": [{"name": "DB_SOCKET", "value": "/sql/shop:db"}]`, beside: "sql",
				files: map[string]string{"web.previous.log": "SQLSTATE[HY000] [2002] No such file or directory (Connection: mysql)\n", "sql.log": "2026/03/02 10:00:03 [shop:eu:db] Listening on /sql/shop:eu:db\n"}},
			"app-crash likely web ended by itself: DB_SOCKET names the socket /sql/shop:db, and sql listens on /sql/shop:eu:db",
		},
		"a message in the status, without a log": {
			small{state: strings.Replace(ended(1), `"reason": "Error"`, `"reason": "Error", "message": "starting\npanic: no licence\n\ngoroutine 1 [running]:\n"`, 1)},
			"app-crash likely web ended by itself: panic: no licence (exit code 1)",
		},
		"a message of a failed call, without a log": {
			small{state: strings.Replace(ended(1), `"reason": "Error"`, `"reason": "Error", "message": "FATAL dial tcp 10.0.0.1:80: connect: connection refused"`, 1)},
			"app-crash possible web ended by itself: dial tcp",
		},
		"a proxy that ended, and says why": {
			small{mesh: "istio-proxy", state: `"restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:04Z"}}`,
				proxyState: `"restartCount": 1, "state": {"running": {"startedAt": "2026-03-02T10:05:02Z"}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": "2026-03-02T10:00:04Z", "finishedAt": "2026-03-02T10:05:01Z"}}`,
				files:      map[string]string{"istio-proxy.previous.log": "2026-03-02T10:05:01Z\tcritical\tenvoy main\terror initializing configuration '/etc/x.json': no such field 'foo'\n"}},
			"proxy-died certain istio-proxy ended while web ran: exit code 1: error initializing configuration '/etc/x.json': no such field 'foo'",
		},
		"a probe of which no event is left, and its port": {
			small{state: ended(137), spec: `, "livenessProbe": {"tcpSocket": {"port": 80}}`, files: map[string]string{"web.previous.log": "Now listening on: http://[::]:8080\n"}},
			"killed-by-probe likely web was ended, most likely by the kubelet: its liveness probe asks port 80; by its log, web listens on 8080 (exit code 137, signal 9)",
		},
		"a container that is not ready, and its probe's port": {
			small{state: `"restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:04Z"}}`, spec: `, "readinessProbe": {"httpGet": {"port": 80, "path": "/"}}`, files: map[string]string{"web.log": "Server listening on port 3000\n"}},
			"probe-fails likely web runs and is not ready: its readiness probe asks port 80; by its log, web listens on 3000",
		},
		"a probe of another container's port": {
			small{mesh: "istio-proxy", state: `"restartCount": 0, "state": {"running": {"startedAt": "2026-03-02T10:00:04Z"}}`, spec: `, "readinessProbe": {"httpGet": {"port": 15021, "path": "/"}}`, files: map[string]string{"web.log": "Server listening on port 3000\n"}},
			"starting",
		},
		"a container that could not be started is no crash": {
			small{state: strings.Replace(ended(128), `"reason": "Error"`, `"reason": "StartError", "message": "failed to create containerd task: exec: \"bundle\": executable file not found in $PATH"`, 1)},
			"container-not-created certain web cannot be started",
		},
		"a status that a shell gives": {small{state: ended(127), files: map[string]string{"web.previous.log": "hello\n"}}, "app-crash likely web ended by itself: its command, or one in its script, was not found (exit code 127)"},
		"killed, and nothing says by whom, whatever its log has": {
			small{state: ended(137), files: map[string]string{"web.previous.log": "2026-03-02T10:00:05Z ERROR one request failed: bad input\n"}},
			"app-crash likely web was killed (SIGKILL), and the evidence does not say by whom (exit code 137, signal 9)",
		},
		"an abort, and what it says": {small{state: ended(134), files: map[string]string{"web.previous.log": "x: y.c:3: main: Assertion `n > 0' failed.\n"}}, "app-crash likely web ended by itself: x: y.c:3: main: Assertion `n > 0' failed. (exit code 134, signal 6)"},
		"a status of 0":              {small{state: ended(0), files: map[string]string{"web.previous.log": "done\n"}}, "app-crash likely web ended by itself, as if its work were done (exit code 0)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFolder(t, c.pod.folder(t))
			got := string(r.Verdict)
			if len(r.Findings) > 0 {
				got = strings.Join([]string{string(r.Findings[0].Code), string(r.Findings[0].Confidence), r.Findings[0].Sentence}, " ")
			}
			if crash := slices.ContainsFunc(r.Findings, func(f result.Finding) bool { return f.Code == "app-crash" }); crash && !strings.HasPrefix(c.want, "app-crash") {
				t.Errorf("a crash too: %+v", r.Findings)
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%s\n%s\nwant %s", r.Sentence, got, c.want)
			}
		})
	}
}

// unclear matches what a reader stumbles over: words that stand for nothing, two words for one, and ends that a text
// without its last part has.
var unclear = regexp.MustCompile(`address that (?:the|its) log does not name|the log lies in|wrong by|\b(?:some|no)body\b|the name a name|  |[ ,:;]$|^$|(?:^|\s)\(\)|%!`)

// wellWorded fails the test if a report has an unclear text, a finding that neither says what to do nor shows what its log says, or says of a log that is not
// among the evidence what it does not say.
func wellWorded(t *testing.T, r result.Report) {
	t.Helper()
	texts := append(slices.Clone(r.Notes), r.Missing...)
	texts = append(texts, r.Sentence)
	for _, f := range r.Findings {
		said := f.Sentence
		for _, q := range slices.Concat(f.Evidence, f.Against) { // what the evidence says is not ours
			said = strings.ReplaceAll(said, q.Text, "")
			if q.Source.Kind == evidence.FromPod && strings.TrimRight(q.Text, " :") != q.Text {
				t.Errorf("%s: a part is missing: %q", r.Pod, q.Text)
			}
		}
		texts = append(texts, f.Sentence, f.Disproof)
		shows := func(q evidence.Quote) bool {
			return strings.HasSuffix(q.Source.File, ".log") || strings.Contains(f.Sentence, q.Text)
		}
		if f.Remedy.Sentence == "" && f.Remedy.Command == "" && !slices.ContainsFunc(f.Evidence, shows) {
			t.Errorf("%s: what is to be done? %s: %s", r.Pod, f.Code, f.Sentence)
		}
		if strings.Contains(said, "its log does not say") && slices.ContainsFunc(r.Missing, func(m string) bool { return strings.HasPrefix(m, "log of container "+f.Container+":") }) {
			t.Errorf("%s: its log is not among the evidence: %s", r.Pod, f.Sentence)
		}
	}
	for _, text := range texts {
		if m := unclear.FindString(text); m != "" || text == "" {
			t.Errorf("%s: unclear, by %q: %q", r.Pod, m, text)
		}
	}
}
