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
