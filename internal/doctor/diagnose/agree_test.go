package diagnose

import (
	"encoding/json"
	"fmt"
	"maps"
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
	"outrider.dev/internal/doctor/diagnose/remedies"
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
	for _, of := range [][2]string{{podspec.OurProxy, "dev"}, {"istio-proxy", "1.26.2"}, {"istio-proxy", "1.23.1"}, {"linkerd-proxy", "edge-25.10.2"}, {"linkerd-proxy", "stable-2.15.1"}, {"kuma-sidecar", "2.9.1"}} {
		for p := remedies.Start; p <= remedies.Stronger; p++ {
			a := remedies.Of(remedies.Case{
				Purpose: p, Pod: &corev1.Pod{}, Owners: []evidence.Owner{{Kind: "Deployment", Name: "web"}}, Proxy: of[0], Image: "proxy:" + of[1], App: "web",
			})
			if a.Patch == "" { // the words say what to do
				continue
			}
			t.Run(fmt.Sprint(of, p), func(t *testing.T) {
				patched := merge(t, agreedWorkload, a.Patch)
				pod := &corev1.Pod{ObjectMeta: patched.Spec.Template.ObjectMeta, Spec: patched.Spec.Template.Spec}
				if pod.Annotations["kept"] != "yes" || len(pod.Annotations) != 2 {
					t.Fatalf("annotations %v", pod.Annotations)
				}
				delete(pod.Annotations, "kept")
				annotation := slices.Collect(maps.Keys(pod.Annotations))[0] // the only one
				if !settings.InFamily(annotation) {
					return // only another mesh reads this annotation
				}
				tried++
				keeps(t, pod, annotation, a.By)

				manifest, err := yaml.Marshal(patched)
				if err != nil {
					t.Fatal(err)
				}
				report, err := lint.Lint([]lint.File{{Name: "web.yaml", Data: manifest}}, lint.Options{Kubernetes: 34, Injected: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range report.Findings {
					if strings.Contains(f.Title+f.Field+f.Evidence, annotation) {
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
// annotation should, which is by a mechanism.
func keeps(t *testing.T, pod *corev1.Pod, annotation string, by startup.Mechanism) {
	t.Helper()
	r, err := inject.Pod(pod, inject.Namespace{Name: "shop"}, inject.Options{Manual: true, Kubernetes: 34})
	if err != nil || !r.Injected {
		t.Fatalf("%+v: %v", r.Reason, err)
	}
	if why, is := r.NoEffect[annotation]; is {
		t.Errorf("%s has no effect: %s", annotation, why)
	}
	run, err := podrun.Of(r.Pod, 34)
	if err != nil {
		t.Fatal(err)
	}
	asGood := startup.Preferred[:slices.Index(startup.Preferred, by)+1]
	for _, e := range run.Plan.Expand().Edges {
		if e.From == podspec.OurProxy && e.To == "web" && slices.Contains(asGood, e.By) {
			return
		}
	}
	t.Errorf("no edge from the proxy to web by one of %s: %v", asGood, run.Plan.Edges)
}
