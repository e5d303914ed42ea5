package patch_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/patch"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/startup"
	"outrider.dev/test/corpus"
)

// newerKey is the name of a field that only a newer Kubernetes has.
const newerKey = "fromANewerKubernetes"

// newer adds to the pod's JSON a field that our types do not have: in the pod, its metadata, its spec, and each
// container and volume. The field's value names the object that contains it.
func newer(pod map[string]any) {
	spec := pod["spec"].(map[string]any)
	pod["metadata"].(map[string]any)[newerKey], spec[newerKey], pod[newerKey] = "metadata", "spec", "pod"
	for name, owner := range owners(pod) {
		owner[newerKey] = name
		if resources, _ := owner["resources"].(map[string]any); len(resources) == 0 {
			delete(owner, "resources") // most authors leave it out
		}
	}
}

// owners returns the containers and volumes of a pod's JSON.
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

// keepsTheNewer checks that each object that remains in the pod still has the field.
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

// makes checks that the patch turns one pod into the other and keeps fields that our types do not have. It
// applies the patch with the library that the API server uses.
func makes(t *testing.T, before, after *corev1.Pod) {
	t.Helper()
	got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		t.Fatal(err)
	}
	newer(got)
	had := slices.Sorted(maps.Keys(owners(got)))
	doc, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(patch.Diff(before, after))
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
	if !equality.Semantic.DeepEqual(after, &pod) {
		t.Errorf("the patch makes another pod (-want +got):\n%s", cmp.Diff(after, &pod, cmpopts.EquateEmpty()))
	}
}

// corpusPods returns the pods of the corpus, and the same pods injected.
func corpusPods(t *testing.T) (given, injected []*corev1.Pod) {
	t.Helper()
	files, err := corpus.Sane()
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		if _, _, err := podfile.Rewrite(f.Name, f.Data, func(o podfile.Object) (*corev1.Pod, error) {
			r, err := inject.Pod(&o.Pod, inject.Namespace{Name: "shop"}, inject.Options{Manual: true, Kubernetes: []startup.Kubernetes{28, 34}[i%2], NodeServes: i%3 == 0})
			if o.NoPod == nil && err == nil && r.Injected {
				given, injected = append(given, &o.Pod), append(injected, r.Pod)
			}
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return given, injected
}

func TestAnInjectedPodIsMadeOfTheGivenOne(t *testing.T) {
	given, injected := corpusPods(t)
	if len(given) < 100 {
		t.Errorf("only %d pods were injected: the test shows little", len(given))
	}
	for i, pod := range given {
		makes(t, pod, injected[i])
	}
}

// A patch need not result from an injection: it can turn any pod into any other pod, by adding and removing
// elements and by moving them within a list or between two lists.
func TestAnyPodBecomesAnyOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	given, injected := corpusPods(t)
	all := slices.Concat(given, injected)
	pod := func() *corev1.Pod {
		p := all[rng.IntN(len(all))].DeepCopy()
		rng.Shuffle(len(p.Spec.Containers), func(i, j int) {
			p.Spec.Containers[i], p.Spec.Containers[j] = p.Spec.Containers[j], p.Spec.Containers[i]
		})
		if n := len(p.Spec.Containers); n > 1 && rng.IntN(3) == 0 {
			p.Spec.InitContainers = append(p.Spec.InitContainers, p.Spec.Containers[n-1])
			p.Spec.Containers = p.Spec.Containers[:n-1]
		}
		for i := range p.Spec.Containers { // names that other pods have too
			if p.Spec.Containers[i].Name != contract.ProxyContainer {
				p.Spec.Containers[i].Name = string(rune('a' + i))
			}
		}
		c := &p.Spec.Containers[0]
		for _, protocol := range []corev1.Protocol{"TCP", "UDP", "SCTP"}[rng.IntN(4):] { // the same port, twice or more
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: 53, Protocol: protocol})
		}
		c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse([]string{"1", "1000m", "2"}[rng.IntN(3)])}
		return p
	}
	for range 500 {
		before, after := pod(), pod()
		makes(t, before, after)
		if t.Failed() {
			a, _ := yaml.Marshal(before)
			b, _ := yaml.Marshal(after)
			t.Fatalf("before\n%s\nafter\n%s", a, b)
		}
	}
}
