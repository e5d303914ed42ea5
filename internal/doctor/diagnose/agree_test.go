package diagnose

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/podrun"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/lint"
	"outrider.dev/startup"
)

const agreedWorkload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {kept: "yes"}}
    spec:
      containers: [{name: web, image: example.com/web@sha256:0000000000000000000000000000000000000000000000000000000000000001, command: [/web]}]
`

// Every patch that a diagnosis prints is valid: the API server's merge accepts it, injection uses the mechanism that
// the replay tried or a better one, and lint has no finding about its annotation.
func TestPatchesAgree(t *testing.T) {
	tried := 0
	for table, ways := range map[string]map[string]way{"waiting": waiting, "stronger": stronger} { // in any order: subtests
		for proxy, w := range ways { // in any order: subtests
			if !settings.InFamily(w.annotation) {
				continue // only another mesh reads this annotation
			}
			tried++
			t.Run(table+"/"+proxy, func(t *testing.T) {
				s := &subject{Case: &chain.Case{Pod: &facts.Pod{Pod: &evidence.Pod{Object: &corev1.Pod{}, Owners: []evidence.Owner{{Kind: "Deployment", Name: "web"}}}}}}
				patched := merge(t, agreedWorkload, s.annotate(w))
				pod := &corev1.Pod{ObjectMeta: patched.Spec.Template.ObjectMeta, Spec: patched.Spec.Template.Spec}
				if pod.Annotations["kept"] != "yes" || pod.Annotations[w.annotation] != w.value {
					t.Fatalf("annotations %v", pod.Annotations)
				}
				keeps(t, pod, w)

				manifest, err := yaml.Marshal(patched)
				if err != nil {
					t.Fatal(err)
				}
				report, err := lint.Lint([]lint.File{{Name: "web.yaml", Data: manifest}}, lint.Options{Kubernetes: 34, Injected: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range report.Findings {
					if strings.Contains(f.Title+f.Field+f.Evidence, w.annotation) {
						t.Errorf("%s: %s", f.Code, f.Title)
					}
				}
			})
		}
	}
	if tried < 4 {
		t.Errorf("only %d ways are read by injection: the test looks in the wrong place", tried)
	}
}

// merge applies a patch to a workload, as kubectl patch does.
func merge(t *testing.T, workload, patch string) (out appsv1.Deployment) {
	t.Helper()
	before, err := yaml.YAMLToJSON([]byte(workload))
	if err != nil {
		t.Fatal(err)
	}
	change, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		t.Fatalf("%v\n%s", err, patch)
	}
	after, err := strategicpatch.StrategicMergePatch(before, change, appsv1.Deployment{})
	if err == nil {
		err = json.Unmarshal(after, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// keeps fails unless injection makes the application of the pod wait for the proxy at least as strictly as the
// annotation w does.
func keeps(t *testing.T, pod *corev1.Pod, w way) {
	t.Helper()
	r, err := inject.Pod(pod, inject.Namespace{Name: "shop"}, inject.Options{Manual: true, Kubernetes: 34})
	if err != nil || !r.Injected {
		t.Fatalf("%+v: %v", r.Reason, err)
	}
	if why, is := r.NoEffect[w.annotation]; is {
		t.Errorf("%s has no effect: %s", w.annotation, why)
	}
	run, err := podrun.Of(r.Pod, 34)
	if err != nil {
		t.Fatal(err)
	}
	asGood := startup.Preferred[:slices.Index(startup.Preferred, w.by)+1]
	for _, e := range run.Plan.Expand().Edges {
		if e.From == podspec.OurProxy && e.To == "web" && slices.Contains(asGood, e.By) {
			return
		}
	}
	t.Errorf("no edge from the proxy to web by one of %s: %v", asGood, run.Plan.Edges)
}
