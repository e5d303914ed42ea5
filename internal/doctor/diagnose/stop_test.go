package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// A stopCase is a pod whose kubelet was told to stop it at 13:45:32Z, as far as the case shows it, three days after its
// start. Times of the object are of 2026-11-28.
type stopCase struct {
	name    string
	proxy   string // the container
	native  bool
	grace   int    // seconds, of a pod in deletion; 0: its object has no deletion
	meta    string // annotations, in the flow form
	script  string // of the application; empty: its image's command
	policy  string // empty: Always
	inits   string // arguments of the mesh's init container, in the flow form; empty: those that capture all
	app, px string // the states: "" runs, or HH:MM:SS/EXIT
	status  string // further fields of the status
	events  []string
	logs    map[string]string
	want    string // what the diagnosis has first; with "no " before it: what it has nowhere
	also    string // a code that it has behind that; with "no " before it: that it has nowhere
}

const stopPod = `apiVersion: v1
kind: Pod
metadata:
  {name: web-1, namespace: shop, creationTimestamp: "2026-11-25T06:12:00Z"%s, annotations: {%s}}
spec:
  restartPolicy: %s
  initContainers:
  - {name: %s, image: mesh/init:1, args: [%s]}
%s  containers:
  - {name: app, image: example/web:5%s}
%sstatus:
  phase: Running
  startTime: "2026-11-25T06:12:00Z"
%s  initContainerStatuses:
  - {name: %s, restartCount: 0, ready: true, state: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-11-25T06:12:03Z", finishedAt: "2026-11-25T06:12:03Z"}}}
%s  containerStatuses:
  - {name: app, restartCount: 0, %s}
%s`

// meshInit has the init container of each proxy, and arguments with which it captures all.
var meshInit = map[string][2]string{
	"istio-proxy":   {"istio-init", `istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, "", -b, "*", -d, "15090,15021,15020"`},
	"linkerd-proxy": {"linkerd-init", `--incoming-proxy-port, "4143", --outgoing-proxy-port, "4140", --proxy-uid, "2102"`},
	"kuma-sidecar":  {"kuma-init", `--redirect-outbound-port, "15001", --redirect-inbound=true, --kuma-dp-user, "5678"`},
}

func (c stopCase) write(t *testing.T, folder string) {
	state := func(text string) string {
		if text == "" {
			return `ready: true, started: true, state: {running: {startedAt: "2026-11-25T06:12:05Z"}}`
		}
		at, exit, _ := strings.Cut(text, "/")
		reason := map[bool]string{true: "Completed", false: "Error"}[exit == "0"]
		return fmt.Sprintf(`ready: false, started: false, state: {terminated: {exitCode: %s, reason: %s, startedAt: "2026-11-25T06:12:05Z", finishedAt: "2026-11-28T%sZ"}}`, exit, reason, at)
	}
	deleted, policy, script := "", "Always", ""
	if c.grace > 0 {
		minute, second := 45+(32+c.grace)/60, (32+c.grace)%60
		deleted = fmt.Sprintf(`, deletionTimestamp: "2026-11-28T13:%d:%02dZ", deletionGracePeriodSeconds: %d`, minute, second, c.grace)
	}
	if c.policy != "" {
		policy = c.policy
	}
	if c.script != "" {
		script = fmt.Sprintf(", command: [sh, -c, %q]", c.script)
	}
	init, args := "prepare", "run"
	if known, is := meshInit[c.proxy]; is {
		init, args = known[0], known[1]
	}
	if c.inits != "" {
		args = c.inits
	}
	spec, status := fmt.Sprintf("  - {name: %s, image: mesh/proxy:1%s}\n", c.proxy, map[bool]string{true: ", restartPolicy: Always"}[c.native]), fmt.Sprintf("  - {name: %s, restartCount: 0, %s}\n", c.proxy, state(c.px))
	if c.proxy == "" {
		spec, status = "", ""
	}
	specs, statuses := [2]string{"", spec}, [2]string{"", status}
	if c.native {
		specs, statuses = [2]string{spec, ""}, [2]string{status, ""}
	}
	files := map[string]string{"pod.yaml": fmt.Sprintf(stopPod, deleted, c.meta, policy, init, args, specs[0], script, specs[1], c.status, init, statuses[0], state(c.app), statuses[1])}
	for container, text := range c.logs {
		files[container+".log"] = text
	}
	for i, e := range c.events {
		at, rest, _ := strings.Cut(e, " ")
		reason, rest, _ := strings.Cut(rest, " ")
		container, message, _ := strings.Cut(rest, " ")
		files["events.yaml"] += fmt.Sprintf(`---
{apiVersion: v1, kind: Event, metadata: {name: e%d, namespace: shop}, involvedObject: {kind: Pod, namespace: shop, name: web-1, fieldPath: "spec.containers{%s}"}, reason: %s, message: %q, count: 1, source: {component: kubelet}, firstTimestamp: "2026-11-28T%sZ", lastTimestamp: "2026-11-28T%sZ"}
`, i, container, reason, message, at, at)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	istioStops   = "2026-11-28T13:45:32.611340Z\tinfo\tAgent draining Proxy for termination\n2026-11-28T13:45:37.700011Z\tinfo\tEnvoy aborted normally\n"
	linkerdStops = "[285812.003101s]  INFO ThreadId(01) linkerd2_proxy::signal: received SIGTERM, starting shutdown\n"
	allCaptured  = "traffic.sidecar.istio.io/includeOutboundIPRanges: \"*\""
)

// stopCases has pods whose stop went wrong, since the proxy left before the application made its last calls.
var stopCases = []stopCase{
	{
		name: "a log in another zone than UTC, of which only its stop line can say", proxy: "istio-proxy", grace: 60, px: "13:45:38/0",
		logs: map[string]string{
			"app": "2026-11-28 14:45:29,100 INFO  [order-7] o.s.batch.Step: 500 rows\n2026-11-28 14:45:32,702 INFO  [SpringApplicationShutdownHook] o.s.b.w.e.tomcat.GracefulShutdown: Commencing graceful shutdown. Waiting for active requests to complete\n" +
				"2026-11-28 14:45:41,040 ERROR [order-7] c.e.Orders: java.net.ConnectException: Connection refused: ledger.shop/10.96.4.1:8443\n",
			"istio-proxy": istioStops,
		},
		want: "shutdown-race app",
	},
	{
		name: "a log without times, whose place says when", proxy: "istio-proxy", grace: 60, px: "13:45:38/0", app: "13:45:49/0",
		logs: map[string]string{"app": "job 118 done\nReceived SIGTERM, finishing 1 job\njob 119: dial tcp 10.96.4.1:6379: connect: connection refused\nbye\n", "istio-proxy": istioStops},
		want: "shutdown-race app",
	},
	{
		name: "neither a stop line nor times in the log of the application, which still runs", proxy: "istio-proxy", grace: 300, px: "13:45:38/0",
		logs: map[string]string{"app": "job 117 done\njob 118 done\njob 119: dial tcp 10.96.4.1:6379: connect: connection refused\njob 120: dial tcp 10.96.4.1:6379: connect: connection refused\n", "istio-proxy": istioStops},
		want: "shutdown-race app",
	},
	{
		name: "Linkerd and a worker in Ruby", proxy: "linkerd-proxy", grace: 90, px: "13:45:33/0",
		logs: map[string]string{"app": "2026-11-28T13:45:32.210Z pid=1 tid=2vt INFO: Received TERM, pausing to allow jobs to finish...\n2026-11-28T13:45:44.871Z pid=1 tid=3ab class=SyncJob WARN: Errno::ECONNREFUSED: Connection refused - connect(2) for \"crm.sales\" port 8080\n", "linkerd-proxy": linkerdStops},
		want: "shutdown-race app",
	},
	{
		name: "only the events say that the pod is stopped: the object is older", proxy: "kuma-sidecar",
		events: []string{"13:45:32 Killing app Stopping container app", "13:45:32 Killing kuma-sidecar Stopping container kuma-sidecar"},
		logs: map[string]string{
			"app":          `{"time":"2026-11-28T13:45:48.117Z","level":"ERROR","msg":"flush","err":"dial tcp 10.96.4.1:5672: connect: connection refused"}` + "\n",
			"kuma-sidecar": "2026-11-28T13:45:32.144Z\tINFO\tkuma-dp.run\tRECEIVED signal, stopping dataplane\n2026-11-28T13:45:43.020Z\tINFO\tkuma-dp.run\tgraceful shutdown complete\n",
		},
		want: "shutdown-race app",
	},
	{
		name: "the status does not say yet that the proxy has left", proxy: "istio-proxy", grace: 60,
		logs: map[string]string{
			"app":         "info: Microsoft.Hosting.Lifetime[0]\n      Application is shutting down...\nfail: Quotes.Publisher[0]\n      System.Net.Http.HttpRequestException: Connection refused (quotes-bus.trading:8080)\n",
			"istio-proxy": istioStops,
		},
		want: "shutdown-race app",
	},
	{
		name: "evicted by a drain of its node, and then the race", proxy: "istio-proxy", grace: 60, px: "13:45:38/0",
		status: "  conditions:\n  - {type: DisruptionTarget, status: \"True\", reason: EvictionByEvictionAPI, message: \"Eviction API: evicting\", lastTransitionTime: \"2026-11-28T13:45:32Z\"}\n",
		logs:   map[string]string{"app": "2026-11-28T13:45:46Z ERROR redis: connection to 10.96.4.1:6379 failed: Connection refused\n", "istio-proxy": istioStops},
		want:   "shutdown-race app", also: "evicted",
	},
	{
		name: "a roll-out: both have ended, the application with a failure after its proxy", proxy: "istio-proxy", grace: 30, px: "13:45:38/0", app: "13:45:51/1",
		logs: map[string]string{
			"app":         "2026-11-28T13:45:32.650814Z SIGTERM received: draining\n2026-11-28T13:45:50.990112Z thread 'main' panicked at src/main.rs:88:10: commit offset: Connect { source: Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" } } to 10.96.4.1:9092\n",
			"istio-proxy": istioStops,
		},
		want: "shutdown-race app",
	},
	{
		name: "a Job whose script tells Istio's proxy to end before its last call", proxy: "istio-proxy", policy: "Never", px: "13:45:38/0", app: "13:45:39/7",
		script: "set -e; python -m etl; curl -sf -XPOST localhost:15020/quitquitquit; curl -sf http://pushgateway.mon:9091/metrics/job/etl --data-binary @m",
		logs:   map[string]string{"app": "rows=8812\nOKcurl: (7) Failed to connect to pushgateway.mon port 9091 after 1 ms: Couldn't connect to server\n", "istio-proxy": "2026-11-28T13:45:37.600011Z\tinfo\thandling /quitquitquit, notifying pilot-agent to exit\n" + istioStops},
		want:   "shutdown-race app",
	},
	{
		name: "the same for Linkerd's, with a program of which nothing is known", proxy: "linkerd-proxy", policy: "OnFailure", px: "13:45:38/0", app: "13:45:40/1",
		script: "/bin/import && wget -qO- --post-data= http://127.0.0.1:4191/shutdown && /bin/notify --channel ops",
		logs:   map[string]string{"app": "2026-11-28T13:45:36Z import: done\n2026-11-28T13:45:39Z notify: Post \"http://chat.ops/hooks/1\": dial tcp 10.96.9.9:80: connect: connection refused\n", "linkerd-proxy": "[  5.003101s]  INFO ThreadId(01) linkerd_app: Shutdown requested via admin endpoint\n"},
		want:   "shutdown-race app",
	},
	{
		name: "a helper for a database is told to end before the last query", proxy: "cloud-sql-proxy", policy: "Never", px: "13:45:38/0", app: "13:45:39/2",
		script: "psql -h 127.0.0.1 -f load.sql; curl -X POST http://localhost:9091/quitquitquit; psql -h 127.0.0.1 -c 'ANALYZE'",
		logs:   map[string]string{"app": "COPY 8812\npsql: error: connection to server at \"127.0.0.1\", port 5432 failed: Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?\n", "cloud-sql-proxy": "2026/11/28 13:45:37 Received shutdown request via quitquitquit\n"},
		want:   "shutdown-race app",
	},
	{
		name: "who ended the proxy of a Job is only in its log", proxy: "istio-proxy", policy: "Never", px: "13:45:38/0", app: "13:45:41/1",
		logs: map[string]string{"app": "2026-11-28T13:45:36Z INFO export finished\n2026-11-28T13:45:40Z ERROR audit: dial tcp 10.96.4.1:8080: connect: connection refused\n", "istio-proxy": "2026-11-28T13:45:37.600011Z\tinfo\thandling /quitquitquit, notifying pilot-agent to exit\n" + istioStops},
		want: "shutdown-race app",
	},
	{
		name: "the application left first, and its proxy still took requests for it", proxy: "istio-proxy", grace: 60, app: "13:45:32/2",
		logs: map[string]string{"istio-proxy": "2026-11-28T13:45:32.310517Z\tinfo\tAgent draining Proxy for termination\n" +
			`[2026-11-28T13:45:33.402Z] "GET /v1/stock HTTP/1.1" 503 UF upstream_reset_before_response_started{remote_connection_failure,delayed_connect_error:_111} - "delayed_connect_error:_111" 0 150 0 - "-" "curl/8" "5be4f1f0" "stock:9000" "10.36.5.140:9000" inbound|9000|| 127.0.0.6:38925 10.36.5.140:9000 10.36.9.22:51144 outbound_.9000_._.stock.shop.svc.cluster.local default` + "\n"},
		want: "shutdown-race app",
	},
	{
		name: "lines without times after one that has a time", proxy: "istio-proxy", grace: 60, px: "13:45:38/0", app: "13:45:52/0",
		logs: map[string]string{"app": "2026-11-28T13:45:30.118Z batch 118 sent\nworker: Warm shutdown (MainProcess)\nConnectionRefusedError: [Errno 111] Connection refused: ('ledger.shop', 8443)\n", "istio-proxy": istioStops},
		want: "shutdown-race app",
	},
	{
		name: "a hook before the stop keeps the application, and its proxy leaves at once", proxy: "istio-proxy", grace: 60, px: "13:45:38/0", script: "exec web",
		events: []string{"13:45:32 Killing app Stopping container app", "13:45:32 Killing istio-proxy Stopping container istio-proxy"},
		logs:   map[string]string{"app": "2026/11/28 13:45:43 [error] 29#29: *5 connect() failed (111: Connection refused) while connecting to upstream, client: 10.0.0.7, server: _, request: \"GET /cart HTTP/1.1\", upstream: \"http://10.96.4.1:8080/cart\"\n", "istio-proxy": istioStops},
		want:   "shutdown-race app",
	},
}

// tidyStops has pods whose stop was in order, or that failed for another reason.
var tidyStops = []stopCase{
	{
		name: "the application left first, and its proxy after it", proxy: "istio-proxy", grace: 60, app: "13:45:35/0", px: "13:45:38/0",
		logs: map[string]string{"app": "2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:34.900Z bye\n", "istio-proxy": istioStops},
		want: "nothing",
	},
	{
		name: "the application left first, and a call was refused before that", proxy: "istio-proxy", grace: 60, app: "13:45:35/0", px: "13:45:38/0",
		logs: map[string]string{"app": "2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:33.100Z WARN last flush: dial tcp 10.96.4.1:4317: connect: connection refused\n2026-11-28T13:45:34.900Z bye\n", "istio-proxy": istioStops},
		want: "no shutdown-race",
	},
	{
		name: "the application left first, by a log without times", proxy: "istio-proxy", grace: 60, app: "13:45:35/0", px: "13:45:38/0",
		logs: map[string]string{"app": "up\njob 118 done\nReceived SIGTERM, finishing\nflush: dial tcp 10.96.4.1:6379: connect: connection refused\n", "istio-proxy": istioStops},
		want: "no shutdown-race",
	},
	{
		name: "nothing says in which zone a log is, nor that its program stops", proxy: "istio-proxy", grace: 60, px: "13:45:38/0",
		logs: map[string]string{"app": "2026-11-28 18:45:20,100 job 118: dial tcp 10.96.4.1:6379: connect: connection refused\n2026-11-28 18:45:28,100 job 119 done\n", "istio-proxy": istioStops},
		want: "undecided",
	},
	{
		name: "a request that failed before the stop", proxy: "istio-proxy", grace: 60, app: "13:45:35/0",
		logs: map[string]string{"istio-proxy": `[2026-11-28T13:44:33.402Z] "GET /v1/stock HTTP/1.1" 503 UF upstream_reset_before_response_started{remote_connection_failure,delayed_connect_error:_111} - "delayed_connect_error:_111" 0 150 0 - "-" "curl/8" "5be4f1f0" "stock:9000" "10.36.5.140:9000" inbound|9000|| 127.0.0.6:38925 10.36.5.140:9000 10.36.9.22:51144 outbound_.9000_._.stock.shop.svc.cluster.local default` + "\n" + istioStops},
		want: "no shutdown-race",
	},
	{
		name: "a Job that tells its proxy to end when it is done, and takes a second for its own end", proxy: "istio-proxy", policy: "Never", px: "13:45:37/0", app: "13:45:39/0",
		script: "python -m etl; curl -XPOST localhost:15020/quitquitquit || true; sleep 2; exit 0",
		logs:   map[string]string{"app": "rows=8812\nOK\n", "istio-proxy": istioStops},
		want:   "nothing",
	},
	{
		name: "each container is killed by its probe", proxy: "istio-proxy", app: "13:45:39/143", px: "13:45:38/143",
		events: []string{"13:45:32 Killing app Container app failed liveness probe, will be restarted", "13:45:32 Killing istio-proxy Container istio-proxy failed liveness probe, will be restarted"},
		logs:   map[string]string{"app": "2026-11-28T13:45:38.700Z dial tcp 10.96.4.1:6379: connect: connection refused\n"},
		want:   "no shutdown-race",
	},
	{
		name: "a native sidecar is stopped after the application", proxy: "istio-proxy", native: true, grace: 60, app: "13:45:40/0", px: "13:45:43/0",
		logs: map[string]string{"app": "2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:33.100Z WARN dial tcp 10.96.4.1:4317: connect: connection refused\n", "istio-proxy": "2026-11-28T13:45:40.611340Z\tinfo\tAgent draining Proxy for termination\n"},
		want: "no shutdown-race",
	},
	{
		name: "a call of long before", proxy: "istio-proxy", grace: 60, app: "13:45:50/0", px: "13:45:38/0",
		logs: map[string]string{"app": "2026-11-28T11:02:10.100Z WARN dial tcp 10.96.4.1:4317: connect: connection refused\n2026-11-28T11:02:11.100Z INFO connected to 10.96.4.1:4317\n2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:49.900Z bye\n", "istio-proxy": istioStops},
		want: "nothing",
	},
	{
		name: "the proxy left first, and nothing failed", proxy: "istio-proxy", grace: 60, app: "13:45:50/0", px: "13:45:38/0",
		logs: map[string]string{"app": "2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:49.900Z bye\n", "istio-proxy": istioStops},
		want: "nothing",
	},
	{
		name: "a refused call in a log without times stands before the stop line", proxy: "istio-proxy", grace: 60, app: "13:45:50/0", px: "13:45:38/0",
		logs: map[string]string{"app": "up\ndial tcp 10.96.4.1:6379: connect: connection refused\nconnected to 10.96.4.1:6379\njob 118 done\nReceived SIGTERM, finishing\nbye\n", "istio-proxy": istioStops},
		want: "no shutdown-race",
	},
	{
		name: "a call that is not captured", proxy: "istio-proxy", grace: 60, px: "13:45:38/0", inits: meshInit["istio-proxy"][1] + `, -o, "8125"`,
		logs: map[string]string{"app": "2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:41.100Z metrics: dial tcp 10.96.4.1:8125: connect: connection refused\n", "istio-proxy": istioStops},
		want: "no shutdown-race",
	},
	{
		name: "a call to itself at its end", proxy: "istio-proxy", grace: 60, px: "13:45:38/0", app: "13:45:42/0",
		logs: map[string]string{"app": "2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:41.100Z WARN closing admin client: dial tcp 127.0.0.1:8005: connect: connection refused\n", "istio-proxy": istioStops},
		want: "no shutdown-race",
	},
	{
		name: "a Job whose script is in order", proxy: "istio-proxy", policy: "Never", app: "13:45:37/0", px: "13:45:38/0",
		script: "python -m etl; curl http://pushgateway.mon:9091/metrics/job/etl --data-binary @m; curl -XPOST localhost:15020/quitquitquit",
		logs:   map[string]string{"app": "rows=8812\nOK\n", "istio-proxy": istioStops},
		want:   "nothing",
	},
	{
		name: "a Job whose destination was down before it told the proxy to end", proxy: "istio-proxy", policy: "Never", app: "13:45:39/7", px: "13:45:38/0",
		script: "trap 'curl -XPOST localhost:15020/quitquitquit' EXIT; python -m etl; curl -f http://pushgateway.mon:9091/metrics/job/etl --data-binary @m",
		logs:   map[string]string{"app": "2026-11-28T13:45:30Z rows=8812\n2026-11-28T13:45:31Z curl: (22) The requested URL returned error: 503\n", "istio-proxy": istioStops},
		want:   "no shutdown-race",
	},
	{
		name: "a proxy that ran out of memory is not told to stop", proxy: "istio-proxy", px: "13:45:38/137",
		logs: map[string]string{"app": "2026-11-28T13:45:41.100Z dial tcp 10.96.4.1:6379: connect: connection refused\n"},
		want: "no shutdown-race",
	},
	{
		name: "an error of long ago is printed again at the end", proxy: "istio-proxy", grace: 60, px: "13:45:38/0", app: "13:45:42/0",
		logs: map[string]string{"app": "2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:41.100Z summary: 1 failed delivery, last error (2026-11-26T08:00:00Z): dial tcp 10.96.4.1:6379: connect: connection refused\n", "istio-proxy": istioStops},
		want: "no shutdown-race",
	},
	{
		name: "the application had crashed an hour before its pod was deleted", proxy: "kuma-sidecar", grace: 30, app: "12:45:32/3",
		logs: map[string]string{"app": "2026-11-28T12:45:32.100Z fatal: relation \"orders\" does not exist\n"},
		want: "app-crash app",
	},
	{
		name: "it fails when it is told to end", proxy: "kuma-sidecar", grace: 30, app: "13:45:39/3", px: "13:45:40/0",
		logs: map[string]string{"app": "2026-11-28T13:45:38.100Z fatal: relation \"orders\" does not exist\n"},
		want: "nothing",
	},
	{
		name: "its proxy had ended an hour before", proxy: "linkerd-proxy", grace: 30, px: "12:40:00/0", app: "13:45:35/0",
		logs: map[string]string{"app": "2026-11-28T13:10:00.100Z dial tcp 10.96.4.1:6379: connect: connection refused\n"},
		want: "proxy-died linkerd-proxy", also: "no shutdown-race",
	},
	{
		name: "the only event is of the container that still ran", proxy: "linkerd-proxy", grace: 60, app: "13:45:32/3",
		events: []string{"13:45:34 Killing linkerd-proxy Stopping container linkerd-proxy"},
		logs:   map[string]string{"app": "2026-11-28T13:45:32.100Z fatal: relation \"orders\" does not exist\n"},
		want:   "app-crash app",
	},
	{
		name: "a sidecar fails while the application ends", proxy: "linkerd-proxy", native: true, grace: 60, app: "13:45:59/0", px: "13:45:45/101",
		logs: map[string]string{"linkerd-proxy": "thread 'main' panicked at linkerd/app/core/src/control.rs:11:5\n"},
		want: "proxy-died linkerd-proxy",
	},
	{
		name: "evicted, and a refused flush of a pod without a proxy", grace: 60,
		status: "  conditions:\n  - {type: DisruptionTarget, status: \"True\", reason: TerminationByKubelet, message: \"Pod was terminated in response to imminent node shutdown.\", lastTransitionTime: \"2026-11-28T13:45:32Z\"}\n",
		logs:   map[string]string{"app": "2026-11-28T13:45:40.010Z level=WARN msg=\"last flush failed\" err=\"dial tcp 10.44.9.3:4317: connect: connection refused\"\n2026-11-28T13:45:40.011Z level=INFO msg=bye\n"},
		want:   "evicted", also: "no dependency-down",
	},
	{
		name: "the same in a pod that ended, by a log without times", app: "13:45:34/0",
		status: "  reason: Terminated\n  message: Pod was terminated in response to imminent node shutdown.\n",
		logs:   map[string]string{"app": "caught SIGTERM\nflush: dial tcp 10.44.9.3:4317: connect: connection refused\n"},
		want:   "evicted", also: "no dependency-down",
	},
	{
		name: "a pod without a proxy is deleted, and its last call is refused", grace: 60,
		logs: map[string]string{"app": "2026-11-28T13:45:32.911Z signal received signal=terminated\n2026-11-28T13:45:33.010Z WARN last flush failed: dial tcp 10.44.9.3:4317: connect: connection refused\n"},
		want: "no shutdown-race",
	},
	{
		name: "a container is killed by its probe, and the pod goes on", proxy: "istio-proxy", app: "13:45:39/143",
		events: []string{"13:45:32 Unhealthy app Liveness probe failed: context deadline exceeded", "13:45:32 Killing app Container app failed liveness probe, will be restarted"},
		logs:   map[string]string{"app": "2026-11-28T13:45:32.700Z received SIGTERM\n2026-11-28T13:45:37.100Z dial tcp 10.96.4.1:6379: connect: connection refused\n"},
		want:   "no shutdown-race",
	},
}

// All that the evidence has of a stop decides who left first.
func TestStops(t *testing.T) {
	right, of := 0, 0
	for _, c := range slices.Concat(stopCases, tidyStops) {
		t.Run(c.name, func(t *testing.T) {
			of++
			folder := t.TempDir()
			c.write(t, folder)
			r := diagnoseFolder(t, folder)
			if wrong := c.compare(r); wrong != "" {
				t.Errorf("%s\n%s", wrong, text(r))
				return
			}
			right++
		})
	}
	t.Logf("%d of %d are right", right, of)
}

func (c stopCase) compare(r result.Report) string {
	var codes []string
	for _, f := range r.Findings {
		codes = append(codes, string(f.Code))
	}
	first := strings.TrimSuffix(string(r.Verdict), " ")
	if len(r.Findings) > 0 {
		first = strings.TrimSpace(string(r.Findings[0].Code) + " " + r.Findings[0].Container)
	}
	for _, want := range []string{c.want, c.also} {
		unwanted, not := strings.CutPrefix(want, "no ")
		switch {
		case want == "", want == "undecided" && r.Verdict == result.Undecided, not && !slices.Contains(codes, unwanted), !not && want == c.want && first == want && r.Verdict != result.Undecided, !not && want == c.also && slices.Contains(codes, want):
		default:
			return fmt.Sprintf("first %q of %q, want %q", first, codes, want)
		}
	}
	return ""
}

// text returns the findings of a report for a message.
func text(r result.Report) (out string) {
	out = fmt.Sprintf("%s: %s\n", r.Verdict, r.Sentence)
	for _, f := range r.Findings {
		out += fmt.Sprintf("  %s %s %s: %s\n    do: %s\n", f.Code, f.Confidence, f.Container, f.Sentence, f.Remedy.Sentence)
	}
	return out
}
