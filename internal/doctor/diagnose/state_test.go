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
