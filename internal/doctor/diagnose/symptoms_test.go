package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// An application whose only call was refused before its proxy listened, and which is not ready since then, lost a race that
// goes on: what its probe gets is a consequence. The address may stand in fields of an object alone. A call of another time,
// or to a port that is left out, is no race.
func TestARaceThatGoesOn(t *testing.T) {
	const (
		spec  = `initContainers: [{name: istio-init, args: [istio-iptables, -p, "15001", -u, "1337", -i, "*", -o, "22"]}], containers: [{name: web, readinessProbe: {httpGet: {path: /up, port: 8080}}}, {name: istio-proxy}]`
		ready = "2026-03-02T13:00:14.000000Z\tinfo\tEnvoy proxy is ready\n"
		call  = `{"level":50,"time":"2026-03-02T13:00:11.700Z","msg":"no settings, not ready","err":{"cause":{"errno":-111,"code":"ECONNREFUSED","syscall":"connect","address":"10.96.4.4","port":8013}}}` + "\n"
		probe = "---\n" + `{apiVersion: v1, kind: Event, reason: Unhealthy, type: Warning, count: 90, message: "Readiness probe failed: HTTP probe failed with statuscode: 503", metadata: {name: web-1.1, namespace: shop}, involvedObject: {kind: Pod, name: web-1, namespace: shop, uid: u1, fieldPath: "spec.containers{web}"}, firstTimestamp: "2026-03-02T13:00:24Z", lastTimestamp: "2026-03-02T13:30:14Z", source: {component: kubelet}}` + "\n"
	)
	status := statusWith("", "web", strings.Replace(running, "ready: true", "ready: false", 1), "istio-proxy", running)
	with := func(text string) map[string]string {
		return map[string]string{"web.log": text, "istio-proxy.log": ready, "events.yaml": probe}
	}
	checkCauses(t, map[string]cause{
		"once, before the proxy":     {spec: spec, status: status, files: with(call), want: "found startup-race", sure: result.Certain, says: "was refused, and goes on"},
		"the order of the fields":    {spec: spec, status: status, files: with(strings.Replace(call, `"address":"10.96.4.4","port":8013`, `"port":8013,"address":"10.96.4.4"`, 1)), want: "found startup-race", sure: result.Certain},
		"of a port that is left out": {spec: strings.Replace(spec, `"22"`, `"8013"`, 1), status: status, files: with(call), want: "found dependency-down", sure: result.Certain},
		"when the proxy was ready":   {spec: spec, status: status, files: with(strings.Replace(call, "13:00:11", "13:10:11", 1)), want: "found probe-fails"},
		"no call":                    {spec: spec, status: status, files: with(strings.Replace(call, "ECONNREFUSED", "EBADF", 1)), want: "found probe-fails"},
	})
}

// A race about a name quotes the setting by which the proxy answers DNS queries, and when it began to; the DNS of the
// cluster has no part in it.
func TestANameThatTheProxyShouldAnswer(t *testing.T) {
	const (
		spec = `initContainers: [{name: kuma-init, args: [--redirect-all-dns-traffic, --redirect-outbound-port, "15001"]}], containers: [{name: web}, {name: kuma-sidecar}]`
		log  = "2026-03-02T13:00:13.946Z\tINFO\tkuma-dp.run.dns-server\tstarting DNS Server (coredns)\n[2026-03-02 13:00:14.000][1][info][config] all dependencies initialized. starting workers\n"
		call = "2026-03-02T13:00:11.700Z getaddrinfo EAI_AGAIN redis.shop\n"
	)
	tell(t, map[string]episode{
		"by Kuma": {
			files: map[string]string{
				"pod.yaml":         "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, creationTimestamp: \"2026-03-02T13:00:08Z\"}\nspec: {" + spec + "}\nstatus: {phase: Running, " + statusWith(isReady, "web", restarted, "kuma-sidecar", running) + "}\n",
				"web.previous.log": call, "web.log": "fine\n", "kuma-sidecar.log": log,
			},
			want: "found startup-race", says: `kuma-init has --redirect-all-dns-traffic\n.*starting DNS Server`, not: `cluster's DNS|kube-dns`,
		},
	})
}

// A run that ends since no try got an address for a name ended by that, whatever its last words: they say that it ends, and
// not why. The name is in the line, or in a URL just before. A reason of its own, a success, or other work between is another
// cause, and then no finding says that no call failed just before the end.
func TestNamesWithoutAnAddressAtTheEnd(t *testing.T) {
	const (
		spec = "containers: [{name: web}]"
		warn = "2026-03-02T13:00:11.%s00Z WARN try %s of https://feeds.paper.example/v1: %s\n"
		last = "2026-03-02T13:00:11.900Z CRITICAL no page for today, exiting\n"
	)
	tries := func(says string) (all string) {
		for _, n := range []string{"1", "3", "5"} {
			all += strings.NewReplacer("%s00Z", n+"00Z", "try %s", "try "+n, "%s", says).Replace(warn)
		}
		return all
	}
	slow := strings.NewReplacer("13:00:11.1", "13:00:20.1", "13:00:11.3", "13:00:31.3", "13:00:11.5", "13:00:42.5", "13:00:11.6", "13:00:43.6", "13:00:11.9", "13:00:54.9")
	status := statusWith("", "web", strings.Replace(endedOnce, "13:00:12", "13:00:55", 1))
	ends := func(text string) map[string]string { return map[string]string{"web.log": slow.Replace(text)} }
	again := "[Errno -3] Temporary failure in name resolution"
	trace := "Traceback (most recent call last):\n  File \"/app/run.py\", line 9, in main\n    f(socket.getaddrinfo(host, 443))\nsocket.gaierror: [Errno -3] Try again\n"
	named := "web could not resolve the name feeds.paper.example"
	checkCauses(t, map[string]cause{
		"Python":                  {spec: spec, status: status, files: ends(tries(again) + last), want: "found name-not-resolved", says: named},
		"Go":                      {spec: spec, status: status, files: ends(tries("dial tcp: lookup feeds.paper.example on 10.96.0.10:53: server misbehaving") + last), want: "found name-not-resolved", says: named},
		"Java":                    {spec: spec, status: status, files: ends(tries("java.net.UnknownHostException: feeds.paper.example: Name or service not known") + strings.Replace(last, "exiting", "terminating", 1)), want: "found name-not-resolved", says: named},
		"the trace alone":         {spec: spec, status: status, files: ends("2026-03-02T13:00:11.100Z INFO https://other.example/a done\n2026-03-02T13:00:11.200Z INFO one\n2026-03-02T13:00:11.200Z INFO two\n2026-03-02T13:00:11.300Z INFO three\n2026-03-02T13:00:11.300Z INFO https://feeds.paper.example/v1\n2026-03-02T13:00:11.900Z ERROR " + trace), want: "found name-not-resolved", says: "web could not resolve "},
		"a URL just before":       {spec: spec, status: status, files: ends("2026-03-02T13:00:11.100Z INFO https://other.example/a done\n" + strings.Repeat("2026-03-02T13:00:11.200Z INFO one\n", 5) + "2026-03-02T13:00:11.500Z INFO get https://feeds.paper.example/v1\n2026-03-02T13:00:11.900Z FATAL getaddrinfo: Temporary failure in name resolution\n"), want: "found name-not-resolved", says: named},
		"and a trace":             {spec: spec, status: status, files: ends(tries(again) + strings.Replace(last, ", exiting", "", 1) + trace), want: "found name-not-resolved", says: named},
		"giving up":               {spec: spec, status: status, files: ends(tries(again) + "2026-03-02T13:00:11.900Z ERROR no feed after 3 attempts\n"), want: "found name-not-resolved", says: named},
		"a reason of its own":     {spec: spec, status: status, files: ends(tries(again) + "2026-03-02T13:00:11.900Z FATAL environment variable FEED_KEY is not set, exiting\n"), want: "found app-crash", says: "FEED_KEY"},
		"a panic":                 {spec: spec, status: status, files: ends(tries(again) + "2026-03-02T13:00:11.900Z panic: index out of range [3]\n"), want: "found app-crash", says: "index out of range"},
		"it was resolved later":   {spec: spec, status: status, files: ends(tries(again) + "2026-03-02T13:00:11.600Z INFO connected to feeds.paper.example\n" + last), want: "found app-crash"},
		"one try, and other work": {spec: spec, status: status, files: ends("2026-03-02T13:00:11.100Z WARN https://feeds.paper.example/v1: " + again + "\n2026-03-02T13:00:11.5Z INFO next\n2026-03-02T13:00:11.900Z CRITICAL no table for orders, exiting\n"), want: "found app-crash"},
	})
	r := diagnoseFiles(t, map[string]string{"web.log": slow.Replace(tries(again) + "2026-03-02T13:00:11.900Z panic: index out of range [3]\n"), "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, creationTimestamp: \"2026-03-02T13:00:08Z\"}\nspec: {" + spec + "}\nstatus: {phase: Running, " + status + "}\n"})
	udp := diagnoseFiles(t, map[string]string{"web.log": "2026-03-02T13:00:50.100Z ERROR write udp 127.0.0.1:41207->127.0.0.1:8125: write: connection refused\n2026-03-02T13:00:54.900Z panic: index out of range [3]\n", "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, creationTimestamp: \"2026-03-02T13:00:08Z\"}\nspec: {" + spec + "}\nstatus: {phase: Running, " + status + "}\n"})
	if f := udp.Findings[0]; f.Code != "app-crash" || len(f.Against) > 0 {
		t.Errorf("a lost packet is held against %s: %v", f.Code, f.Against)
	}
	if f := r.Findings[0]; strings.HasPrefix(f.Disproof, "a failed call") || len(f.Against) == 0 {
		t.Errorf("a call failed in its last minute: it would be disproved by %s; against it: %v", f.Disproof, f.Against)
	}
}

// A helper that a third container asked to end, while its caller still worked, is a race of the stop. Who asked is named if
// only one can have asked, and the helper does not say that a signal ended it.
func TestAHelperThatAnotherContainerEnds(t *testing.T) {
	const (
		ask    = `{name: first, command: [sh, -c, "work; curl -X POST localhost:9091/quitquitquit"]}`
		job    = `restartPolicy: Never, containers: [` + ask + `, {name: web}, {name: cloud-sql-proxy, args: ["--port=5432", --quitquitquit]}]`
		worked = "2026-03-02T13:00:11.000Z INFO part 1\n2026-03-02T13:20:15.000Z ERROR dial tcp 127.0.0.1:5432: connect: connection refused\n"
		quit   = "2026/03/02 13:00:10 Listening on 127.0.0.1:5432\n2026/03/02 13:20:12 /quitquitquit received request. Shutting down...\n"
		signal = "2026/03/02 13:00:10 Listening on 127.0.0.1:5432\n2026/03/02 13:20:12 SIGTERM signal received. Shutting down...\n"
	)
	ended := func(exit, second string) string {
		return `{name: NAME, ready: false, restartCount: 0, state: {terminated: {exitCode: ` + exit + `, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:20:` + second + `Z"}}}`
	}
	status := statusWith("", "first", ended("0", "12"), "web", ended("1", "16"), "cloud-sql-proxy", ended("0", "12"))
	logs := func(helper string) map[string]string {
		return map[string]string{"web.log": worked, "cloud-sql-proxy.log": helper}
	}
	checkCauses(t, map[string]cause{
		"its log says so":       {spec: job, status: status, files: logs(quit), want: "found shutdown-race", sure: result.Certain, says: "first asked cloud-sql-proxy to end while web still called it"},
		"no log":                {spec: job, status: status, files: map[string]string{"web.log": worked}, want: "found shutdown-race", sure: result.Likely, says: "first asked cloud-sql-proxy to end"},
		"it only ends":          {spec: job, status: status, files: logs(strings.Replace(quit, "/quitquitquit received request. ", "", 1)), want: "found shutdown-race", sure: result.Likely, says: "first asked cloud-sql-proxy to end"},
		"a proxy of a mesh":     {spec: `initContainers: [{name: istio-init, args: [istio-iptables, -p, "15001", -u, "1337", -i, "*"]}], ` + strings.Replace(strings.Replace(job, "9091", "15020", 1), `{name: cloud-sql-proxy, args: ["--port=5432", --quitquitquit]}`, "{name: istio-proxy}", 1), status: strings.Replace(status, "cloud-sql-proxy", "istio-proxy", 1), files: map[string]string{"web.log": strings.Replace(worked, "127.0.0.1", "10.96.4.4", 1)}, want: "found shutdown-race", says: "first asked istio-proxy to end while web still called it"},
		"a signal":              {spec: job, status: status, files: logs(signal), want: "found sibling-down"},
		"none asks":             {spec: strings.Replace(job, "localhost:9091/quitquitquit", "localhost:9091/up", 1), status: status, files: logs(quit), want: "found sibling-down"},
		"two may have asked":    {spec: strings.Replace(job, ask, ask+", "+strings.Replace(ask, "first", "second", 1), 1), status: statusWith("", "first", ended("0", "12"), "second", ended("0", "12"), "web", ended("1", "16"), "cloud-sql-proxy", ended("0", "12")), files: logs(quit), want: "found sibling-down"},
		"the helper failed":     {spec: job, status: strings.Replace(status, "exitCode: 0, reason: Error, startedAt: \"2026-03-02T13:00:10Z\", finishedAt: \"2026-03-02T13:20:12Z\"}}}]", "exitCode: 2, reason: Error, startedAt: \"2026-03-02T13:00:10Z\", finishedAt: \"2026-03-02T13:20:12Z\"}}}]", 1), files: logs(quit), want: "found app-crash"},
		"who asks ended before": {spec: job, status: strings.Replace(status, "13:20:12", "13:10:12", 1), files: logs(quit), want: "found sibling-down"},
	})
}
