package diagnose

import (
	"strings"
	"testing"
)

// A line of kubectl get pods, and what lies beside it, say together what neither says alone.
func TestWhatALineSaysWithOthers(t *testing.T) {
	const (
		head   = "NAME                    READY   STATUS     RESTARTS   AGE\n"
		well   = head + "till-7f5c9d8b4c-2kq8n   1/1     Running    0          19m\n"
		done   = head + "till-check-2kq8n        1/2     NotReady   0          8m4s\n"
		crash  = head + "till-7f5c9d8b4c-2kq8n   0/2     CrashLoopBackOff   5 (9s ago)    9m\n"
		events = `apiVersion: v1
kind: List
items:
- {kind: Event, apiVersion: v1, reason: FailedCreatePodSandBox, message: 'Failed to create pod sandbox: plugin type="some-cni" failed (add): no address is left', firstTimestamp: "2026-03-02T10:00:01Z", lastTimestamp: "2026-03-02T10:00:09Z", count: 2, involvedObject: {kind: Pod, name: till-7f5c9d8b4c-2kq8n, namespace: pay}}
- {kind: Event, apiVersion: v1, reason: Started, message: Started container till, firstTimestamp: "2026-03-02T10:00:31Z", lastTimestamp: "2026-03-02T10:00:31Z", count: 1, involvedObject: {kind: Pod, name: till-7f5c9d8b4c-2kq8n, namespace: pay, fieldPath: "spec.containers{till}"}}
`
		stern = "till-7f5c9d8b4c-2kq8n till 2026-03-02 10:00:08,304 WARNING call failed: 127.0.0.1:3500: connection refused\n" +
			"till-7f5c9d8b4c-2kq8n daprd time=\"2026-03-02T10:00:09.230Z\" level=fatal msg=\"Fatal error from runtime: component store: WRONGPASS invalid username-password pair\"\n" +
			"till-7f5c9d8b4c-2kq8n till 2026-03-02 10:00:18,304 WARNING call failed: 127.0.0.1:3500: connection refused\n"
		linkerd = "[     0.001900s]  INFO ThreadId(01) linkerd2_proxy: Inbound interface on 0.0.0.0:4143\n" +
			"[   602.882011s] ERROR ThreadId(02) daemon:identity: linkerd2_proxy_identity::certify: Received invalid certificate: invalid certificate: CertNotValidYet\n"
		certified = "[     0.017811s]  INFO ThreadId(02) daemon:identity: linkerd_app: Certified identity id=default.push\n"
		refusedIn = "[    TIMEs]  WARN ThreadId(01) inbound:server{port=8080}: linkerd_reconnect: Failed to connect error=Connection refused (os error 111)\n"
		anew      = `kind: Pod
metadata: {name: till-0, namespace: pay}
spec:
  initContainers: [{name: istio-init, args: [istio-iptables]}]
  containers: [{name: till}, {name: istio-proxy}]
status:
  phase: Running
  initContainerStatuses:
  - {name: istio-init, restartCount: 1, ready: false, state: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-05T10:00:00Z", finishedAt: "2026-03-05T10:00:00Z"}}}
  containerStatuses:
  - {name: till, restartCount: 0, ready: true, state: {running: {startedAt: "2026-03-02T10:00:04Z"}}}
  - {name: istio-proxy, restartCount: 0, ready: true, state: {running: {startedAt: "2026-03-02T10:00:04Z"}}}
`
	)
	for name, c := range map[string]struct { // in any order: subtests
		files map[string]string
		says  string
	}{
		"a failure at the start that is over":      {map[string]string{"pods.txt": well, "events.yaml": events}, "nothing is wrong now; at its start the pod's sandbox, or its network, cannot be created"},
		"a container that has completed":           {map[string]string{"pods.txt": done}, "a container has done its work, and another one runs on, so that the pod does not end"},
		"a helper that ends, and who calls it":     {map[string]string{"pods.txt": crash, "stern.txt": stern}, "daprd ended by itself: Fatal error from runtime"},
		"a proxy whose certificate does not count": {map[string]string{"pods.txt": strings.Replace(well, "1/1", "1/2", 1), "linkerd-proxy.log": linkerd}, "linkerd-proxy is not ready: its control plane was reached, but a certificate between the two is not accepted: CertNotValidYet"},
		"calls to a port where nothing listens": {map[string]string{"pods.txt": strings.Replace(well, "1/1", "2/2", 1), "app.log": "2022/11/03 07:50:02 http: listening on :9090\n", "linkerd-proxy.log": certified + strings.Replace(refusedIn, "TIME", "61.103921", 1)},
			"calls to the pod fail: they come to port 8080, where nothing listens; by its log, app listens on 9090"},
		"calls that came before it listened": {map[string]string{"pods.txt": strings.Replace(well, "1/1", "2/2", 1), "app.log": "2022/11/03 07:50:02 http: listening on :9090\n", "linkerd-proxy.log": certified + strings.Replace(refusedIn, "TIME", " 2.103921", 1)},
			"nothing is wrong as far as a line"},
		"a pod of the workload that is gone": {map[string]string{"pods.txt": well, "stern.txt": "+ till-7f5c9d8b4c-x7k2p › till\n+ till-7f5c9d8b4c-x7k2p › clerk\ntill-7f5c9d8b4c-x7k2p till panic: no licence for this host\ntill-7f5c9d8b4c-x7k2p clerk clerk is open\n"},
			"till ended by itself, as its log says: panic: no licence for this host"},
		"a pod of another workload": {map[string]string{"pods.txt": well, "stern.txt": "+ shop-6c8f9d7b4c-x7k2p › till\n+ shop-6c8f9d7b4c-x7k2p › clerk\nshop-6c8f9d7b4c-x7k2p till panic: no licence for this host\nshop-6c8f9d7b4c-x7k2p clerk clerk is open\n"},
			"nothing is wrong as far as a line"},
		"an init container that runs anew": {map[string]string{"pod.yaml": anew},
			"istio-init was run again, most likely since its container was removed from the node, and fails, as what its first run has set up is there; till runs on"},
		"an init container that fails at the pod's start": {map[string]string{"pod.yaml": strings.ReplaceAll(anew, "03-02", "03-05")}, "istio-init, which sets up the capture, failed"},
	} {
		t.Run(name, func(t *testing.T) {
			if said := saidOf(t, c.files); !strings.Contains(said, c.says) {
				t.Errorf("it says %s\nwant %s", said, c.says)
			}
		})
	}
}

// The last words of a log that have no time of their own are of its end, however old the last line with a time is.
func TestLastWordsWithoutATime(t *testing.T) {
	const pod = `kind: Pod
metadata: {name: till-0, namespace: pay}
spec: {containers: [{name: till}]}
status:
  phase: Running
  containerStatuses:
  - {name: till, restartCount: 1, ready: true, state: {running: {startedAt: "2026-03-02T10:09:20Z"}}, lastState: {terminated: {exitCode: 134, startedAt: "2026-03-02T10:00:04Z", finishedAt: "2026-03-02T10:09:19Z"}}}
`
	const log = "2026-03-02T10:00:05Z info open\n2026-03-02T10:04:05Z info all goods are counted anew\n\n<--- JS stacktrace --->\n\nFATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\n 1: 0xb9a330 node::Abort() [node]\n"
	for text, want := range map[string]string{ // in any order: each is reported
		log: "till ended by itself: FATAL ERROR: Reached heap limit Allocation failed",
		log + "2026-03-02T10:09:18Z info the counting is done\n": "till ended by itself: it aborted",
	} {
		if r := diagnoseFiles(t, map[string]string{"pod.yaml": pod, "till.previous.log": text}); !strings.Contains(r.Sentence, want) {
			t.Errorf("it says %s\nwant %s", r.Sentence, want)
		}
	}
}
