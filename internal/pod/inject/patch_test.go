package inject

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// newerKey is a field of a newer Kubernetes.
const newerKey = "fromANewerKubernetes"

// newer gives the containers and volumes of a pod's JSON, and what is around them, a field
// that nobody here knows; its value says whose it is.
func newer(pod map[string]any) {
	spec := pod["spec"].(map[string]any)
	pod["metadata"].(map[string]any)[newerKey], spec[newerKey], pod[newerKey] = "metadata", "spec", "pod"
	for name, owner := range owners(pod) {
		owner[newerKey] = name
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

// patched: the patch makes the injected pod from the given one, and keeps what it does
// not know.
func patched(t testing.TB, given *corev1.Pod, r Result) {
	t.Helper()
	ops, err := Diff(given, r.Pod)
	if err != nil {
		t.Fatal(err)
	}
	got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(given)
	if err != nil {
		t.Fatal(err)
	}
	newer(got)
	had := sortedKeys(owners(got))
	text, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	var steps []Operation
	if err := json.Unmarshal(text, &steps); err != nil {
		t.Fatal(err)
	}
	var doc any = got
	for _, op := range steps {
		doc = step(t, doc, op)
	}
	keepsTheNewer(t, had, doc.(map[string]any))
	text, err = json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	if diff := podDiff(r.Pod, &pod); diff != "" {
		t.Errorf("the patch makes another pod (-want +got):\n%s", diff)
	}
}

// step does one operation as RFC 6902 has it, strictly. A move is a remove and an add.
func step(t testing.TB, doc any, op Operation) any {
	t.Helper()
	split := func(path string) []string { return strings.Split(path, "/")[1:] }
	if op.Op != "move" {
		return patch(t, doc, split(op.Path), op)
	}
	value := at(t, doc, split(op.From))
	doc = patch(t, doc, split(op.From), Operation{Op: "remove", Path: op.From})
	return patch(t, doc, split(op.Path), Operation{Op: "add", Path: op.Path, Value: value})
}

func at(t testing.TB, doc any, path []string) any {
	t.Helper()
	for _, key := range path {
		switch d := doc.(type) {
		case map[string]any:
			doc = d[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(d) {
				t.Fatalf("%q: no element %s of %d", path, key, len(d))
			}
			doc = d[i]
		}
	}
	if doc == nil {
		t.Fatalf("%q: nothing is there", path)
	}
	return doc
}

// patch does one operation at the end of a path.
func patch(t testing.TB, doc any, path []string, op Operation) any {
	t.Helper()
	key := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	switch d := doc.(type) {
	case map[string]any:
		_, there := d[key]
		switch {
		case len(path) > 1:
			d[key] = patch(t, d[key], path[1:], op)
		case op.Op == "remove" && there:
			delete(d, key)
		case op.Op == "add" || op.Op == "replace" && there:
			d[key] = op.Value
		default:
			t.Fatalf("%s %s: not there", op.Op, op.Path)
		}
		return d
	case []any:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i > len(d) || i == len(d) && (op.Op != "add" || len(path) > 1) {
			t.Fatalf("%s %s: no element %s of %d", op.Op, op.Path, key, len(d))
		}
		switch {
		case len(path) > 1:
			d[i] = patch(t, d[i], path[1:], op)
		case op.Op == "remove":
			return slices.Delete(d, i, i+1)
		case op.Op == "add":
			return slices.Insert(d, i, op.Value)
		default:
			d[i] = op.Value
		}
		return d
	}
	t.Fatalf("%s %s: nothing is below", op.Op, op.Path)
	return nil
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
