package diagnose

import (
	"strings"
	"testing"
)

// The limit of a container that ran out of memory is held against the template.
func TestLimitOfTheTemplate(t *testing.T) {
	const killedByLimit = `restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled, startedAt: "2026-03-02T10:00:02Z", finishedAt: "2026-03-02T10:00:05Z"}}`
	set := func(kind, resources string) map[string]string {
		return map[string]string{"owner.yaml": "kind: " + kind + "\nmetadata: {name: web-1, namespace: shop}\nspec: {replicas: 1, template: {spec: {containers: [{name: app, " + resources + "}]}}}\nstatus: {replicas: 1}\n"}
	}
	for name, c := range map[string]struct {
		kind, template string
		says           string
	}{
		"another limit":                       {"ReplicaSet", "resources: {limits: {memory: 1Gi}}", "app ran out of memory: its limit is 64Mi, and 1Gi in the pod template: an admission webhook, a VerticalPodAutoscaler or a resize changed it"},
		"another limit of a Job":              {"Job", "resources: {limits: {memory: 1Gi}}", "1Gi in the pod template"},
		"none":                                {"ReplicaSet", "image: i", "and not set in the pod template: a LimitRange or an admission webhook"},
		"the same, written otherwise":         {"ReplicaSet", "resources: {limits: {memory: 65536Ki}}", ""},
		"of a kind whose template may change": {"StatefulSet", "resources: {limits: {memory: 1Gi}}", ""},
	} {
		p := smallPod{
			meta:   "ownerReferences: [{apiVersion: apps/v1, kind: " + c.kind + ", name: web-1, uid: u, controller: true}], ",
			status: "phase: Running", app: "resources: {limits: {memory: 64Mi}}", appIs: killedByLimit, sideIs: runs, files: set(c.kind, c.template),
		}
		r := diagnoseFolder(t, folderOf(t, p.texts()))
		if f := r.Findings[0]; f.Code != "out-of-memory" || c.says != "" && !strings.Contains(f.Sentence, c.says) || c.says == "" && f.Sentence != "app ran out of memory" {
			t.Errorf("%s: %s", name, f.Sentence)
		}
	}
}
