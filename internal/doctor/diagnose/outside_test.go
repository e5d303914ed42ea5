package diagnose

import (
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// meshedPod is a pod whose application has ended since its start, or runs; {mounts} has the mounts of the application, {other}
// the mounts of the proxy, {volumes} the volumes of the pod.
const meshedPod = `apiVersion: v1
kind: Pod
metadata: {name: till, namespace: shop, labels: {security.istio.io/tlsMode: istio}, annotations: {sidecar.istio.io/status: '{"version":"1"}'}}
spec:
  nodeName: node-7
  initContainers:
  - {name: istio-init, image: istio/proxyv2:1.20.0, args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, "", -b, "*", -d, "15090,15021,15020"]}
  containers:
  - {name: till, image: example.com/till:3, {mounts}}
  - {name: istio-proxy, image: istio/proxyv2:1.20.0, args: [proxy, sidecar], {other}}
  {volumes}
status:
  phase: Running
  startTime: "2026-04-02T10:00:00Z"
  initContainerStatuses:
  - {name: istio-init, ready: true, restartCount: 0, state: {terminated: {exitCode: 0, startedAt: "2026-04-02T10:00:01Z", finishedAt: "2026-04-02T10:00:01Z", reason: Completed}}}
  containerStatuses:
  - name: till
    ready: false
    restartCount: 0
    state: {terminated: {exitCode: 1, startedAt: "2026-04-02T10:00:02Z", finishedAt: "2026-04-02T10:00:06Z", reason: Error}}
  - name: istio-proxy
    ready: true
    restartCount: 0
    state: {running: {startedAt: "2026-04-02T10:00:02Z"}}
`

func meshed(mounts, other, volumes string) string {
	return strings.NewReplacer("{mounts}", mounts, "{other}", other, "{volumes}", volumes).Replace(meshedPod)
}

// The answer of kubectl in place of a log is no log of the container, and has no call of it.
func TestAnswersOfKubectlAreNoLog(t *testing.T) {
	const ready = "2026-04-02T10:00:09.500Z info Envoy proxy is ready\n"
	for name, c := range map[string]struct { // in any order: subtests
		log, missing string
		race         bool
	}{
		"the kubelet is down":  {"Error from server: Get \"https://10.9.1.4:10250/containerLogs/shop/till/till\": dial tcp 10.9.1.4:10250: connect: connection refused\n", "till.log has the answer of kubectl in its place: Error from server", false},
		"no API server":        {"Unable to connect to the server: dial tcp 10.9.0.1:6443: connect: connection refused\n", "till.log has the answer of kubectl in its place: Unable to connect", false},
		"below a log":          {"2026-04-02T10:00:03Z up\nError from server: Get \"https://10.9.1.4:10250/containerLogs/shop/till/till\": dial tcp 10.9.1.4:10250: connect: connection refused\n", "", false},
		"a call of its own":    {"2026-04-02T10:00:05Z dial tcp 10.9.1.4:8443: connect: connection refused\n", "", true},
		"a kubelet it watches": {"2026-04-02T10:00:05Z Get \"https://10.9.1.4:10250/metrics\": dial tcp 10.9.1.4:10250: connect: connection refused\n", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": meshed("tty: false", "tty: false", ""), "till.log": c.log, "istio-proxy.log": ready})
			if race := key(r) == "found startup-race"; race != c.race || c.missing != "" && !strings.Contains(strings.Join(r.Missing, "\n"), c.missing) {
				t.Errorf("%s: %s; missing: %q", key(r), r.Sentence, r.Missing)
			}
		})
	}
}

// A unix socket in a volume that nothing else of the pod has is served elsewhere.
func TestSocketsOfOthers(t *testing.T) {
	const (
		mounts   = "volumeMounts: [{name: agent, mountPath: /run/agent, readOnly: true}]"
		refused  = "2026-04-02T10:00:05Z dial unix /run/agent/api.sock: connect: connection refused\n"
		hostPath = "volumes: [{name: agent, hostPath: {path: /run/agent}}]"
		outside  = "another pod or the node itself serves it; the file is there"
	)
	for name, c := range map[string]struct{ mounts, other, volumes, log, says, not string }{ // in any order: subtests
		"a folder of the node":            {mounts, "tty: false", hostPath, refused, outside, "correct the address"},
		"the volumes are not shown":       {mounts, "tty: false", "", refused, outside, "correct the address"},
		"of a CSI driver":                 {mounts, "tty: false", "volumes: [{name: agent, csi: {driver: csi.example.com}}]", refused, outside, "looks like a default"},
		"a volume of the container alone": {mounts, "tty: false", "volumes: [{name: agent, emptyDir: {}}]", refused, "correct the address", outside},
		"another container mounts it":     {mounts, strings.Replace(mounts, "/run/agent", "/srv", 1), hostPath, refused, "", outside},
		"it lies in no volume":            {strings.Replace(mounts, "/run/agent", "/run/agents", 1), "tty: false", "", refused, "correct the address", outside},
		"TCP":                             {mounts, "tty: false", hostPath, "2026-04-02T10:00:05Z dial tcp 127.0.0.1:9000: connect: connection refused\n", "", outside},
	} {
		t.Run(name, func(t *testing.T) {
			r := diagnoseFiles(t, map[string]string{"pod.yaml": meshed(c.mounts, c.other, c.volumes), "till.log": c.log})
			if len(r.Findings) == 0 {
				t.Fatal(r.Sentence)
			}
			f := r.Findings[0]
			text := f.Sentence + " " + f.Remedy.Sentence
			if !strings.Contains(text, c.says) || strings.Contains(text, c.not) || c.says == outside && f.Confidence != result.Likely {
				t.Errorf("%s %s: %s", f.Code, f.Confidence, text)
			}
		})
	}
}
