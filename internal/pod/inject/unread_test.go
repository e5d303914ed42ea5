package inject

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is said to be unread is: pods that differ in nothing else are answered alike,
// whatever they are.
func TestNothingDependsOnWhatIsUnread(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	injected := 0
	for range 500 {
		text, o := randomPod(rng.IntN), randomOptions(t, rng.IntN)
		answer := func(n int) string {
			p := podOf(t, text)
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "shop", Controller: &yes}}
			unreadInto(t, p, n, append(Unread(o), UnreadName))
			r, err := Pod(p, Namespace{Name: "shop"}, o)
			if r.Injected {
				injected++
			}
			return answered(t, r, err)
		}
		if diff := cmp.Diff(answer(1), answer(2)); diff != "" {
			t.Fatalf("the answers to a pod with one name and with another differ:\n%s\n%s", diff, text)
		}
	}
	if injected < 400 {
		t.Errorf("only %d of 1000 were injected: the test shows little", injected)
	}
}

// A name that is the workload's, and a label that a selector asks for, are read.
func TestWhatIsReadIsNotSaidToBeUnread(t *testing.T) {
	selective := Options{Values: valuesOf(t, `sidecarInjectorWebhook: {neverInjectSelector: [{matchLabels: {apps.kubernetes.io/pod-index: unread-0-1}}]}`)}
	for name, tt := range map[string]struct {
		o    Options
		path []string
	}{
		"the name of a pod without a controller": {Options{}, UnreadName},
		"a label where there are selectors":      {selective, []string{"metadata", "labels", "apps.kubernetes.io/pod-index"}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(n int) string {
				p := podOf(t, "spec: {containers: [{name: app, image: a, command: [/app]}]}")
				unreadInto(t, p, n, [][]string{tt.path})
				r, err := Pod(p, Namespace{Name: "shop"}, tt.o)
				return answered(t, r, err)
			}
			if answer(1) == answer(2) {
				t.Error("it is not read: it need not be left out of Unread")
			}
			for _, path := range Unread(tt.o) {
				if cmp.Equal(path, tt.path) {
					t.Error("it is said to be unread")
				}
			}
		})
	}
}

// answered is all that a webhook makes of a result.
func answered(t *testing.T, r Result, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	ops, err := r.Patch()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]any{ops, r.Reason, r.Warnings, r.Notes, r.NoEffect})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// unreadInto puts a string that is n's own at the end of each path.
func unreadInto(t *testing.T, p *corev1.Pod, n int, paths [][]string) {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		doc = put(doc, path, fmt.Sprintf("unread-%d-%d", i, n))
	}
	if raw, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	*p = corev1.Pod{}
	if err := json.Unmarshal(raw, p); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		if want := fmt.Sprintf(`"unread-%d-%d"`, i, n); !strings.Contains(string(back), want) {
			t.Fatalf("%q leads to no string of a pod", path)
		}
	}
}

// put is doc with a value at a path, which is made as far as it is not there.
func put(doc any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "*" {
		list, _ := doc.([]any)
		return append(list, put(nil, path[1:], value))
	}
	object, _ := doc.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	object[path[0]] = put(object[path[0]], path[1:], value)
	return object
}
