package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

// An aside is a pod with what its diagnosis must say beside its first sentence, and what it must not, since that would be
// false or of no use there.
type aside struct {
	pod    smallPod
	starts string // its start, in place of its creation's time; empty: the same
	first  string // the code of the first finding; empty: any
	says   []string
	never  []string
}

func anEvent(reason, container, at, message string) string {
	field := ""
	if container != "" {
		field = ", fieldPath: 'spec.containers{" + container + "}'"
	}
	return fmt.Sprintf("---\nkind: Event\nmetadata: {name: e%s}\nreason: %s\nmessage: %q\nsource: {component: kubelet}\ninvolvedObject: {kind: Pod, namespace: shop, name: web%s}\nfirstTimestamp: \"2026-03-02T%sZ\"\nlastTimestamp: \"2026-03-02T%sZ\"\n", strings.ReplaceAll(at, ":", ""), reason, message, field, at, at)
}

func TestAsides(t *testing.T) {
	const (
		mirror   = `annotations: {kubernetes.io/config.source: file, kubernetes.io/config.mirror: "93"}, ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: u}], `
		node     = `nodeName: n1, `
		lost     = `restartCount: 1, state: {terminated: {exitCode: 137, reason: ContainerStatusUnknown, message: "The container could not be located when the pod was terminated", startedAt: null, finishedAt: null}}, lastState: {terminated: {exitCode: 137, reason: ContainerStatusUnknown, message: "The container could not be located when the pod was deleted", startedAt: null, finishedAt: null}}`
		lostOnce = `restartCount: 1, ready: true, state: {running: {startedAt: "2026-03-02T10:09:02Z"}}, lastState: {terminated: {exitCode: 137, reason: ContainerStatusUnknown, message: "The container could not be located when the pod was terminated", startedAt: null, finishedAt: null}}`
		evicted  = `phase: Failed, reason: Evicted, message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi."`
		noImage  = `state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image a"}}`
		noKey    = `state: {waiting: {reason: CreateContainerConfigError, message: "secret \"db\" not found"}}`
		creating = `state: {waiting: {reason: ContainerCreating}}`
		pending  = `phase: Pending`
		deleted  = `deletionTimestamp: "2026-03-02T10:05:30Z", deletionGracePeriodSeconds: 30, `
		madeUp   = `restartCount: 0, state: {terminated: {exitCode: 137, reason: ContainerStatusUnknown, message: "The container could not be located when the pod was terminated", startedAt: null, finishedAt: null}}`
		ended    = `restartCount: 0, state: {terminated: {exitCode: 0, reason: Completed, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:05:03Z"}}`
		crashed  = `restartCount: 9, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-03-02T10:20:02Z", finishedAt: "2026-03-02T10:20:03Z"}}`
		panics   = "2026-03-02T10:20:02.900Z panic: runtime error: index out of range [3] with length 3\n"
		unready  = `ready: false, started: false, restartCount: 0, state: {running: {startedAt: "2026-03-02T10:00:02Z"}}`
		certs    = "[    12.003555s]  WARN ThreadId(02) identity:identity{server.addr=linkerd-identity-headless.linkerd.svc.cluster.local:8080}:controller{addr=linkerd-identity-headless.linkerd.svc.cluster.local:8080}:endpoint{addr=10.42.1.5:8080}: linkerd_reconnect: Failed to connect error=endpoint 10.42.1.5:8080: "
		stream   = "2026-03-02T10:06:02.900Z\twarning\tenvoy config external/envoy/source/extensions/config_subscription/grpc/grpc_stream.h:152\tStreamAggregatedResources gRPC config stream to xds-grpc closed"
		nodes    = "NAME   STATUS     ROLES    AGE   VERSION\nn1     Ready      <none>   3m    v1.31.2\n"
	)
	proxied := func(name, line string) smallPod {
		return smallPod{spec: node, status: "phase: Running", appIs: runs, sideIs: unready, name: name, files: map[string]string{name + ".log": line}}
	}
	for name, c := range map[string]aside{ // in any order: subtests
		// Clocks.
		"a static pod starts before its mirror": {pod: smallPod{meta: mirror, spec: node, status: pending, appIs: noImage, sideIs: runs}, starts: `startTime: "2026-03-02T09:59:50Z"`, first: "image-missing", never: []string{"clock"}},
		"a static pod runs on when its mirror is made anew": {
			pod:   smallPod{meta: mirror, spec: node, status: `conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-03-02T09:30:00Z"}]`, appIs: strings.Replace(runs, "10:00:02", "09:30:02", 1), sideIs: runs, files: map[string]string{"events.yaml": anEvent("Pulled", "app", "10:10:00", "Container image \"a\" already present on machine")}},
			never: []string{"clock", "before the pod was created"},
		},
		"the clock of another node is behind": {pod: smallPod{spec: node, status: "phase: Running", appIs: crashed, sideIs: runs, files: map[string]string{"app.previous.log": panics}}, starts: `startTime: "2026-03-02T09:59:50Z"`, first: "app-crash", never: []string{"clock"}},
		// The end of the pod and that of its containers.
		"an eviction explains both lost runs of a container": {pod: smallPod{status: evicted, appIs: lost, sideIs: killed}, first: "evicted", never: []string{"node-lost"}},
		"a run that was lost before is told":                 {pod: smallPod{status: "phase: Running", appIs: lostOnce, sideIs: runs}, first: "node-lost"},
		"an evicted pod's probe is of no use": {
			pod:   smallPod{status: `phase: Running, conditions: [{type: DisruptionTarget, status: "True", reason: EvictionByEvictionAPI, message: "Eviction API: evicting", lastTransitionTime: "2026-03-02T10:05:30Z"}]`, meta: gone, spec: "", appIs: runs, sideIs: unwell, files: map[string]string{"events.yaml": answers503}},
			first: "evicted", never: []string{"probe-fails"},
		},
		"a pod is deleted, of which a container never ran": {pod: smallPod{meta: deleted, spec: node, status: "phase: Failed", appIs: madeUp, sideIs: ended, name: "linkerd-proxy"}, never: []string{"node-lost", "state-not-known", "app-crash"}},
		"a pod is deleted, of which a container was lost":  {pod: smallPod{meta: deleted, spec: node, status: "phase: Failed", appIs: madeUp + `, lastState: {terminated: {exitCode: 137, reason: ContainerStatusUnknown, message: "The container could not be located when the pod was deleted.  The container used to be Running", startedAt: null, finishedAt: null}}`, sideIs: ended}, first: "node-lost"},
		"events tell what a deleted pod had not": {
			pod:   smallPod{meta: deleted, spec: node, status: "phase: Pending", appIs: creating, sideIs: runs, files: map[string]string{"events.yaml": anEvent("Failed", "app", "10:01:00", "Error: ErrImagePull")}},
			first: "image-missing", never: []string{"app waits"},
		},
		// A step that was over when the next one began.
		"the pod has got a node, and its image is missing": {pod: smallPod{spec: node, status: pending, appIs: noImage, sideIs: creating, files: map[string]string{"events.yaml": anEvent("FailedScheduling", "", "10:00:01", "0/3 nodes are available: 3 Insufficient cpu.")}}, first: "image-missing", never: []string{"not-scheduled", "no node can run"}},
		"the pod has got a node, and its volume is missing": {
			pod:   smallPod{spec: node, status: pending, appIs: creating, sideIs: creating, files: map[string]string{"events.yaml": anEvent("FailedScheduling", "", "10:00:01", "0/3 nodes are available: 3 Insufficient cpu.") + anEvent("FailedMount", "", "10:05:01", "MountVolume.SetUp failed for volume \"c\" : configmap \"c\" not found")}},
			first: "volume-missing", never: []string{"not-scheduled"},
		},
		"the volume is mounted, and the configuration is missing": {pod: smallPod{spec: node, status: pending, appIs: noKey, sideIs: creating, files: map[string]string{"events.yaml": anEvent("FailedMount", "", "10:00:03", "MountVolume.SetUp failed for volume \"c\" : failed to sync configmap cache: timed out waiting for the condition")}}, first: "config-missing", never: []string{"volume-missing"}},
		"the sandbox came at last, and the image is missing":      {pod: smallPod{spec: node, status: pending, appIs: noImage, sideIs: creating, files: map[string]string{"events.yaml": anEvent("FailedCreatePodSandBox", "", "10:00:05", "plugin type=\"calico\" failed (add): not ready yet")}}, first: "image-missing", never: []string{"no-sandbox"}},
		"no node yet":         {pod: smallPod{status: pending, files: map[string]string{"events.yaml": anEvent("FailedScheduling", "", "10:00:01", "0/3 nodes are available: 3 Insufficient cpu.")}, appIs: creating, sideIs: creating}, first: "not-scheduled"},
		"no volume yet":       {pod: smallPod{spec: node, status: pending, appIs: creating, sideIs: creating, files: map[string]string{"events.yaml": anEvent("FailedMount", "", "10:05:01", "MountVolume.SetUp failed for volume \"c\" : configmap \"c\" not found")}}, first: "volume-missing"},
		"no sandbox yet":      {pod: smallPod{spec: node, status: pending, appIs: creating, sideIs: creating, files: map[string]string{"events.yaml": anEvent("FailedCreatePodSandBox", "", "10:00:05", "plugin type=\"calico\" failed (add): not ready yet")}}, first: "no-sandbox"},
		"nothing is pulled":   {pod: smallPod{spec: node, status: pending, appIs: `state: {waiting: {reason: ErrImageNeverPull, message: "Container image \"a\" is not present with pull policy of Never"}}`, sideIs: runs}, first: "image-missing", never: []string{"cannot be pulled"}},
		"no name of an image": {pod: smallPod{spec: node, status: pending, appIs: `state: {waiting: {reason: InvalidImageName, message: "Failed to apply default image tag \"A:b:c\""}}`, sideIs: runs}, first: "image-missing", never: []string{"cannot be pulled", "pull secret"}},
		// The control plane of a proxy.
		"its certificate is refused":        {pod: proxied("linkerd-proxy", certs+"invalid peer certificate: BadSignature\n"), first: "no-certificate", says: []string{"certificate"}, never: []string{"does not reach", "NetworkPolicy"}},
		"its certificate is of another CA":  {pod: proxied("linkerd-proxy", certs+"invalid peer certificate: UnknownIssuer\n"), first: "no-certificate", never: []string{"does not reach"}},
		"it is not reached":                 {pod: proxied("linkerd-proxy", certs+"Connection refused (os error 111)\n"), first: "no-control-plane", says: []string{"does not reach"}},
		"the control plane refuses a proxy": {pod: proxied("istio-proxy", stream+" since 40s ago: 16, authentication failure\n"), first: "no-certificate", never: []string{"does not reach", "NetworkPolicy"}},
		"it does not reach Istio's":         {pod: proxied("istio-proxy", stream+" since 40s ago: 14, connection error: desc = \"transport: Error while dialing: dial tcp 10.96.0.5:15012: connect: connection refused\"\n"), first: "no-control-plane"},
		"by TLS it was reached":             {pod: proxied("istio-proxy", stream+" since 40s ago: 14, connection error: desc = \"transport: authentication handshake failed: x509: certificate signed by unknown authority\"\n"), first: "no-certificate", never: []string{"does not reach"}},
		"a stream that is closed as usual":  {pod: proxied("istio-proxy", stream+": 0, \n"), never: []string{"does not reach"}},
		// Remarks.
		"a panic is none of a young node's":       {pod: smallPod{spec: node, status: "phase: Running", appIs: crashed, sideIs: runs, files: map[string]string{"app.previous.log": panics, "nodes.txt": nodes}}, first: "app-crash", never: []string{"3 min", "node n1 is Ready", "its runs nothing is known"}},
		"a sandbox may be one of a young node's":  {pod: smallPod{spec: node, status: pending, appIs: creating, sideIs: creating, files: map[string]string{"nodes.txt": nodes, "events.yaml": anEvent("FailedCreatePodSandBox", "", "10:00:05", "plugin type=\"calico\" failed (add): not ready yet")}}, first: "no-sandbox", says: []string{"node n1 is Ready"}},
		"a static pod needs no change for others": {pod: smallPod{meta: mirror, spec: node + "hostNetwork: true, ", status: "phase: Running", appIs: crashed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:20:02.900Z dial tcp 10.9.9.9:2379: connect: connection refused\n"}}, first: "dependency-down", never: []string{"change it in its file"}},
		"a static pod's own fault is in its file": {pod: smallPod{meta: mirror, spec: node, status: "phase: Running", appIs: crashed, sideIs: runs, files: map[string]string{"app.previous.log": "2026-03-02T10:20:02.900Z Error: unknown flag: --enable-thing\n"}}, first: "app-crash", says: []string{"change it in its file"}},
		"an undecided end says what is not known": {pod: smallPod{status: "phase: Running", appIs: crashed, sideIs: runs}, first: "app-crash", says: []string{"of 9 of its runs nothing is known"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := c.pod.texts()
			if c.starts != "" {
				files["pod.yaml"] = strings.Replace(files["pod.yaml"], `startTime: "2026-03-02T10:00:00Z"`, c.starts, 1)
			}
			r := diagnoseFiles(t, files)
			all := wordsOf(r)
			if len(r.Findings) == 0 && c.first != "" || c.first != "" && string(r.Findings[0].Code) != c.first {
				t.Errorf("want first %s\n%s", c.first, all)
			}
			for _, text := range c.says {
				if !strings.Contains(all, text) {
					t.Errorf("%q is missing\n%s", text, all)
				}
			}
			for _, text := range c.never {
				if strings.Contains(all, text) {
					t.Errorf("%q is said\n%s", text, all)
				}
			}
		})
	}
}

// wordsOf returns all that a report says, but the quotes of the evidence that are not its own words.
func wordsOf(r result.Report) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", r.Verdict, r.Sentence)
	for _, f := range r.Findings {
		fmt.Fprintf(&out, "  %s %s %s: %s\n    do: %s\n    %s\n", f.Code, f.Confidence, f.Container, f.Sentence, f.Remedy.Sentence, f.Disproof)
		for _, q := range f.Evidence {
			if strings.HasPrefix(q.Text, "node ") {
				fmt.Fprintf(&out, "    %s\n", q.Text)
			}
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&out, "  note: %s\n", n)
	}
	return out.String()
}
