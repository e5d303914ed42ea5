// Package pods reads pods and plans for tests, from text and from files, and compares results for pods with golden
// files.
package pods

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/startup"
)

// Parse reads a pod from a manifest that lacks the line "kind: Pod".
func Parse(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	return &first(t, "pod.yaml", []byte("kind: Pod\n"+text)).Pod
}

// File reads the first pod of a file.
func File(t testing.TB, file string) *podfile.Object {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return first(t, filepath.Base(file), data)
}

func first(t testing.TB, name string, data []byte) *podfile.Object {
	t.Helper()
	objects, _, err := podfile.Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return &objects[0]
}

// Plan reads the text of a plan.
func Plan(t testing.TB, text string) startup.Plan {
	t.Helper()
	p, err := startup.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Has fails the test unless the first plan, which was read from a pod, has all edges and containers of the plan want.
func Has(t testing.TB, got, want startup.Plan) {
	t.Helper()
	at := startup.ByEnds(got.Edges)
	for _, e := range want.Expand().Edges {
		if i, has := at[e.Ends()]; !has || e.By != startup.InitDone && got.Edges[i] != e {
			t.Fatalf("requested %s\nread\n%s", e, got)
		}
	}
	for _, c := range want.Containers {
		if _, i := got.Find(c.Name); i < 0 {
			t.Fatalf("container %s is lost", c.Name)
		}
	}
}

// Each runs a test for each file that matches a pattern. At least ten files must match.
func Each(t *testing.T, pattern string, test func(t *testing.T, file string)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { test(t, file) })
	}
}

// Goldens calls the function render for each pod in a directory, and compares the result with the golden file next to
// the pod's file, which has the given suffix. UPDATE=1 writes the golden files.
func Goldens(t *testing.T, dir, suffix string, render func(*testing.T, *corev1.Pod) string) {
	Each(t, filepath.Join(dir, "*.yaml"), func(t *testing.T, file string) {
		got := render(t, &File(t, file).Pod)
		golden := strings.TrimSuffix(file, ".yaml") + suffix
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
