package inject

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// newerKey is a field of a newer Kubernetes.
const newerKey = "fromANewerKubernetes"

// newer gives the containers and volumes of a pod's JSON, and what is around them, a field
// that our types do not have; its value names its owner.
func newer(pod map[string]any) {
	spec := pod["spec"].(map[string]any)
	pod["metadata"].(map[string]any)[newerKey], spec[newerKey], pod[newerKey] = "metadata", "spec", "pod"
	for name, owner := range owners(pod) {
		owner[newerKey] = name
		if resources, _ := owner["resources"].(map[string]any); len(resources) == 0 {
			delete(owner, "resources") // as most authors write it
		}
	}
}

// owners are the containers and volumes of a pod's JSON.
func owners(pod map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	for list, what := range map[string]string{"initContainers": "container ", "containers": "container ", "volumes": "volume "} {
		elements, _ := pod["spec"].(map[string]any)[list].([]any)
		for _, e := range elements {
			out[what+e.(map[string]any)["name"].(string)] = e.(map[string]any)
		}
	}
	return out
}

// keepsTheNewer: whatever is still there has its field still.
func keepsTheNewer(t testing.TB, given []string, got map[string]any) {
	t.Helper()
	spec := got["spec"].(map[string]any)
	if got[newerKey] != "pod" || spec[newerKey] != "spec" || got["metadata"].(map[string]any)[newerKey] != "metadata" {
		t.Error("the patch lost a field of pod, spec or metadata that it does not know")
	}
	after := owners(got)
	for _, name := range given {
		if owner, stays := after[name]; stays && owner[newerKey] != name {
			t.Errorf("the patch lost a field of the %s that it does not know: %v", name, owner[newerKey])
		}
	}
}

// patched: the patch makes the injected pod of the given one, as the API server's library
// applies it, and keeps fields that our types do not have.
func patched(t testing.TB, given *corev1.Pod, r Result) {
	t.Helper()
	ops := Diff(given, r.Pod)
	got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(given)
	if err != nil {
		t.Fatal(err)
	}
	newer(got)
	had := sortedKeys(owners(got))
	doc, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	if doc, err = steps.Apply(doc); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	got = nil
	if err := json.Unmarshal(doc, &got); err != nil {
		t.Fatal(err)
	}
	keepsTheNewer(t, had, got)
	var pod corev1.Pod
	if err := json.Unmarshal(doc, &pod); err != nil {
		t.Fatal(err)
	}
	if diff := podDiff(r.Pod, &pod); diff != "" {
		t.Errorf("the patch makes another pod (-want +got):\n%s", diff)
	}
}

// A patch does not depend on what injection does: any pod becomes any other one, whatever
// is added, left out, moved within a list or between two.
func TestAnyPodBecomesAnyOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pod := func() *corev1.Pod {
		p := podOf(t, randomPod(rng.IntN))
		if r, err := Pod(p, Namespace{Name: "shop"}, randomOptions(t, rng.IntN)); err == nil && rng.IntN(2) == 0 {
			p = r.Pod.DeepCopy()
		}
		rng.Shuffle(len(p.Spec.Containers), func(i, j int) {
			p.Spec.Containers[i], p.Spec.Containers[j] = p.Spec.Containers[j], p.Spec.Containers[i]
		})
		if n := len(p.Spec.Containers); n > 1 && rng.IntN(3) == 0 {
			p.Spec.InitContainers = append(p.Spec.InitContainers, p.Spec.Containers[n-1])
			p.Spec.Containers = p.Spec.Containers[:n-1]
		}
		c := &p.Spec.Containers[0]
		for _, protocol := range []corev1.Protocol{"TCP", "UDP", "SCTP"}[rng.IntN(4):] { // one port, twice or more
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: 53, Protocol: protocol})
		}
		c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse([]string{"1", "1000m", "2"}[rng.IntN(3)])}
		return p
	}
	for range 500 {
		before, after := pod(), pod()
		patched(t, before, Result{Pod: after})
		if t.Failed() {
			a, _ := yaml.Marshal(before)
			b, _ := yaml.Marshal(after)
			t.Fatalf("before\n%s\nafter\n%s", a, b)
		}
	}
}
