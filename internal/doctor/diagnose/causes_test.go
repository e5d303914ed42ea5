package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// A cause is a pod with what its diagnosis says first.
type cause struct {
	spec, meta string            // of the pod, in YAML's flow style, without the braces
	status     string            // of the pod
	files      map[string]string // logs and events
	want       string            // verdict and code
	sure       result.Confidence
	says       string // in the first sentence
	findings   int    // 0: any number
}

// Parts of pods: the node's times are of 2 March 2026, 13:00:10 is the start.
const (
	running   = `{name: NAME, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T13:00:10Z"}}}`
	restarted = `{name: NAME, ready: true, restartCount: 1, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:00:12Z"}}, state: {running: {startedAt: "2026-03-02T13:00:20Z"}}}`
	isReady   = `conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-03-02T13:00:25Z"}], `
)

func statusWith(conditions string, parts ...string) string {
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
		uh    = `[2026-03-02T14:00:01.000Z] "POST /v3 HTTP/1.1" 503 UH no_healthy_upstream - "-" 0 19 0 - "-" "web/9" "id" "acquirer.pay:9443" "-" outbound|9443||acquirer.pay.svc.cluster.local - 10.43.7.1:9443 10.2.0.8:40112 - default` + "\n"
		l5d   = `[3591.5s]  WARN ThreadId(01) outbound:proxy{addr=10.96.8.1:8080}:service{ns=stock name=stock port=8080}:endpoint{addr=10.244.3.7:8080}: linkerd_reconnect: Failed to connect error=endpoint 10.244.3.7:8080: Connection refused (os error 111)` + "\n"
		bad   = "2026-03-02T14:00:02.000Z ERROR [502 Bad Gateway] during [GET] to [http://stock.stock:8080/v1]\n"
		body  = "2026-03-02T14:00:01.100Z ERR status=503 body=\"upstream connect error or disconnect/reset before headers. reset reason: remote connection failure\"\n"
		boom  = "2026-03-02T14:00:02.000Z panic: index out of range\n"
		stops = "2026-03-02T14:00:02.000Z ERROR the backend closed the connection\n"
	)
	well := statusWith(isReady, "web", running, "envoy", running)
	linkerd := statusWith(isReady, "web", running, "linkerd-proxy", running)
	ended := strings.Replace(strings.Replace(restarted, "13:00:12", "14:00:03", 1), "13:00:20", "14:00:05", 1)
	checkCauses(t, map[string]cause{
		"by Envoy":           {spec: spec, status: well, files: map[string]string{"web.log": body, "envoy.log": uf}, want: "found dependency-down", sure: result.Certain, says: "web called acquirer.pay (10.43.77.15:9443) through its proxy, which could not connect to it; the pod itself is healthy"},
		"at another time":    {spec: spec, status: well, files: map[string]string{"web.log": body, "envoy.log": strings.Replace(uf, "14:00", "13:50", 1)}, want: "found dependency-down", says: "web called its destination through its proxy"},
		"by Linkerd":         {spec: "containers: [{name: web}, {name: linkerd-proxy}]", status: linkerd, files: map[string]string{"web.log": bad, "linkerd-proxy.log": l5d}, want: "found dependency-down", sure: result.Likely, says: "web called stock.stock:8080 through its proxy"},
		"no endpoint":        {spec: spec, status: well, files: map[string]string{"web.log": strings.Replace(body, "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure", "no healthy upstream", 1)}, want: "found dependency-down", sure: result.Certain, says: "web called its destination through its proxy, which knew no healthy endpoint of it"},
		"UH":                 {spec: spec, status: well, files: map[string]string{"web.log": "2026-03-02T14:00:01.100Z ERR GET http://acquirer.pay:9443/v3: 503 Service Unavailable\n", "envoy.log": uh}, want: "found dependency-down", sure: result.Likely, says: "web called acquirer.pay:9443 through its proxy, which knew no healthy endpoint of it"},
		"UH of another port": {spec: spec, status: well, files: map[string]string{"web.log": "2026-03-02T14:00:01.100Z ERR GET http://acquirer.pay:9444/v3: 503 Service Unavailable\n", "envoy.log": uh}, want: "nothing"},
		"UH near the end":    {spec: spec, status: statusWith(isReady, "web", ended, "envoy", running), files: map[string]string{"web.previous.log": stops, "envoy.log": uh}, want: "found dependency-down", says: "after its proxy knew no healthy endpoint of acquirer.pay.svc.cluster.local:9443"},
		"502 by itself":      {spec: "containers: [{name: web}, {name: linkerd-proxy}]", status: linkerd, files: map[string]string{"web.log": bad, "linkerd-proxy.log": ""}, want: "nothing"},
		"another port":       {spec: "containers: [{name: web}, {name: linkerd-proxy}]", status: linkerd, files: map[string]string{"web.log": bad, "linkerd-proxy.log": strings.ReplaceAll(l5d, "8080", "9090")}, want: "nothing"},
		"near the end":       {spec: spec, status: statusWith(isReady, "web", ended, "envoy", running), files: map[string]string{"web.previous.log": stops, "envoy.log": uf}, want: "found dependency-down", says: "acquirer.pay"},
		"long before":        {spec: spec, status: statusWith(isReady, "web", ended, "envoy", running), files: map[string]string{"web.previous.log": stops, "envoy.log": strings.Replace(uf, "14:00", "13:30", 1)}, want: "found app-crash"},
		"a panic":            {spec: spec, status: statusWith(isReady, "web", ended, "envoy", running), files: map[string]string{"web.previous.log": boom, "envoy.log": uf}, want: "found app-crash", says: "panic: index out of range"},
	})
}

// Before a proxy is ready, names that it should resolve have no answer, and connections that it takes are reset or
// answered with 503: a race, if the run ended by it. Another program's definite answer is none, nor is a later failure.
func TestOtherFailuresBeforeTheProxyIsReady(t *testing.T) {
	const (
		kuma  = `initContainers: [{name: kuma-init, args: [--redirect-dns, --redirect-outbound-port, "15001"]}], containers: [{name: web}, {name: kuma-sidecar}]`
		istio = `initContainers: [{name: istio-init, args: [istio-iptables, -p, "15001", -u, "1337", -i, "*"]}], containers: [{name: web}, {name: istio-proxy}]`
		ready = "2026-03-02T13:00:14.000000Z\tinfo\tEnvoy proxy is ready\n"
		up    = "[2026-03-02 13:00:14.000][1][info][config] all dependencies initialized. starting workers\n"
		again = "2026-03-02T13:00:11.700Z getaddrinfo EAI_AGAIN redis.shop\n"
		reset = "2026-03-02T13:00:11.700Z ERROR GET http://config.infra:8080/: read: connection reset by peer\n"
	)
	byKuma, byIstio := statusWith(isReady, "web", restarted, "kuma-sidecar", running), statusWith(isReady, "web", restarted, "istio-proxy", running)
	late := strings.NewReplacer("13:00:12", "13:30:12", "13:00:20", "13:30:20").Replace(restarted)
	on := func(proxy, text, log string) map[string]string {
		return map[string]string{"web.previous.log": text, "web.log": "fine\n", proxy + ".log": log}
	}
	checkCauses(t, map[string]cause{
		"a name":                        {spec: kuma, status: byKuma, files: on("kuma-sidecar", again, up), want: "found startup-race", sure: result.Likely, says: "web looked up a name before its proxy, which answers its DNS queries, was ready, got no answer, and ended (exit code 1)"},
		"a name, and an answer":         {spec: kuma, status: byKuma, files: on("kuma-sidecar", strings.Replace(again, "EAI_AGAIN", "ENOTFOUND", 1), up), want: "found name-not-resolved"},
		"a name of another server":      {spec: strings.Replace(kuma, "--redirect-dns, ", "", 1), status: byKuma, files: on("kuma-sidecar", again, up), want: "found name-not-resolved"},
		"a name when it was ready":      {spec: kuma, status: byKuma, files: on("kuma-sidecar", again, strings.Replace(up, "13:00:14", "13:00:10", 1)), want: "found name-not-resolved"},
		"a name, and an abort":          {spec: kuma, status: strings.Replace(byKuma, "exitCode: 1,", "exitCode: 134, signal: 6,", 1), files: on("kuma-sidecar", again, up), want: "found startup-race", sure: result.Likely, says: "ended (exit code 134, signal 6)"},
		"a name, and a kill":            {spec: kuma, status: strings.Replace(byKuma, "exitCode: 1,", "exitCode: 137, signal: 9,", 1), files: on("kuma-sidecar", again, up), want: "found name-not-resolved"},
		"a name, by an annotation":      {spec: strings.Replace(kuma, "--redirect-dns, ", "", 1), meta: `, annotations: {kuma.io/builtindns: enabled}`, status: byKuma, files: on("kuma-sidecar", again, up), want: "found startup-race"},
		"a name, by Istio's setting":    {spec: strings.Replace(istio, "{name: istio-proxy}", `{name: istio-proxy, env: [{name: ISTIO_META_DNS_CAPTURE, value: "true"}]}`, 1), status: byIstio, files: on("istio-proxy", again, ready), want: "found startup-race"},
		"a name, a setting that is off": {spec: strings.Replace(istio, "{name: istio-proxy}", `{name: istio-proxy, env: [{name: ISTIO_META_DNS_CAPTURE, value: "false"}]}`, 1), status: byIstio, files: on("istio-proxy", again, ready), want: "found name-not-resolved"},
		"a reset":                       {spec: istio, status: byIstio, files: on("istio-proxy", reset, ready), want: "found startup-race", sure: result.Likely, says: "web made a call before its proxy was ready, was cut off, and ended (exit code 1)", findings: 1},
		"503":                           {spec: istio, status: byIstio, files: on("istio-proxy", strings.Replace(reset, "read: connection reset by peer", "503 Service Unavailable", 1), ready), want: "found startup-race", says: "was told that the destination is not available", findings: 1},
		"no time of readiness":          {spec: istio, status: byIstio, files: on("istio-proxy", "connection reset\n", ""), want: "undecided startup-race", sure: result.Possible, says: "undecided; possibly: startup race"},
		"long after the start":          {spec: istio, status: statusWith(isReady, "web", late, "istio-proxy", running), files: on("istio-proxy", strings.Replace(reset, "13:00:11", "13:30:11", 1), ready), want: "found app-crash", says: "connection reset by peer"},
		"of a port that is left out":    {spec: strings.Replace(istio, `-i, "*"`, `-i, "*", -o, "8080"`, 1), status: byIstio, files: on("istio-proxy", reset, ready), want: "found app-crash"},
		"words of a deadline":           {spec: istio, status: byIstio, files: on("istio-proxy", "context deadline exceeded\n", ""), want: "found app-crash"},
	})
}

// One event is one finding: a call that failed since a helper or the proxy had ended is not found again.
func TestOneEventIsOneFinding(t *testing.T) {
	const refused = "2026-03-02T13:30:15.000Z ERROR dial tcp 127.0.0.1:5432: connect: connection refused\n"
	spec := `containers: [{name: web}, {name: cloud-sql-proxy, args: ["--port=5432"]}]`
	ended := `{name: NAME, ready: false, restartCount: 0, state: {terminated: {exitCode: 143, signal: 15, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:30:12Z"}}}`
	eof := "2026-03-02T13:30:12.500Z WARN query: unexpected EOF\n"
	checkCauses(t, map[string]cause{
		"in deletion": {spec: spec, meta: `, deletionTimestamp: "2026-03-02T13:31:12Z"`, status: statusWith("", "web", running, "cloud-sql-proxy", ended), files: map[string]string{"web.log": eof + refused}, want: "found shutdown-race", sure: result.Certain, says: "cloud-sql-proxy ended while web still called it", findings: 1},
		"no log":      {spec: "containers: [{name: web}]", status: statusWith("", "web", restarted), want: "undecided app-crash", says: "undecided: web ended (exit code 1), and its log is not among the evidence"},
	})
}

// The cause may be in another container of the pod: a helper that starts later, Consul's registration, Linkerd's
// run before. Probes and lost packets are no calls.
func TestCausesInHelpers(t *testing.T) {
	const refused = "2026-03-02T13:00:11.000Z ERROR dial tcp 127.0.0.1:5432: connect: connection refused\n"
	later := strings.Replace(running, "13:00:10", "13:00:14", 1)
	failed := `{name: consul-connect-inject-init, ready: false, restartCount: 1, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:02:12Z"}}, state: {running: {startedAt: "2026-03-02T13:02:20Z"}}}`
	linkerd := `{name: NAME, ready: false, restartCount: 1, lastState: {terminated: {exitCode: 137, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:02:12Z"}}, state: {running: {startedAt: "2026-03-02T13:02:20Z"}}}`
	checkCauses(t, map[string]cause{
		"a helper that starts later": {spec: `containers: [{name: web}, {name: pg, args: ["--port=5432"]}]`, status: statusWith(isReady, "web", restarted, "pg", later), files: map[string]string{"web.previous.log": refused}, want: "found sibling-down", says: "web called its own pod at 127.0.0.1:5432 before pg listened there"},
		"an upstream of Consul":      {spec: `containers: [{name: web}, {name: consul-dataplane}]`, meta: `, annotations: {consul.hashicorp.com/connect-service-upstreams: "db:5432"}`, status: statusWith(isReady, "web", restarted, "consul-dataplane", later), files: map[string]string{"web.previous.log": refused}, want: "found sibling-down", says: "before consul-dataplane listened there"},
		"a port of no upstream":      {spec: `containers: [{name: web}, {name: consul-dataplane}]`, meta: `, annotations: {consul.hashicorp.com/connect-service-upstreams: "db:5433"}`, status: statusWith(isReady, "web", restarted, "consul-dataplane", later), files: map[string]string{"web.previous.log": refused}, want: "found sibling-down", says: "where no container listened"},
		"not registered with Consul": {spec: `initContainers: [{name: consul-connect-inject-init}], containers: [{name: web}]`, status: "initContainerStatuses: [" + failed + "]", files: map[string]string{"consul-connect-inject-init.previous.log": "2026-03-02T13:02:11Z [ERROR] Timed out waiting for service registration\n"}, want: "found capture-not-in-place", says: "which registers the pod with Consul, failed: the mesh does not know the pod", findings: 1},
		"Linkerd's run before":       {spec: "containers: [{name: linkerd-proxy}, {name: web}]", status: statusWith("", "linkerd-proxy", linkerd, "web", running), files: map[string]string{"linkerd-proxy.previous.log": "[35.0s]  WARN ThreadId(02) dst:controller{addr=linkerd-dst:8086}:endpoint{addr=10.42.0.9:8086}: linkerd_reconnect: Failed to connect error=connect timed out after 1s\n"}, want: "found no-control-plane", says: "it does not reach its control plane"},
		"a probe of a helper":        {spec: "containers: [{name: web}, {name: queue-proxy}]", status: statusWith(isReady, "web", running, "queue-proxy", running), files: map[string]string{"queue-proxy.log": "aggressive probe error (failed 202 times): dial tcp 127.0.0.1:8080: connect: connection refused\n"}, want: "nothing"},
		"packets, and a unix socket": {spec: "containers: [{name: web}]", status: statusWith("", "web", restarted), files: map[string]string{"web.previous.log": "WARNING dogstatsd Error submitting packet: [Errno 111] Connection refused\npsycopg2.OperationalError: connection to server on socket \"/run/postgresql/.s.PGSQL.5432\" failed: No such file or directory\n"}, want: "found sibling-down", says: "web called its own pod at /run/postgresql/.s.PGSQL.5432"},
		"packets alone":              {spec: "containers: [{name: web}]", status: statusWith("", "web", restarted), files: map[string]string{"web.previous.log": "WARNING dogstatsd Error submitting packet: [Errno 111] Connection refused\npanic: nil map\n"}, want: "found app-crash", says: "panic: nil map"},
		"a limit for no process": {spec: "containers: [{name: web, resources: {limits: {memory: 4Mi}}}]", status: "containerStatuses: [{name: web, state: {waiting: {reason: ContainerCreating}}}]", files: map[string]string{
			"events.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop}, involvedObject: {kind: Pod, name: web-1, namespace: shop, uid: u1}, type: Warning, reason: FailedCreatePodSandBox, message: \"runc create failed: container init was OOM-killed (memory limit too low?)\", count: 2, firstTimestamp: \"2026-03-02T13:00:10Z\", lastTimestamp: \"2026-03-02T13:00:20Z\", source: {component: kubelet}}\n",
		}, want: "found out-of-memory", sure: result.Certain, says: "a memory limit of the pod is too low: the kernel kills its containers before they start (web 4Mi)"},
	})
}

// An init container that only checks the capture finds that the rules of a plugin are missing. What its own test was
// refused is no destination. What sets the rules up has other reasons.
func TestCaptureThatIsMissing(t *testing.T) {
	exit := func(code string) string {
		return `initContainerStatuses: [{name: i, ready: false, restartCount: 3, lastState: {terminated: {exitCode: ` + code + `, reason: Error, startedAt: "2026-03-02T13:00:10Z", finishedAt: "2026-03-02T13:00:15Z"}}, state: {waiting: {reason: CrashLoopBackOff}}}]`
	}
	const refused = "2026-03-02T13:00:11.000000Z\terror\tError connecting to 127.0.0.6:15002: dial tcp 127.0.0.1:0->127.0.0.6:15002: connect: connection refused\n"
	log := refused + "2026-03-02T13:00:15.000000Z\terror\tvalidation timeout\n"
	const checker, writer = `args: [istio-iptables, --run-validation, --skip-rule-apply]`, `args: [istio-iptables, -p, "15001", --run-validation]`
	const missing = "which only checks the capture that the mesh's CNI plugin should have set up, failed: the rules that send its connections to the proxy are not there; most likely the pod came before the plugin"
	for name, c := range map[string]struct{ container, args, exit, log, says string }{
		"the check":              {"istio-validation", checker, "126", log, missing},
		"the check, without log": {"istio-validation", checker, "126", "", missing},
		"the check, of Linkerd":  {"linkerd-network-validator", `args: [--timeout, 10s]`, "95", "2026-03-02T13:00:15.0Z ERROR linkerd_network_validator: Failed to validate networking configuration. Please ensure iptables rules are rewriting traffic as expected. timeout=10s\n", missing},
		"the check has ended":    {"istio-validation", checker, "137", refused, "which only checks the capture that the mesh's CNI plugin should have set up, failed: exit code 137"},
		"the rules are its own":  {"istio-init", writer, "126", log, "which sets up the capture, failed: the rules that it wrote do not work"},
		"no answer":              {"istio-init", writer, "1", refused, "which sets up the capture, failed: it got no answer"},
	} {
		files := map[string]string{}
		if c.log != "" {
			files[c.container+".previous.log"] = c.log
		}
		checkCauses(t, map[string]cause{name: {
			spec: "initContainers: [{name: " + c.container + ", " + c.args + "}], containers: [{name: web}, {name: istio-proxy}]", status: strings.Replace(exit(c.exit), "name: i,", "name: "+c.container+",", 1),
			files: files, want: "found capture-not-in-place", says: c.container + ", " + c.says,
		}})
	}
}

// An Envoy whose capture an init container sets up that is not known by name: whether a call is captured is not known.
// The Envoy may be called by its own port, too.
func TestCaptureOfUnknownMeshes(t *testing.T) {
	const call, ready = "2026-03-02T13:00:11.000Z FATAL dial tcp 10.96.8.1:80: connect: connection refused\n", "[2026-03-02 13:00:14.000Z][1][info][config] [source/x.cc:1] all dependencies initialized. starting workers\n"
	files := map[string]string{"web.previous.log": call, "envoy.log": ready}
	of := func(init, more string) string {
		return `initContainers: [{name: setup, image: example.com/setup:1, ` + init + `}], containers: [{name: web, image: example.com/web:1}, {name: envoy, image: envoyproxy/envoy:v1, ` + more + `}]`
	}
	const admin = `args: [x], securityContext: {capabilities: {add: [NET_ADMIN]}}`
	status := statusWith(isReady, "web", restarted, "envoy", running)
	checkCauses(t, map[string]cause{
		"it has the rights":      {spec: of(admin, ""), status: status, files: files, want: "found startup-race", sure: result.Likely},
		"a label of a mesh":      {spec: of("args: [x]", ""), meta: ", labels: {osm-proxy-uuid: u}", status: status, files: files, want: "found startup-race", sure: result.Likely},
		"the evidence is short":  {spec: of("", ""), status: status, files: files, want: "undecided startup-race", sure: result.Possible},
		"it has no rights":       {spec: of("args: [x], securityContext: {}", ""), status: status, files: files, want: "found dependency-down", sure: result.Certain, says: "10.96.8.1:80"},
		"long after the start":   {spec: of(admin, ""), status: strings.ReplaceAll(status, "13:00:12", "13:05:12"), files: map[string]string{"web.previous.log": strings.Replace(call, "13:00", "13:05", 1), "envoy.log": ready}, want: "found dependency-down", sure: result.Likely},
		"called by its own port": {spec: of(admin, "ports: [{containerPort: 10000}]"), status: status, files: map[string]string{"web.previous.log": strings.Replace(call, "10.96.8.1:80", "127.0.0.1:10000", 1), "envoy.log": ready}, want: "found sibling-down", says: "web called its own pod at 127.0.0.1:10000 before envoy listened there"},
	})
}

// In ambient mode ztunnel of the node may not know a young pod yet; its log would decide.
func TestAmbient(t *testing.T) {
	const spec, meta = `nodeName: n1, containers: [{name: web}]`, `, annotations: {ambient.istio.io/redirection: enabled}`
	reset, refused := "curl: (56) Recv failure: Connection reset by peer\n", "2026-03-02T13:00:11.000Z dial tcp 10.96.8.1:80: connect: connection refused\n"
	late := strings.NewReplacer("13:00:10", "13:30:10", "13:00:12", "13:30:12", "13:00:20", "13:30:20").Replace(restarted)
	checkCauses(t, map[string]cause{
		"reset":   {spec: spec, meta: meta, status: statusWith("", "web", restarted), files: map[string]string{"web.previous.log": reset}, want: "undecided startup-race", says: "possibly: startup race: web made a call before ztunnel of its node served the pod, was cut off"},
		"refused": {spec: spec, meta: meta, status: statusWith("", "web", restarted), files: map[string]string{"web.previous.log": refused}, want: "undecided startup-race"},
		"later":   {spec: spec, meta: meta, status: statusWith("", "web", late), files: map[string]string{"web.previous.log": strings.Replace(refused, "13:00", "13:30", 1)}, want: "undecided dependency-down"},
		"no mesh": {spec: spec, status: statusWith("", "web", restarted), files: map[string]string{"web.previous.log": refused}, want: "found dependency-down", sure: result.Certain},
	})
}
