package diagnose

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An episode is the evidence of a pod, and what its diagnosis has to say.
type episode struct {
	files     map[string]string
	want      string // the verdict and the code of the first finding; empty: any
	says, not string // regular expressions about the sentences, the remedies and the evidence
}

// tell runs episodes, and prints how many are right.
func tell(t *testing.T, episodes map[string]episode) {
	t.Helper()
	right := 0
	for _, name := range slices.Sorted(maps.Keys(episodes)) {
		e := episodes[name]
		r := diagnoseFolder(t, folderOf(t, e.files))
		said := r.Sentence
		for _, f := range r.Findings {
			said += fmt.Sprintf("\n  %s %s of %s: %s. Do: %s", f.Confidence, f.Code, f.Container, f.Sentence, f.Remedy.Sentence)
			for _, q := range slices.Concat(f.Evidence, f.Against) {
				said += "\n    " + q.Text
			}
		}
		switch {
		case e.want != "" && key(r) != e.want:
			t.Errorf("%s: %s, want %s: %s", name, key(r), e.want, said)
		case e.says != "" && !regexp.MustCompile(e.says).MatchString(said):
			t.Errorf("%s: it does not say %s: %s", name, e.says, said)
		case e.not != "" && regexp.MustCompile(e.not).MatchString(said):
			t.Errorf("%s: it says %s: %s", name, e.not, said)
		default:
			right++
		}
	}
	t.Logf("%d of %d are right", right, len(episodes))
}

// gated returns a pod whose containers are ready and which has these readiness gates, and some of their conditions.
func gated(gates string, conditions ...string) map[string]string {
	return map[string]string{"pod.yaml": `kind: Pod
metadata: {name: edge-0, namespace: net, creationTimestamp: "2026-03-02T10:00:00Z"}
spec: {readinessGates: [` + gates + `], containers: [{name: edge, image: "edge:1"}]}
status:
  phase: Running
  conditions: [` + strings.Join(append(conditions, `{type: ContainersReady, status: "True", lastTransitionTime: "2026-03-02T10:00:06Z"}`), ", ") + `]
  containerStatuses: [{name: edge, ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:04Z"}}}]
`}
}

// with adds files to some.
func with(files map[string]string, more ...string) map[string]string {
	out := maps.Clone(files)
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

// A readiness gate that is closed is the one whose condition is not true, whatever its reason says and whether or not
// the controller wrote since when.
func TestGates(t *testing.T) {
	const two = `{conditionType: lb.example/web}, {conditionType: mesh.example/routed}`
	open := `{type: lb.example/web, status: "True", reason: Registering, message: "registration is in progress"}`
	listed := func(line string) string {
		return "$ kubectl get pods -n net\nNAME     READY   STATUS    RESTARTS   AGE\n" + line + "\n"
	}
	tell(t, map[string]episode{
		"the second is closed, the first has an old reason": {
			files: gated(two, open, `{type: mesh.example/routed, status: "False", reason: RouteRejected, message: "no route for port 8443"}`),
			want:  "found state-not-known", says: "the readiness gate mesh.example/routed is not open: RouteRejected: no route for port 8443", not: "lb.example|starting| since ",
		},
		"the one whose check failed, of two": {
			files: gated(two, `{type: lb.example/web, status: "False", reason: Waiting, message: "in the queue"}`, `{type: mesh.example/routed, status: "False", reason: Unhealthy, message: "health check failed"}`),
			says:  "mesh.example/routed is not open: Unhealthy",
		},
		"a check that runs is a start": {
			files: gated(two, open, `{type: mesh.example/routed, status: "False", reason: InitialCheck, message: "the first checks run"}`),
			want:  "starting",
		},
		"both are open":              {files: gated(two, open, `{type: mesh.example/routed, status: "True"}`), want: "nothing"},
		"its status is not known":    {files: gated(two, open, `{type: mesh.example/routed, status: Unknown, reason: NoAnswer}`), want: "starting", says: "mesh.example/routed"},
		"no condition for an hour":   {files: with(gated(two, open), "pods.txt", listed("edge-0   1/1     Running   0          61m")), want: "found state-not-known", says: "mesh.example/routed is not open since 61 min 0 s: no controller"},
		"the line is of a later run": {files: with(gated(two, open), "pods.txt", listed("edge-0   1/1     Running   3          61m")), want: "starting"},
		"the line is of another pod": {files: with(gated(two, open), "pods.txt", listed("edge-1   1/1     Running   0          61m")), want: "starting"},
		"the pod is a minute old":    {files: with(gated(two, open), "pods.txt", listed("edge-0   1/1     Running   0          70s")), want: "starting"},
	})
}

// istioInit, linkerdInit and kumaInit write the rules of their meshes.
const (
	istioInit   = `{name: istio-init, image: "istio/proxyv2:1.24.1", args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, "", -b, "*", -d, "15090,15021,15020"]}`
	linkerdInit = `{name: linkerd-init, image: "linkerd/proxy-init:v2.4.0", args: [--incoming-proxy-port, "4143", --outgoing-proxy-port, "4140", --proxy-uid, "2102", --inbound-ports-to-ignore, "4190,4191,9102"]}`
	kumaInit    = `{name: kuma-init, image: "kumahq/kuma-init:2.9.1", args: [--redirect-outbound-port, "15001", --redirect-inbound=true, --redirect-inbound-port, "15006", --kuma-dp-uid, "5678", --exclude-inbound-ports, "", --exclude-outbound-ports, ""]}`
)

// probed returns a pod whose container app is not ready, since its readiness probe got that message.
func probed(init, proxy, app, message string) map[string]string {
	name := regexp.MustCompile(`name: ([a-z-]+)`).FindStringSubmatch(proxy)[1]
	return map[string]string{"pod.yaml": `kind: Pod
metadata: {name: api-1, namespace: shop, creationTimestamp: "2026-03-02T10:00:00Z"}
spec: {initContainers: [` + init + `], containers: [` + proxy + `, {name: app, image: "app:1", ` + app + `}]}
status:
  phase: Running
  conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-03-02T10:00:01Z"}]
  initContainerStatuses: [{name: ` + regexp.MustCompile(`name: ([a-z-]+)`).FindStringSubmatch(init)[1] + `, state: {terminated: {exitCode: 0, startedAt: "2026-03-02T10:00:01Z", finishedAt: "2026-03-02T10:00:02Z"}}}]
  containerStatuses:
  - {name: ` + name + `, ready: true, started: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:03Z"}}}
  - {name: app, ready: false, started: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:04Z"}}}
`, "events.yaml": `kind: List
items:
- {kind: Event, reason: Unhealthy, type: Warning, count: 90, message: '` + message + `', metadata: {name: api-1.1, namespace: shop}, involvedObject: {kind: Pod, name: api-1, namespace: shop, fieldPath: "spec.containers{app}"}, firstTimestamp: "2026-03-02T10:00:14Z", lastTimestamp: "2026-03-02T10:30:14Z"}
`}
}

// A status of 502 to 504 may be the answer of the proxy that lies between the kubelet and the application, and 500 of
// Istio's agent; then the ports of the application tell.
func TestProbesThroughAProxy(t *testing.T) {
	const (
		linkerd = `{name: linkerd-proxy, image: "linkerd/proxy:edge-25.1.1"}`
		istio   = `{name: istio-proxy, image: "istio/proxyv2:1.24.1"}`
		kuma    = `{name: kuma-sidecar, image: "kumahq/kuma-dp:2.9.1"}`
		consul  = `{name: consul-dataplane, image: "hashicorp/consul-dataplane:1.6.1"}`
		probers = `{name: istio-proxy, image: "istio/proxyv2:1.24.1", env: [{name: ISTIO_KUBE_APP_PROBERS, value: '{"/app-health/app/readyz":{"tcpSocket":{"port":9443}}}'}]}`
		probe   = `readinessProbe: {httpGet: {path: /up, port: 3000}}`
		agent   = `readinessProbe: {httpGet: {path: /app-health/app/readyz, port: 15020}}`
		failed  = "Readiness probe failed: HTTP probe failed with statuscode: "
		itself  = "says itself"
		wants   = "found probe-fails"
	)
	tell(t, map[string]episode{
		"its log has another port":        {files: with(probed(kumaInit, kuma, probe, failed+"503"), "app.log", "2026-03-02T10:00:05Z Server listening at http://0.0.0.0:3030\n"), want: wants, says: "gets 503 through kuma-sidecar, since it asks port 3000; by its log, app listens on 3030", not: itself},
		"its arguments have another":      {files: probed(linkerdInit, linkerd, probe+`, args: ["serve", "--http-port", "3001"]`, failed+"502"), want: wants, says: "asks port 3000; by its settings, app listens on 3001", not: itself},
		"its environment has another":     {files: probed(kumaInit, kuma, probe+`, env: [{name: HTTP_PORT, value: "8000"}, {name: REDIS_PORT, value: "6379"}]`, failed+"503"), want: wants, says: "by its settings, app listens on 8000", not: itself + "|6379"},
		"the proxy was refused (Linkerd)": {files: with(probed(linkerdInit, linkerd, probe, failed+"502"), "linkerd-proxy.log", "[   12.000301s]  INFO ThreadId(01) inbound:server{port=3000}:rescue{client.addr=10.42.0.1:44044}: linkerd_app_core::errors::respond: HTTP/1.1 request failed error=error trying to connect: Connection refused (os error 111)\n"), want: wants, says: "by whose log nothing listened on port 3000", not: itself},
		"the proxy was refused (Envoy)":   {files: with(probed(istioInit, istio, probe, failed+"503"), "istio-proxy.log", `[2026-03-02T10:00:14.000Z] "GET /up HTTP/1.1" 503 UF upstream_reset_before_response_started{remote_connection_failure,delayed_connect_error:_111} - "-" 0 152 0 - "-" "kube-probe/1.31" "b1" "10.1.0.7:3000" "10.1.0.7:3000" inbound|3000|| - 10.1.0.7:3000 10.1.0.1:51234 - default`+"\n"), want: wants, says: "by whose log nothing listened on port 3000", not: itself},
		"nothing else is known":           {files: probed(linkerdInit, linkerd, probe, failed+"504"), want: wants, says: "gets 504 through linkerd-proxy, which answers so when app does not take its connection; app may have", not: itself},
		"Istio's agent, another port":     {files: with(probed(istioInit, probers, agent, failed+"500"), "app.log", "time=10:00:05 msg=\"listening\" addr=0.0.0.0:8443\nlistening on 0.0.0.0:8443\n"), want: wants, says: "asks port 9443; by its log, app listens on 8443", not: itself + "|15020"},
		"Istio's agent, loopback":         {files: with(probed(istioInit, istio, agent, failed+"500"), "app.log", "INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)\n"), want: wants, says: "listens on the loopback address only", not: itself},
		"Consul":                          {files: with(probed(`{name: consul-connect-inject-init, image: "hashicorp/consul-k8s-control-plane:1.6.1"}`, consul, `readinessProbe: {httpGet: {path: /up, port: 20300}}`, failed+"503"), "app.log", "listening on :3000\n"), want: wants, says: "gets 503 through consul-dataplane, which", not: itself + "|20300"},

		"its own answer, by its log":        {files: with(probed(linkerdInit, linkerd, probe, failed+"503"), "app.log", "10.1.0.1 - - \"GET /up HTTP/1.1\" 503 12 \"kube-probe/1.31\"\n"), want: wants, says: itself},
		"500 is no answer of a proxy":       {files: probed(linkerdInit, linkerd, probe, failed+"500"), want: wants, says: itself},
		"the agent hands 503 on":            {files: probed(istioInit, istio, agent, failed+"503"), want: wants, says: itself},
		"its port is left out":              {files: probed(strings.Replace(linkerdInit, "9102", "3000", 1), linkerd, probe, failed+"503"), want: wants, says: itself},
		"no proxy lies between":             {files: probed(`{name: setup, image: "setup:1"}`, `{name: cache, image: "redis:7"}`, probe, failed+"503"), want: wants, says: itself},
		"404 is the application's":          {files: probed(kumaInit, kuma, probe, failed+"404"), want: wants, says: "answers 404 for /up: *|correct the path"},
		"it listens there, and is not well": {files: with(probed(kumaInit, kuma, probe, failed+"503"), "app.log", "listening on 0.0.0.0:3000\n"), want: wants, says: "it answers 503 for /up. Do: see the log of app for what it lacks: by that it listens on port 3000", not: itself},
		"Linkerd asks the loopback":         {files: with(probed(linkerdInit, linkerd, probe, failed+"502"), "app.log", "Listening on http://127.0.0.1:3000\n"), want: wants, not: "loopback address only"},
	})
}

// hooked returns a pod whose proxy has a postStart hook that failed as hook says: its settings, its state and restarts,
// the state of app, and the restartPolicy of the pod.
func hooked(proxy, state, app, policy, hook string) map[string]string {
	name := regexp.MustCompile(`name: ([a-z-]+)`).FindStringSubmatch(proxy)[1]
	files := map[string]string{"pod.yaml": `kind: Pod
metadata: {name: job-1, namespace: shop, creationTimestamp: "2026-03-02T10:00:00Z"}
spec: {restartPolicy: ` + policy + `, initContainers: [` + istioInit + `], containers: [` + proxy + `, {name: app, image: "app:1"}]}
status:
  phase: Running
  initContainerStatuses: [{name: istio-init, state: {terminated: {exitCode: 0, startedAt: "2026-03-02T10:00:01Z", finishedAt: "2026-03-02T10:00:02Z"}}}]
  containerStatuses:
  - {name: ` + name + `, ` + state + `}
  - {name: app, ` + app + `}
`}
	if hook != "" {
		files["events.yaml"] = `kind: List
items:
- {kind: Event, reason: FailedPostStartHook, type: Warning, count: 1, message: '` + hook + `', metadata: {name: job-1.1, namespace: shop}, involvedObject: {kind: Pod, name: job-1, namespace: shop, fieldPath: "spec.containers{` + name + `}"}, firstTimestamp: "2026-03-02T10:01:04Z", lastTimestamp: "2026-03-02T10:01:04Z"}
`
	}
	return files
}

// A proxy whose own wait hook fails was not ready in time; why is in its log. That is no mistake in the command of a hook.
func TestHooksOfProxies(t *testing.T) {
	const (
		istio   = `{name: istio-proxy, image: "istio/proxyv2:1.24.1", lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}}`
		appmesh = `{name: envoy, image: "aws-appmesh-envoy:v1.29", lifecycle: {postStart: {exec: {command: [sh, -c, "until curl -s localhost:9901/ready; do sleep 1; done"]}}}}`
		kuma    = `{name: kuma-sidecar, image: "kumahq/kuma-dp:2.9.1", lifecycle: {postStart: {exec: {command: [kuma-dp, wait]}}}}`
		again   = `ready: false, restartCount: 2, state: {waiting: {reason: PostStartHookError, message: "Exec lifecycle hook failed - error: command exited with 1: not ready"}}, lastState: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-03-02T10:05:00Z", finishedAt: "2026-03-02T10:06:02Z"}}`
		ended   = `ready: false, restartCount: 0, state: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-03-02T10:00:03Z", finishedAt: "2026-03-02T10:01:05Z"}}`
		healed  = `ready: true, restartCount: 1, state: {running: {startedAt: "2026-03-02T10:01:06Z"}}, lastState: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-03-02T10:00:03Z", finishedAt: "2026-03-02T10:01:05Z"}}`
		runs    = `ready: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:01:06Z"}}`
		fails   = `ready: false, restartCount: 4, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T10:06:10Z", finishedAt: "2026-03-02T10:06:11Z"}}`
		late    = "Exec lifecycle hook ([pilot-agent wait]) failed - error: command 'pilot-agent wait' exited with 255: Error: timeout waiting for Envoy proxy to become ready"
		refused = "2026-03-02T10:06:10.500Z fetch: dial tcp 10.96.4.4:8080: connect: connection refused\n"
		broken  = "container-not-created|correct what|command of the hook"
	)
	quote := strings.NewReplacer("'", "''")
	none := "2026-03-02T10:05:10.000000Z\twarn\tEnvoy proxy is NOT ready: config not received from Pilot (is Pilot running?): cds updates: 0 successful, 0 rejected\n"
	wrong := "2026-03-02T10:00:20.000000Z\twarn\tEnvoy proxy is NOT ready: config received from XDS server, but was rejected: cds updates: 1 successful, 0 rejected; lds updates: 0 successful, 2 rejected\n"
	tell(t, map[string]episode{
		"no control plane":                {files: with(hooked(istio, again, runs, "Always", ""), "istio-proxy.previous.log", none), want: "found no-control-plane", says: "was not ready in time for its postStart hook, and so is ended: it does not reach its control plane", not: broken + "|proxy-died"},
		"a rejected configuration, a Job": {files: with(hooked(istio, ended, fails, "OnFailure", quote.Replace(late)), "istio-proxy.log", wrong, "app.previous.log", refused), want: "found configuration-rejected", says: "restartPolicy OnFailure it is not started again, so that each later call is refused", not: broken + "|control plane runs"},
		"no certificate":                  {files: with(hooked(istio, again, runs, "Always", ""), "istio-proxy.previous.log", "2026-03-02T10:05:20.000000Z\terror\tcache\tfailed to warm certificate: failed to generate workload certificate: rpc error: code = Internal\n"), want: "found no-certificate", not: broken},
		"Linkerd in fail-fast":            {files: with(hooked(strings.ReplaceAll(strings.Replace(istio, "istio-proxy", "linkerd-proxy", 1), "pilot-agent, wait", "linkerd-await"), again, runs, "Always", ""), "linkerd-proxy.previous.log", "[     3.1s]  WARN ThreadId(02) identity:identity{server.addr=linkerd-identity-headless.linkerd.svc:8080}:controller{addr=linkerd-identity-headless.linkerd.svc:8080}: linkerd_stack::failfast: Service entering failfast after 3s\n"), want: "found no-control-plane", not: broken},
		"App Mesh, a shell, no log":       {files: hooked(appmesh, again, runs, "Always", ""), want: "found proxy-not-ready", says: "envoy was not ready in time for its postStart hook, and so is ended, and why is not known without its log", not: broken},
		"Kuma says nothing":               {files: with(hooked(kuma, again, runs, "Always", ""), "kuma-sidecar.previous.log", "2026-03-02T10:05:01Z\tINFO\tkuma-dp.run\tstarting Kuma DP\n"), want: "found proxy-not-ready", not: broken},
		"it is healed":                    {files: with(hooked(istio, healed, strings.Replace(runs, "01:06", "01:08", 1), "Always", quote.Replace(late)), "istio-proxy.previous.log", none), want: "nothing", says: "nothing is wrong now: istio-proxy was not ready in time for its postStart hook .*, was ended, and is ready since its restart; before, its log said: .*is Pilot running", not: broken},
		"restartPolicy Never":             {files: with(hooked(istio, ended, strings.Replace(fails, "4", "0", 1), "Never", quote.Replace(late)), "istio-proxy.log", wrong), says: "restartPolicy Never it is not started again", not: broken},
		"a message of several lines":      {files: hooked(istio, strings.Replace(again, "not ready", `not ready\n, message: \"timeout\"`, 1), runs, "Always", ""), not: `hook[^\n]*not ready\n|` + broken},

		"the command is not in the image":             {files: hooked(istio, strings.Replace(again, "exited with 1: not ready", "exited with 127: linkerd-await: command not found", 1), runs, "Always", ""), want: "found container-not-created"},
		"the hook of an application":                  {files: map[string]string{"pod.yaml": podStatusOf(`{phase: Running, containerStatuses: [{name: app, ready: false, restartCount: 2, state: {waiting: {reason: PostStartHookError, message: "command 'warm.sh' exited with 3"}}, lastState: {terminated: {exitCode: 143, startedAt: "2026-11-30T10:00:10Z", finishedAt: "2026-11-30T10:00:12Z"}}}]}`)}, want: "found container-not-created"},
		"in a pod that runs on":                       {files: with(hooked(istio, ended, fails, "Always", quote.Replace(late)), "istio-proxy.log", wrong), says: "rejects its configuration", not: "not started again"},
		"another proxy is started again":              {files: with(hooked(istio, again, fails, "Always", ""), "istio-proxy.previous.log", wrong), says: "rejects its configuration", not: "not started again"},
		"a proxy that failed, under OnFailure":        {files: with(hooked(istio, strings.Replace(ended, "exitCode: 0, reason: Completed", "exitCode: 137, reason: Error", 1), fails, "OnFailure", quote.Replace(late)), "istio-proxy.log", wrong), not: "not started again"},
		"it is ready and restarts for another reason": {files: hooked(istio, healed, strings.Replace(runs, "01:06", "01:08", 1), "Always", ""), not: "postStart hook"},
		"the hook failed and it is not ready yet":     {files: with(hooked(istio, strings.Replace(healed, "ready: true", "ready: false", 1), runs, "Always", quote.Replace(late)), "istio-proxy.previous.log", none), not: "nothing is wrong|is ready since"},
	})
}

// A proxy that says what it waits for is not without a reason; if that waits for the proxy, neither comes up.
func TestWaitsOfProxies(t *testing.T) {
	pod := func(proxy, app string) map[string]string {
		return map[string]string{"pod.yaml": `kind: Pod
metadata: {name: cart-1, namespace: shop, creationTimestamp: "2026-03-02T10:00:00Z"}
spec: {containers: [` + proxy + `, {name: cart, image: "cart:1", ` + app + `}]}
status:
  phase: Running
  conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-03-02T10:12:00Z"}]
  containerStatuses:
  - {name: ` + regexp.MustCompile(`name: ([a-z-]+)`).FindStringSubmatch(proxy)[1] + `, ready: false, started: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}}
  - {name: cart, ready: true, started: true, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:03Z"}}}
`}
	}
	const (
		dapr  = `{name: daprd, image: "daprio/daprd:1.14.4"}`
		istio = `{name: istio-proxy, image: "istio/proxyv2:1.24.1"}`
		port  = `ports: [{containerPort: 7070}]`
		waits = "time=\"2026-03-02T10:00:03.5Z\" level=info msg=\"application protocol: grpc. waiting on port 7070.  This will block until the app is listening on that port.\"\n"
		found = "time=\"2026-03-02T10:00:09.5Z\" level=info msg=\"application discovered on port 7070\"\n"
	)
	tell(t, map[string]episode{
		"it waits for the application":       {files: with(pod(dapr, port), "daprd.log", waits), want: "found proxy-not-ready", says: "daprd is not ready, since it waits until cart listens on port 7070", not: "does not say why|each other"},
		"each waits for the other (log)":     {files: with(pod(dapr, port), "daprd.log", waits, "cart.log", "2026-03-02T10:00:04Z sidecar at http://localhost:3500/v1.0/healthz is not ready, retrying\n"), want: "found proxy-not-ready", says: "daprd and cart wait for each other", not: "does not say why"},
		"each waits for the other (command)": {files: with(pod(dapr, port+`, command: [sh, -c, "until wget -q localhost:3500/v1.0/healthz; do sleep 1; done; exec cart"]`), "daprd.log", waits), says: "wait for each other"},
		"Envoy says its state":               {files: with(pod(istio, port), "istio-proxy.log", "2026-03-02T10:00:20.000000Z\tinfo\tEnvoy proxy is NOT ready: server is not live, current state is: INITIALIZING\n"), want: "found proxy-not-ready", says: "INITIALIZING", not: "does not say why"},

		"it found the application":     {files: with(pod(dapr, port), "daprd.log", waits+found), want: "found proxy-not-ready", says: "does not say why", not: "waits until"},
		"the application asks another": {files: with(pod(dapr, port), "daprd.log", waits, "cart.log", "2026-03-02T10:00:04Z waiting for http://localhost:9200 (not ready)\n"), not: "each other"},
		"it asks it without waiting":   {files: with(pod(dapr, port), "daprd.log", waits, "cart.log", "2026-03-02T10:00:04Z publishing to http://localhost:3500/v1.0/publish\n"), not: "each other"},
		"idle words":                   {files: with(pod(istio, port), "istio-proxy.log", "2026-03-02T10:00:20.000000Z\tinfo\twaiting for connections\n"), says: "does not say why"},
	})
}
