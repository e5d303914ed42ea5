package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/states"
)

// statusOf returns a pod that is two hours old with a status.
func podStatusOf(status string) string {
	return "kind: Pod\nmetadata: {name: a, namespace: shop, creationTimestamp: \"2026-11-30T10:00:00Z\"}\nspec: {containers: [{name: app, image: a:1}]}\nstatus: " + status + "\n"
}

// Each row of the tables gives the finding about a pod with its reason, with what to do. A row without a code is
// no finding by itself, and a reason of no row is one that is not known.
func TestEachState(t *testing.T) {
	for form, table := range map[string][]states.Meaning{
		`{phase: Pending, containerStatuses: [{name: app, state: {waiting: {reason: %q, message: %q}}}]}`:                                           states.Waiting,
		`{phase: Running, containerStatuses: [{name: app, state: {running: {}}, lastState: {terminated: {exitCode: 0, reason: %q, message: %q}}}]}`: states.Terminated,
		`{phase: Failed, reason: %q, message: %q}`:                                                                                                   states.Pod,
		`{phase: Running, conditions: [{type: DisruptionTarget, status: "True", reason: %q, message: %q}]}`:                                          states.Disruption,
		`{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: %q, message: %q, lastTransitionTime: "2026-11-30T12:00:00Z"}]}`: states.Unscheduled,
	} {
		for _, m := range table {
			message, reason := strings.Join(m.Says, " "), strings.Replace(m.Reason, "*", "cpu", 1)
			r := diagnoseFolder(t, folderOf(t, map[string]string{"pod.yaml": podStatusOf(fmt.Sprintf(form, reason, message))}))
			about := func(code string) bool {
				for _, f := range r.Findings {
					if string(f.Code) == code && (f.Remedy.Sentence != "" || m.Remedy == "") {
						return true
					}
				}
				return false
			}
			if m.Code != "" && !about(string(m.Code)) || m.Code == "" && strings.Contains(r.Sentence, "not known here") {
				t.Errorf("%s %q: %s %s", reason, message, key(r), r.Sentence)
			}
			if strings.Contains(r.Sentence, "{c}") {
				t.Errorf("%s: %s", reason, r.Sentence)
			}
		}
	}
	for _, status := range []string{`{phase: Failed, reason: Newer, message: m}`, `{phase: Pending, containerStatuses: [{name: app, state: {waiting: {reason: Newer}}}]}`,
		`{phase: Running, containerStatuses: [{name: app, state: {running: {}}, lastState: {terminated: {exitCode: 0, reason: Newer}}}]}`} {
		if r := diagnoseFolder(t, folderOf(t, map[string]string{"pod.yaml": podStatusOf(status)})); key(r) != "found state-not-known" || !strings.Contains(r.Sentence, "Newer") {
			t.Errorf("%s: %s %s", status, key(r), r.Sentence)
		}
	}
}

// Nothing is wrong only with a pod whose status says that it is well. What the status leaves out is unknown.
func TestWellIsProved(t *testing.T) {
	gated := strings.Replace(podStatusOf(`{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated, lastTransitionTime: "2026-11-30T10:00:01Z"}]}`),
		"spec: {", "spec: {schedulingGates: [{name: example.com/quota}], ", 1)
	for object, want := range map[string]string{
		podStatusOf(`{}`):               "undecided state-not-known: it is not known whether the pod is well: how its containers are is not in the evidence",
		podStatusOf(`{phase: Running}`): "undecided state-not-known: it is not known whether the pod is well: how its containers are is not in the evidence",
		podStatusOf(`{phase: Running, conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-11-30T12:00:00Z"}]}`): "nothing: nothing is wrong as far as the evidence shows; some of it is missing",
		podStatusOf(`{phase: Succeeded}`): "nothing: nothing is wrong as far as the evidence shows; some of it is missing",
		podStatusOf(`{phase: Failed}`):    "found state-not-known: the pod has failed, and the evidence does not say why",
		podStatusOf(`{phase: Pending}`):   "starting: the pod is starting: no container of the pod has started",
		podStatusOf(`{phase: Pending, conditions: [{type: Initialized, status: "True", lastTransitionTime: "2026-11-30T12:00:00Z"}]}`):                                          "found state-not-known: no container of the pod has started since 120 min 0 s, and the evidence does not say why",
		podStatusOf(`{phase: Running, conditions: [{type: Ready, status: "False", message: "unready: [app]", lastTransitionTime: "2026-11-30T12:00:00Z"}]}`):                    "found state-not-known: the pod is not ready (unready: [app]) since 120 min 0 s, and the evidence does not say why",
		podStatusOf(`{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3", lastTransitionTime: "2026-11-30T10:00:01Z"}]}`): "found not-scheduled: no node can run the pod: 0/3",
		gated: "starting: the pod is starting: no container of the pod has started (SchedulingGated)",
		strings.Replace(gated, "10:00:01", "12:00:00", 1): "found not-scheduled: the pod is not scheduled before its scheduling gates are removed",
	} {
		if r := diagnoseFolder(t, folderOf(t, map[string]string{"pod.yaml": object})); key(r)+": "+r.Sentence != want {
			t.Errorf("%s\n%s: %s\nwant %s", object, key(r), r.Sentence, want)
		}
	}
}

// Why an image cannot be pulled is in the message of the container, or of an event: the newest that tells counts.
func TestPulls(t *testing.T) {
	const event = "kind: Event\nmetadata: {name: e%d}\nreason: Failed\nmessage: %q\ninvolvedObject: {kind: Pod, namespace: shop, name: a, fieldPath: 'spec.containers{app}'}\nfirstTimestamp: \"2026-11-30T11:0%d:00Z\"\nlastTimestamp: \"2026-11-30T11:0%d:00Z\"\n"
	for _, c := range []struct{ want, message, older, newer string }{
		{"limits how often", `rpc error: unexpected status code https://r.example/v2/x/manifests/sha256:401403: 429 Too Many Requests - Server message: toomanyrequests: slow down`, "", ""},
		{"refuses access, or has no such image", `pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed`, "", ""},
		{"refuses access$", `failed to authorize: failed to fetch oauth token: unexpected status from GET request: 401 Unauthorized`, "", ""},
		{"has no such image$", `rpc error: code = NotFound desc = failed to resolve reference "r.example/a:1": r.example/a:1: not found`, "", ""},
		{"has no such image$", `Error response from daemon: manifest for r.example/a:1 not found: manifest unknown`, "", ""},
		{"does not trust", `Head "https://r.example/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority`, "", ""},
		{"is not valid now", `Get "https://r.example/v2/": x509: certificate has expired or is not yet valid: current time is after`, "", ""},
		{"does not resolve", `Get "https://r.example/v2/": dial tcp: lookup r.example on 10.0.0.2:53: no such host`, "", ""},
		{"does not reach", `Get "https://r.example/v2/": dial tcp 10.0.0.9:443: i/o timeout`, "", ""},
		{"node's CPU", `no match for platform in manifest: not found`, "", ""},
		{"does not reach", `Back-off pulling image "a:1"`, "manifest unknown", "dial tcp 10.0.0.9:443: connect: connection refused"},
		{"(ImagePullBackOff)$", `Back-off pulling image "a:1"`, "", ""},
	} {
		files := map[string]string{"pod.yaml": podStatusOf(fmt.Sprintf(`{phase: Pending, containerStatuses: [{name: app, state: {waiting: {reason: ImagePullBackOff, message: %q}}}]}`, c.message))}
		if c.older != "" {
			files["events.yaml"] = fmt.Sprintf(event+"---\n"+event, 1, c.older, 1, 1, 2, c.newer, 2, 2)
		}
		r := diagnoseFolder(t, folderOf(t, files))
		want, last := strings.CutSuffix(c.want, "$")
		if key(r) != "found image-missing" || !strings.Contains(r.Sentence, want) || last && !strings.HasSuffix(r.Sentence, want) {
			t.Errorf("%s\n%s %s\nwant %s", c.message, key(r), r.Sentence, c.want)
		}
	}
}

// The condition of a readiness gate says why it is not open, in the words of its controller.
func TestGateSaysWhy(t *testing.T) {
	pod := func(conditions, created string) string {
		object := podStatusOf(`{phase: Running, conditions: [` + conditions + `{type: ContainersReady, status: "True", lastTransitionTime: "2026-11-30T12:00:00Z"}], containerStatuses: [{name: app, ready: true, state: {running: {startedAt: "2026-11-30T10:00:02Z"}}}]}`)
		return strings.NewReplacer("spec: {", "spec: {readinessGates: [{conditionType: target-health.lb.example/web}, {conditionType: example.com/wired}], ", "T10:00:00Z", created).Replace(object)
	}
	const closed, wired = `{type: target-health.lb.example/web, status: "False", reason: Target.Unhealthy, message: "answered with these codes: [401]"}, `, `{type: example.com/wired, status: "True", lastTransitionTime: "2026-11-30T12:00:00Z"}, `
	for _, c := range []struct{ conditions, created, want, do string }{
		{closed + wired, "T10:00:00Z", "found state-not-known: the readiness gate target-health.lb.example/web is not open since 120 min 0 s: Target.Unhealthy: answered with these codes: [401]", "health check of the target group"},
		{closed + wired, "T11:59:00Z", "found state-not-known: the readiness gate target-health.lb.example/web is not open: Target.Unhealthy: answered with these codes: [401]", "health check of the target group"},
		{strings.Replace(closed, "Unhealthy", "Initial", 1) + wired, "T11:59:00Z", "starting: the pod is starting: the readiness gate target-health.lb.example/web is not open: Target.Initial: answered with these codes: [401]", ""},
		{wired, "T10:00:00Z", "found state-not-known: the readiness gate target-health.lb.example/web is not open since 120 min 0 s: no controller has set its condition yet", "target group"},
		{strings.NewReplacer("False", "True").Replace(closed[:len(closed)-3]) + `, lastTransitionTime: "2026-11-30T12:00:00Z"}, `, "T10:00:00Z", "found state-not-known: the readiness gate example.com/wired is not open since 120 min 0 s: no controller has set its condition yet", "controller that sets"},
	} {
		r := diagnoseFolder(t, folderOf(t, map[string]string{"pod.yaml": pod(c.conditions, c.created)}))
		if got := key(r) + ": " + r.Sentence; got != c.want || c.do != "" && !strings.Contains(r.Findings[0].Remedy.Sentence, c.do) {
			t.Errorf("%s\nwant %s: %+v", got, c.want, r.Findings)
		}
	}
}

// The status of a pod explains how its containers ended, if it says why the pod did. Without that, it is not known.
func TestEndOfAPodExplainsItsContainers(t *testing.T) {
	const lost = `containerStatuses: [{name: app, state: {terminated: {exitCode: 137, reason: ContainerStatusUnknown, message: "could not be located"}}}]`
	for status, want := range map[string]string{
		`{phase: Failed, reason: Evicted, message: "The node was low on resource: ephemeral-storage.", ` + lost + `}`: "found evicted 1",
		`{phase: Failed, ` + lost + `}`: "found node-lost 1",
		`{phase: Running, conditions: [{type: DisruptionTarget, status: "True", reason: TerminationByKubelet, message: "The node was low on resource: memory."}], ` + lost + `}`: "found evicted 1",
		`{phase: Failed, reason: Evicted, containerStatuses: [{name: app, state: {terminated: {exitCode: 128, reason: StartError, message: "no such file"}}}]}`:                  "found evicted 2",
	} {
		r := diagnoseFolder(t, folderOf(t, map[string]string{"pod.yaml": podStatusOf(status)}))
		if got := fmt.Sprintf("%s %d", key(r), len(r.Findings)); got != want {
			t.Errorf("%s\n%s, want %s: %s", status, got, want, r.Sentence)
		}
	}
}
