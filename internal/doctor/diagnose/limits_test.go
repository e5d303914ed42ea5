package diagnose

import (
	"fmt"
	"strings"
	"testing"
)

// A smallPod is a pod with two containers, app and side, in YAML of one line each.
type smallPod struct {
	meta, spec, status string // more of metadata, spec and status
	app, side          string // more of the containers
	appIs, sideIs      string // their states
	name               string // of the second container; empty: side
	files              map[string]string
}

const (
	over       = `state: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:05:00Z"}}`
	atDeadline = `state: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:15:00Z"}}`
	killed     = `state: {terminated: {exitCode: 137, reason: Error, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:05:00Z"}}`
	failed     = `restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:05:00Z"}}`
	runs       = `ready: true, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}`
	unwell     = `ready: false, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}`
	gone       = `deletionTimestamp: "2026-03-02T10:05:30Z", `
	once       = `restartPolicy: Never, `
	again      = `restartCount: 1, ready: true, state: {running: {startedAt: "2026-03-02T10:05:02Z"}}, lastState: {terminated: {exitCode: 137, reason: Error, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:05:00Z"}}`
	captured   = `initContainers: [{name: istio-init, image: i, args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, "10.1.0.0/16", -b, "*", -d, "15090"]}], `
	killing    = "kind: Event\nmetadata: {name: k}\nreason: Killing\nmessage: 'Container app failed liveness probe, will be again'\ninvolvedObject: {kind: Pod, namespace: shop, name: web, fieldPath: 'spec.containers{app}'}\nlastTimestamp: \"2026-03-02T10:04:59Z\"\n"
	asks       = "2026-03-02T10:00:09Z aggressive probe error (failed 9 times): dial tcp 127.0.0.1:8080: connect: connection refused\n"
	answers503 = "kind: Event\nmetadata: {name: k}\nreason: Unhealthy\nmessage: 'Readiness probe failed: HTTP probe failed with statuscode: 503'\ninvolvedObject: {kind: Pod, namespace: shop, name: web, fieldPath: 'spec.containers{side}'}\nlastTimestamp: \"2026-03-02T10:04:59Z\"\n"
	loop       = `command: [sh, -c, "while true; do date; sleep 5; done"]`
)

func (p smallPod) texts() map[string]string {
	name := p.name
	if name == "" {
		name = "side"
	}
	object := fmt.Sprintf("kind: Pod\nmetadata: {%sname: web, namespace: shop, creationTimestamp: \"2026-03-02T10:00:00Z\"}\nspec: {%scontainers: [{name: app, image: app, %s}, {name: %s, image: b, %s}]}\n"+
		"status: {startTime: \"2026-03-02T10:00:00Z\", %s, containerStatuses: [{name: app, %s}, {name: %s, %s}]}\n", p.meta, p.spec, p.app, name, p.side, p.status, p.appIs, name, p.sideIs)
	out := map[string]string{"pod.yaml": object}
	for file, text := range p.files {
		out[file] = text
	}
	return out
}

// Each rule has a limit, beyond which its cause would be said falsely.
func TestLimitsOfRules(t *testing.T) {
	const (
		refused     = ` connect: connection refused` + "\n"
		twice       = `restartCount: 1, ready: true, state: {running: {startedAt: "2026-03-02T10:00:21Z"}}, lastState: {terminated: {exitCode: 2, reason: Error, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:00:08Z"}}`
		deadline    = "2026-03-02T10:00:02.100Z start\n2026-03-02T10:00:07.900Z panic: no client for '127.0.0.1:50001': context deadline exceeded\n"
		startsUpYet = `ready: false, started: false, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}`
		upstream    = "2026-03-02T10:00:30.100Z [error] upstream http://127.0.0.1:8080/: connect() failed (111: Connection refused)\n"
		panics      = "FATAL runtime error: index out of range [3] with length 3\n\ngoroutine 7 [running]:\nmain.work(...)\n\t/src/work.go:8\n"
	)
	hook := func(extra string) map[string]string {
		return map[string]string{"events.yaml": "kind: Event\nmetadata: {name: e}\nreason: FailedPostStartHook\nmessage: 'PostStartHook failed'\nsource: {component: kubelet}\ninvolvedObject: {kind: Pod, namespace: shop, name: web, fieldPath: 'spec.containers{app}'}\nlastTimestamp: \"2026-03-02T10:04:00Z\"\n" + extra}
	}
	notReady := func(why string) string {
		return "kind: Event\nmetadata: {name: e}\nreason: Unhealthy\nmessage: 'Readiness probe failed: " + why + "'\nsource: {component: kubelet}\ninvolvedObject: {kind: Pod, namespace: shop, name: web, fieldPath: 'spec.containers{app}'}\nlastTimestamp: \"2026-03-02T10:00:40Z\"\n"
	}
	for name, c := range map[string]struct {
		pod  smallPod
		want string // verdict, code and confidence
		says string // a part of the sentence; with "!" before it: none of it
	}{
		"a Job that was ended by its deadline, and is deleted": {
			smallPod{meta: gone, spec: once, status: "phase: Failed, reason: DeadlineExceeded", appIs: over, side: loop, sideIs: killed}, "found job-never-ends certain", "side ran on"},
		"a helper that ended well at the deadline held the Job": {
			smallPod{spec: once + "activeDeadlineSeconds: 900, ", status: "phase: Failed, reason: DeadlineExceeded", appIs: over, side: loop, sideIs: atDeadline}, "found job-never-ends certain", "side ran on until it was ended"},
		"a helper that ended long before the deadline held nothing": {
			smallPod{spec: once + "activeDeadlineSeconds: 9000, ", status: "phase: Failed, reason: DeadlineExceeded", appIs: over, side: loop, sideIs: atDeadline}, "found deadline-exceeded certain", "!ran on"},
		"work that ran until the deadline did not crash": {
			smallPod{spec: once, status: "phase: Failed, reason: DeadlineExceeded", appIs: killed, side: loop, sideIs: killed}, "found deadline-exceeded certain", ""},
		"a helper that asks on another port": {
			smallPod{status: "phase: Running", app: "ports: [{containerPort: 8080}]", appIs: runs, sideIs: unwell, files: map[string]string{"events.yaml": answers503, "side.log": asks, "app.log": "2026-03-02T10:00:03Z listening on 127.0.0.1:5000\n"}}, "found probe-fails likely", "side is not ready, since it asks app on port 8080, where nothing listens; by its log, app listens on 5000"},
		"a helper that asks, by its environment, on another port": {
			smallPod{status: "phase: Running", appIs: runs, side: "env: [{name: SERVING_READINESS_PROBE, value: '{\"httpGet\":{\"port\":8080}}'}]", sideIs: unwell, files: map[string]string{"events.yaml": answers503, "app.log": "2026-03-02T10:00:03Z listening on :5000\n"}}, "found probe-fails likely", "app listens on 5000"},
		"a helper that asks where the log says nothing": {
			smallPod{status: "phase: Running", appIs: runs, sideIs: unwell, files: map[string]string{"events.yaml": answers503, "side.log": asks, "app.log": "2026-03-02T10:00:03Z starting\n"}}, "found probe-fails likely", "it asks app on port 8080, where nothing listens"},
		"a helper that asked before the container listened": {
			smallPod{status: "phase: Running", appIs: runs, sideIs: unwell, files: map[string]string{"events.yaml": answers503, "side.log": asks, "app.log": "2026-03-02T10:00:13Z listening on :8080\n"}}, "found probe-fails likely", "!where nothing listens"},
		"a helper that asks nothing": {
			smallPod{status: "phase: Running", appIs: runs, sideIs: unwell, files: map[string]string{"events.yaml": answers503, "app.log": "2026-03-02T10:00:03Z listening on :5000\n"}}, "found probe-fails likely", "!it asks app"},
		"a socket in a volume that is not mounted": {
			smallPod{status: "phase: Running", app: "env: [{name: SOCK, value: /run/a/app.sock}]", appIs: failed, side: "volumeMounts: [{name: socks, mountPath: /run/a}]", sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL dial unix: no such file or directory\n"}}, "found app-crash likely", "SOCK names /run/a/app.sock, which is not in it: it does not mount volume socks, which side mounts at /run/a"},
		"a socket in a volume that is mounted": {
			smallPod{status: "phase: Running", app: "env: [{name: SOCK, value: /run/a/app.sock}], volumeMounts: [{name: socks, mountPath: /run/a/}]", appIs: failed, side: "volumeMounts: [{name: socks, mountPath: /run/a}]", sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL dial unix: no such file or directory\n"}}, "found app-crash likely", "!not mount"},
		"another file than the socket is missing": {
			smallPod{status: "phase: Running", app: "env: [{name: SOCK, value: /run/a/app.sock}]", appIs: failed, side: "volumeMounts: [{name: socks, mountPath: /run/a}]", sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL open /etc/app.conf: no such file or directory\n"}}, "found app-crash likely", "!not mount"},
		"a socket beside a volume": {
			smallPod{status: "phase: Running", app: "env: [{name: SOCK, value: /run/ab/app.sock}]", appIs: failed, side: "volumeMounts: [{name: socks, mountPath: /run/a}]", sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL dial unix: no such file or directory\n"}}, "found app-crash likely", "!not mount"},
		"an endless loop holds a Job": {
			smallPod{spec: once, status: "phase: Running", appIs: over, side: loop, sideIs: runs}, "found job-never-ends certain", "side runs on"},
		"a helper that had not ended before the call": {
			smallPod{meta: gone, status: "phase: Running", appIs: runs, name: "cloud-sql-proxy", sideIs: over, files: map[string]string{"app.log": "2026-03-02T10:04:50.100Z dial tcp 127.0.0.1:5432:" + refused}}, "", "!shutdown race"},
		"a helper that had ended before the call": {
			smallPod{meta: gone, status: "phase: Running", appIs: runs, name: "cloud-sql-proxy", sideIs: over, files: map[string]string{"app.log": "2026-03-02T10:05:03.100Z dial tcp 127.0.0.1:5432:" + refused}}, "found shutdown-race certain", "cloud-sql-proxy ended while app still called it"},
		"a call of which it is not known where to, after the end of a helper": {
			smallPod{meta: gone, status: "phase: Running", appIs: runs, name: "cloud-sql-proxy", sideIs: over, files: map[string]string{"app.log": "2026-03-02T10:05:03.100Z it failed:" + refused}}, "found shutdown-race likely", "shutdown race"},
		"a call to elsewhere after the end of a helper": {
			smallPod{meta: gone, status: "phase: Running", appIs: runs, name: "cloud-sql-proxy", sideIs: over, files: map[string]string{"app.log": "2026-03-02T10:05:03.100Z dial tcp 10.1.2.3:5432:" + refused}}, "", "!shutdown race"},
		"a proxy that cannot listen does not take its port from itself": {
			smallPod{status: "phase: Running", appIs: runs, name: "istio-proxy", side: "ports: [{containerPort: 15021}]", sideIs: failed, files: map[string]string{"istio-proxy.previous.log": "2026-03-02T10:04:59.100Z error listen tcp :15021: bind: address already in use\n"}}, "", "!which istio-proxy has"},
		"a port in a line is not taken": {
			smallPod{status: "phase: Running", appIs: failed, side: "ports: [{containerPort: 8080}]", sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL no configuration for port 8080\n"}}, "found app-crash likely", "!could not listen"},
		"a socket in another folder": {
			smallPod{status: "phase: Running", app: "env: [{name: SOCK, value: /run/a/app.sock}]", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL open /etc/x: no such file or directory\n", "side.log": "2026-03-02T10:00:03Z listening on unix:///run/b/b.sock\n"}}, "found app-crash likely", "!names the socket"},
		"a socket that is there": {
			smallPod{status: "phase: Running", app: "env: [{name: SOCK, value: /run/a/app.sock}]", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL open /etc/x: no such file or directory\n", "side.log": "2026-03-02T10:00:03Z listening on unix:///run/a/b.sock\n2026-03-02T10:00:03Z listening on unix:///run/a/app.sock\n"}}, "found app-crash likely", "!names the socket"},
		"a socket of another name": {
			smallPod{status: "phase: Running", app: "env: [{name: SOCK, value: /run/a/app.sock}]", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL open /etc/x: no such file or directory\n", "side.log": "2026-03-02T10:00:03Z listening on unix:///run/a/b.sock\n"}}, "found app-crash likely", "SOCK names the socket /run/a/app.sock, and side listens on /run/a/b.sock"},
		"a named port of a probe": {
			smallPod{status: "phase: Running", app: "ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {port: http, path: /ok}}", appIs: unwell, sideIs: runs, files: map[string]string{"app.log": "2026-03-02T10:00:03Z listening on :9090\n"}}, "found probe-fails likely", "asks port 8080; by its log, app listens on 9090"},
		"a probe of another container's port": {
			smallPod{status: "phase: Running", app: "readinessProbe: {httpGet: {port: 8080, path: /ok}}", appIs: unwell, side: "ports: [{containerPort: 8080}]", sideIs: runs, files: map[string]string{"app.log": "2026-03-02T10:00:03Z listening on :9090\n"}}, "", "!asks port"},
		"a probe that an agent makes": {
			smallPod{status: "phase: Running", app: "readinessProbe: {httpGet: {port: 7777, path: /app-health/app/readyz}}", appIs: unwell, sideIs: runs, files: map[string]string{"app.log": "2026-03-02T10:00:03Z listening on :9090\n"}}, "", "!asks port"},
		"a hook that fails": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: hook("")}, "found container-not-created certain", "postStart hook fails"},
		"a hook that failed in a pod in deletion": {
			smallPod{meta: gone, status: "phase: Running", appIs: failed, sideIs: runs, files: hook("")}, "", "!postStart hook fails"},
		"a sibling that failed before it was called": {
			smallPod{status: "phase: Running", appIs: failed, side: "ports: [{containerPort: 6379}]", sideIs: failed, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL dial tcp 127.0.0.1:6379:" + refused, "side.previous.log": "2026-03-02T10:04:59Z FATAL no licence\n"}}, "found app-crash likely", "side ended by itself: no licence"},
		"a port of the proxy": {
			smallPod{status: "phase: Running", appIs: failed, name: "istio-proxy", sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.100Z FATAL app.go:57: listen tcp :15021: bind: address already in use\n"}}, "found proxy-port-conflict likely", "which istio-proxy has"},
		"a request that was served after the call": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:40.100Z dial tcp 10.1.2.3:5432:" + refused + "2026-03-02T10:04:50.100Z GET /orders 200\n2026-03-02T10:04:59Z FATAL no licence\n"}}, "found app-crash likely", "no licence"},
		"a call long before the end": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:00:05.100Z dial tcp 10.1.2.3:5432:" + refused + "2026-03-02T10:04:59Z FATAL no licence\n"}}, "found app-crash likely", "no licence"},
		"a hook that failed once": {
			smallPod{status: "phase: Running", appIs: again, sideIs: runs, files: hook("")}, "", "!postStart hook fails"},
		"a helper by its name holds a Job": {
			smallPod{spec: once, status: "phase: Running", appIs: over, name: "log-shipper", sideIs: runs}, "found job-never-ends likely", "log-shipper runs on"},
		"a probe of a server with many ports": {
			smallPod{status: "phase: Running", app: "readinessProbe: {httpGet: {port: 8080, path: /ok}}", appIs: unwell, sideIs: runs, files: map[string]string{"app.log": "listening on :9091\nlistening on :9092\nlistening on :9093\nlistening on :9094\nlistening on :9095\n"}}, "", "!asks port"},
		"a proxy that failed is not one that was stopped": {
			smallPod{meta: gone, spec: captured, status: "phase: Running", appIs: runs, name: "istio-proxy", sideIs: strings.NewReplacer("exitCode: 0", "exitCode: 1", "Completed", "Error").Replace(over), files: map[string]string{"app.log": "2026-03-02T10:05:10.100Z dial tcp 10.96.2.3:5432:" + refused}}, "", "!shutdown race"},
		"a success of another call": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:50.100Z dial tcp 10.1.2.3:5432:" + refused + "2026-03-02T10:04:55.100Z successfully connected to redis:6379\n"}}, "found dependency-down certain", "10.1.2.3:5432"},
		"a success of the same call": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:50.100Z dial tcp 10.1.2.3:5432:" + refused + "2026-03-02T10:04:55.100Z successfully connected to 10.1.2.3:5432\n2026-03-02T10:04:59Z FATAL no licence\n"}}, "found app-crash likely", "no licence"},
		"a container waits for a call until its probe ends it": {
			smallPod{status: "phase: Running", appIs: again, sideIs: runs, files: map[string]string{"events.yaml": killing, "app.previous.log": "2026-03-02T10:02:00.100Z dial tcp 10.1.2.3:5432:" + refused}}, "found dependency-down certain", "10.1.2.3:5432"},
		"a call of another container does not explain a kill": {
			smallPod{status: "phase: Running", appIs: again, sideIs: failed, files: map[string]string{"events.yaml": killing, "side.previous.log": "2026-03-02T10:04:58.100Z dial tcp 10.1.2.3:5432:" + refused}}, "found killed-by-probe certain", "app was killed"},
		"a call past a proxy that ended": {
			smallPod{meta: gone, spec: captured, status: "phase: Running", appIs: runs, name: "istio-proxy", sideIs: over, files: map[string]string{"app.log": "2026-03-02T10:05:10.100Z dial tcp 10.1.2.3:5432:" + refused}}, "", "!shutdown race"},
		"a call after the end of a proxy": {
			smallPod{meta: gone, spec: captured, status: "phase: Running", appIs: runs, name: "istio-proxy", sideIs: over, files: map[string]string{"app.log": "2026-03-02T10:05:10.100Z dial tcp 10.96.2.3:5432:" + refused}}, "found shutdown-race certain", "shutdown race: istio-proxy ended"},
		"a call that a line before names, after the end of a proxy": {
			smallPod{meta: gone, spec: captured, status: "phase: Running", appIs: runs, name: "istio-proxy", sideIs: over, files: map[string]string{"app.log": "2026-03-02T10:05:10.000Z calling http://10.96.2.3:8080/\n2026-03-02T10:05:10.100Z it failed:" + refused}}, "found shutdown-race likely", "shutdown race: istio-proxy ended"},
		"a deadline at a container that starts later": {
			smallPod{status: "phase: Running", appIs: twice, name: "agent", side: "args: [--port=50001]", sideIs: `ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:20Z"}}`, files: map[string]string{"app.previous.log": deadline}}, "found sibling-down likely", "called its own pod at 127.0.0.1:50001 before agent listened there"},
		"a deadline at a container that is not created yet": {
			smallPod{status: "phase: Pending", appIs: twice, name: "daprd", sideIs: `ready: false, restartCount: 0, state: {waiting: {reason: ContainerCreating}}`, files: map[string]string{"app.previous.log": deadline}}, "found sibling-down likely", "called its own pod at 127.0.0.1:50001 before a container listened there"},
		"a deadline at a container that says later that it listens": {
			smallPod{status: "phase: Running", appIs: twice, name: "agent", side: "args: [--port=50001]", sideIs: runs, files: map[string]string{"app.previous.log": deadline, "agent.log": "2026-03-02T10:00:12.000Z listening on :50001\n"}}, "found sibling-down likely", "called its own pod at 127.0.0.1:50001 before agent listened there"},
		"a deadline at a container that says before that it listens": {
			smallPod{status: "phase: Running", appIs: twice, name: "agent", side: "args: [--port=50001]", sideIs: runs, files: map[string]string{"app.previous.log": deadline, "agent.log": "2026-03-02T10:00:03.000Z listening on :50001\n"}}, "", "!listened there"},
		"a deadline at a container that had restarted": {
			smallPod{status: "phase: Running", appIs: twice, name: "daprd", sideIs: `ready: true, restartCount: 2, state: {running: {startedAt: "2026-03-02T10:00:20Z"}}`, files: map[string]string{"app.previous.log": deadline}}, "", "!listened there"},
		"a deadline elsewhere": {
			smallPod{status: "phase: Running", appIs: twice, name: "daprd", sideIs: `ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:20Z"}}`, files: map[string]string{"app.previous.log": strings.ReplaceAll(deadline, "127.0.0.1", "10.1.2.3")}}, "", "!listened there"},
		"a deadline at an address that a line before names": {
			smallPod{status: "phase: Running", appIs: twice, name: "daprd", sideIs: `ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:20Z"}}`, files: map[string]string{"app.previous.log": "client initializing for: 127.0.0.1:50001\nFATAL context deadline exceeded\n"}}, "found sibling-down likely", "called its own pod at 127.0.0.1:50001 before daprd listened there"},
		"a deadline after a line about its own address": {
			smallPod{status: "phase: Running", appIs: twice, name: "daprd", sideIs: `ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:20Z"}}`, files: map[string]string{"app.previous.log": "client API listening on 127.0.0.1:50001\nexporter 127.0.0.1:50001\nFATAL context deadline exceeded\n"}}, "found app-crash likely", "deadline exceeded"},

		"a sibling that starts up": {
			smallPod{status: "phase: Running", appIs: runs, side: "ports: [{containerPort: 8080}], startupProbe: {httpGet: {port: 8080}, failureThreshold: 60}", sideIs: startsUpYet, files: map[string]string{"app.log": upstream}}, "starting", "the pod is starting: side is not ready"},
		"a sibling that starts up, by its readiness probe": {
			smallPod{status: "phase: Running", appIs: runs, side: "ports: [{containerPort: 8080}], readinessProbe: {httpGet: {port: 8080}}", sideIs: startsUpYet, files: map[string]string{"app.log": upstream}}, "starting", "the pod is starting: side is not ready"},
		"a readiness probe of a container that starts up": {
			smallPod{status: "phase: Running", app: "readinessProbe: {httpGet: {port: 8080}}", appIs: startsUpYet, sideIs: runs, files: map[string]string{"events.yaml": notReady("dial tcp 10.4.66.31:8080: connect: connection refused")}}, "starting", "the pod is starting: app is not ready"},
		"an answer to a readiness probe": {
			smallPod{status: "phase: Running", app: "readinessProbe: {httpGet: {port: 8080}}", appIs: startsUpYet, sideIs: runs, files: map[string]string{"events.yaml": notReady("HTTP probe failed with statuscode: 404")}}, "found probe-fails likely", "404"},
		"a readiness probe of a container that listens elsewhere": {
			smallPod{status: "phase: Running", app: "readinessProbe: {httpGet: {port: 8080}}", appIs: startsUpYet, sideIs: runs, files: map[string]string{"events.yaml": notReady("dial tcp 10.4.66.31:8080: connect: connection refused"), "app.log": "2026-03-02T10:00:03Z listening on :9090\n"}}, "found probe-fails likely", "app listens on 9090"},
		"a sibling that is not ready for long": {
			smallPod{status: "phase: Running", appIs: runs, side: "ports: [{containerPort: 8080}], readinessProbe: {httpGet: {port: 8080}}", sideIs: startsUpYet, files: map[string]string{"app.log": strings.ReplaceAll(upstream, "10:00:30", "10:20:30")}}, "found sibling-down certain", "where no container listened"},
		"a sibling that starts up, whose caller has ended": {
			smallPod{status: "phase: Running", appIs: failed, side: "ports: [{containerPort: 8080}], startupProbe: {httpGet: {port: 8080}}", sideIs: startsUpYet, files: map[string]string{"app.previous.log": strings.ReplaceAll(upstream, "10:00:30", "10:04:59")}}, "found sibling-down certain", "called its own pod"},
		"a sibling that starts up for the second time": {
			smallPod{status: "phase: Running", appIs: runs, side: "ports: [{containerPort: 8080}], startupProbe: {httpGet: {port: 8080}}", sideIs: strings.Replace(startsUpYet, "restartCount: 0", "restartCount: 1", 1), files: map[string]string{"app.log": upstream}}, "found sibling-down certain", "called its own pod"},
		"a sibling that starts up, and listens elsewhere": {
			smallPod{status: "phase: Running", appIs: runs, side: "ports: [{containerPort: 8080}], startupProbe: {tcpSocket: {port: 8080}}", sideIs: startsUpYet, files: map[string]string{"app.log": upstream, "side.log": "2026-03-02T10:00:04.000Z listening on :9090\n"}}, "found sibling-down certain", "called its own pod"},
		"a sibling that has started up": {
			smallPod{status: "phase: Running", appIs: runs, side: "ports: [{containerPort: 8080}], startupProbe: {httpGet: {port: 8080}}", sideIs: runs, files: map[string]string{"app.log": upstream}}, "found sibling-down certain", "called its own pod"},

		"a panic after warnings about a packet": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.000Z WARN metrics: write udp 10.8.7.19:46620->10.96.7.7:8125: write:" + refused + panics}}, "found app-crash likely", "index out of range"},
		"a panic after an error that had come for minutes": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:01:00.000Z ERROR cache: dial tcp 10.1.2.3:6379:" + refused + "2026-03-02T10:04:58.000Z ERROR cache: dial tcp 10.1.2.3:6379:" + refused + panics}}, "found app-crash likely", "index out of range"},
		"a panic some time after a warning": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:30.000Z WARN cache: dial tcp 10.1.2.3:6379:" + refused + "2026-03-02T10:04:45.000Z INFO tick\n" + panics}}, "found app-crash likely", "index out of range"},
		"a panic right after an error": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:59.000Z ERROR cache: dial tcp 10.1.2.3:6379:" + refused + panics}}, "found dependency-down certain", "10.1.2.3:6379"},
		"a panic right after a warning": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:58.000Z WARN cache: dial tcp 10.1.2.3:6379:" + refused + "2026-03-02T10:04:59.000Z INFO tick\n" + panics}}, "found dependency-down certain", "10.1.2.3:6379"},
		"a panic some time after an error": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:04:30.000Z ERROR cache: dial tcp 10.1.2.3:6379:" + refused + "2026-03-02T10:04:45.000Z INFO tick\n" + panics}}, "found dependency-down certain", "10.1.2.3:6379"},
		"a panic about the call after minutes": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:01:00.000Z WARN cache: dial tcp 10.1.2.3:6379:" + refused + "2026-03-02T10:04:58.000Z WARN cache: dial tcp 10.1.2.3:6379:" + refused + "FATAL no connection to the cache\n"}}, "found dependency-down certain", "10.1.2.3:6379"},
		"a call that comes again after the error": {
			smallPod{status: "phase: Running", appIs: failed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:01:00.000Z WARN cache: dial tcp 10.1.2.3:6379:" + refused + "2026-03-02T10:04:50.000Z ERROR index out of range\n2026-03-02T10:04:59.000Z WARN cache: dial tcp 10.1.2.3:6379:" + refused}}, "found dependency-down certain", "10.1.2.3:6379"},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFolder(t, folderOf(t, c.pod.texts()))
			got := key(r)
			if len(r.Findings) > 0 {
				got += " " + string(r.Findings[0].Confidence)
			}
			text, none := strings.CutPrefix(c.says, "!")
			if len(r.Findings) > 1 && r.Findings[0].Code == "job-never-ends" {
				t.Errorf("%d findings", len(r.Findings))
			}
			if c.want != "" && got != c.want || strings.Contains(r.Sentence, text) == none {
				t.Errorf("%s: %s\nwant %s: %s", got, r.Sentence, c.want, c.says)
			}
		})
	}
}
