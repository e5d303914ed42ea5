package diagnose

import (
	"strings"
	"testing"
)

// A cause is a pod with what its diagnosis says first.
type cause struct {
	spec, meta string            // of the pod, in YAML's flow style, without the braces
	status     string            // of the pod, likewise
	files      map[string]string // logs and events
	want       string            // verdict and code
	sure       Confidence
	says       string // in the first sentence
	findings   int    // 0: any number
}

// Parts of pods: the node's times are of 2 March 2026, 13:00:10 is the start.
const (
	running   = `{name: NAME, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T13:00:10Z"}}}`
	restarted = `{name: NAME, ready: true, restartCount: 1, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:00:12Z"}}, state: {running: {startedAt: "2026-03-02T13:00:20Z"}}}`
	isReady   = `conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-03-02T13:00:25Z"}], `
)

func statusOf(conditions string, parts ...string) string {
	var all []string
	for i := 0; i < len(parts); i += 2 {
		all = append(all, strings.Replace(parts[i+1], "NAME", parts[i], 1))
	}
	return conditions + "containerStatuses: [" + strings.Join(all, ", ") + "]"
}

func checkCauses(t *testing.T, causes map[string]cause) {
	t.Helper()
	for name, c := range causes { // in any order: subtests
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, uid: u1, creationTimestamp: \"2026-03-02T13:00:08Z\"" + c.meta + "}\nspec: {" + c.spec + "}\nstatus: {phase: Running, " + c.status + "}\n"}
			for file, text := range c.files { // in any order
				files[file] = text
			}
			r := diagnoseFiles(t, files)
			if key(r) != c.want || !strings.Contains(r.Sentence, c.says) || c.sure != "" && (len(r.Findings) == 0 || r.Findings[0].Confidence != c.sure) || c.findings > 0 && len(r.Findings) != c.findings {
				t.Errorf("%s: %s, want %s %s: %q\n%+v", key(r), r.Sentence, c.want, c.sure, c.says, r.Findings)
			}
		})
	}
}

// The proxy's log says which destination it did not reach. It is a cause near the call, or the end, alone.
func TestWhatTheProxyDidNotReach(t *testing.T) {
	const (
		spec  = "containers: [{name: web}, {name: envoy}]"
		uf    = `[2026-03-02T14:00:01.000Z] "POST /v3 HTTP/1.1" 503 URX,UF 611 167 12 - "-" "web/9" "id" "acquirer.pay" "10.43.77.15:9443"` + "\n"
		l5d   = `[3591.5s]  WARN ThreadId(01) outbound:proxy{addr=10.96.8.1:8080}:service{ns=stock name=stock port=8080}:endpoint{addr=10.244.3.7:8080}: linkerd_reconnect: Failed to connect error=endpoint 10.244.3.7:8080: Connection refused (os error 111)` + "\n"
		bad   = "2026-03-02T14:00:02.000Z ERROR [502 Bad Gateway] during [GET] to [http://stock.stock:8080/v1]\n"
		body  = "2026-03-02T14:00:01.100Z ERR status=503 body=\"upstream connect error or disconnect/reset before headers. reset reason: remote connection failure\"\n"
		boom  = "2026-03-02T14:00:02.000Z panic: index out of range\n"
		stops = "2026-03-02T14:00:02.000Z ERROR the backend closed the connection\n"
	)
	well := statusOf(isReady, "web", running, "envoy", running)
	linkerd := statusOf(isReady, "web", running, "linkerd-proxy", running)
	ended := strings.Replace(strings.Replace(restarted, "13:00:12", "14:00:03", 1), "13:00:20", "14:00:05", 1)
	checkCauses(t, map[string]cause{
		"by Envoy":        {spec: spec, status: well, files: map[string]string{"web.log": body, "envoy.log": uf}, want: "found dependency-down", sure: Certain, says: "web called acquirer.pay (10.43.77.15:9443) through its proxy, which could not connect to it; the pod itself is healthy"},
		"at another time": {spec: spec, status: well, files: map[string]string{"web.log": body, "envoy.log": strings.Replace(uf, "14:00", "13:50", 1)}, want: "found dependency-down", says: "an address that the log does not name"},
		"by Linkerd":      {spec: "containers: [{name: web}, {name: linkerd-proxy}]", status: linkerd, files: map[string]string{"web.log": bad, "linkerd-proxy.log": l5d}, want: "found dependency-down", sure: Likely, says: "web called stock.stock:8080 through its proxy"},
		"502 by itself":   {spec: "containers: [{name: web}, {name: linkerd-proxy}]", status: linkerd, files: map[string]string{"web.log": bad, "linkerd-proxy.log": ""}, want: "nothing"},
		"another port":    {spec: "containers: [{name: web}, {name: linkerd-proxy}]", status: linkerd, files: map[string]string{"web.log": bad, "linkerd-proxy.log": strings.ReplaceAll(l5d, "8080", "9090")}, want: "nothing"},
		"near the end":    {spec: spec, status: statusOf(isReady, "web", ended, "envoy", running), files: map[string]string{"web.previous.log": stops, "envoy.log": uf}, want: "found dependency-down", says: "acquirer.pay"},
		"long before":     {spec: spec, status: statusOf(isReady, "web", ended, "envoy", running), files: map[string]string{"web.previous.log": stops, "envoy.log": strings.Replace(uf, "14:00", "13:30", 1)}, want: "found app-crash"},
		"a panic":         {spec: spec, status: statusOf(isReady, "web", ended, "envoy", running), files: map[string]string{"web.previous.log": boom, "envoy.log": uf}, want: "found app-crash", says: "panic: index out of range"},
	})
}
