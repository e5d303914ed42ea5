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
