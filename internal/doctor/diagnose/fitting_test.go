package diagnose

import (
	"strings"
	"testing"
)

// The advice fits what the evidence says: a limit of the pod is not the node's, and a call without an answer may have been
// dropped on its way.
func TestAdviceFits(t *testing.T) {
	evicted := func(message string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b}\nspec: {nodeName: n1, containers: [{name: c, image: i}]}\nstatus: {phase: Failed, reason: Evicted, message: '" + message + "'}\n"
	}
	const ended = `apiVersion: v1
kind: Pod
metadata: {name: a, namespace: b}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
status:
  phase: Running
  startTime: "2026-04-02T10:00:00Z"
  containerStatuses:
  - {name: c, ready: false, restartCount: 0, state: {terminated: {exitCode: 1, reason: Error, startedAt: "2026-04-02T10:00:02Z", finishedAt: "2026-04-02T10:00:36Z"}}}
`
	const ownLimit, policies = "raise the limit that the message is about", "NetworkPolicies that select this pod"
	for name, c := range map[string]struct{ pod, log, says, not string }{ // in any order: subtests
		"the limits of all containers": {evicted("Pod ephemeral local storage usage exceeds the total limit of containers 3Gi. "), "", ownLimit, "what else fills the node"},
		"the limit of one container":   {evicted("Container c exceeded its local ephemeral storage limit \"1Gi\". "), "", ownLimit, "so that the scheduler counts it"},
		"the limit of a volume":        {evicted("Usage of EmptyDir volume \"tmp\" exceeds the limit \"1Gi\". "), "", ownLimit, "so that the scheduler counts it"},
		"the node's disk":              {evicted("The node was low on resource: ephemeral-storage. Container c was using 9Gi, request is 0."), "", "see what else fills the node", ownLimit},
		"a call without an answer":     {ended, "2026-04-02T10:00:35Z dial tcp 10.30.2.9:3306: i/o timeout\n", policies, "let c retry"},
		"a host without a route":       {ended, "2026-04-02T10:00:35Z dial tcp 10.30.2.9:3306: connect: no route to host\n", policies, "let c retry"},
		"a call that was refused":      {ended, "2026-04-02T10:00:35Z dial tcp 10.30.2.9:3306: connect: connection refused\n", "has endpoints", policies},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"pod.yaml": c.pod}
			if c.log != "" {
				files["c.log"] = c.log
			}
			r := diagnoseFiles(t, files)
			if len(r.Findings) == 0 {
				t.Fatal(r.Sentence)
			}
			if do := r.Findings[0].Remedy.Sentence; !strings.Contains(do, c.says) || strings.Contains(do, c.not) {
				t.Errorf("%s: %s", key(r), do)
			}
		})
	}
}
