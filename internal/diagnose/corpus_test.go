package diagnose

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/evidence"
)

const incidents = "../../testdata/incidents"

// An expectation is what a diagnosis of an incident is to come to.
type expectation struct {
	Verdict    Verdict    `json:"verdict"`
	Code       string     `json:"code"`
	Container  string     `json:"container"`
	Confidence Confidence `json:"confidence"` // empty: any
	Origin     string     `json:"origin"`     // written, or recorded
	Split      string     `json:"split"`      // rules, or test: kept aside while rules are written
}

// Each incident of the corpus is diagnosed from its folder alone, and the confusion matrix of each
// split is printed.
func TestIncidents(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(incidents, "expected.yaml"))
	all := map[string]expectation{}
	if err == nil {
		err = yaml.UnmarshalStrict(text, &all)
	}
	if err != nil || len(all) == 0 {
		t.Fatalf("no incidents: %v", err)
	}
	folders, err := filepath.Glob(incidents + "/*/pod.yaml")
	if err != nil || len(folders) != len(all) {
		t.Errorf("%d folders, and %d expectations, %v", len(folders), len(all), err)
	}
	matrix := map[string]map[[2]string]int{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		folder, want := filepath.Join(incidents, name), all[name]
		t.Run(filepath.Base(folder), func(t *testing.T) {
			got := diagnoseFolder(t, folder)
			wanted, is := want.key(), key(got)
			if matrix[want.Split] == nil {
				matrix[want.Split] = map[[2]string]int{}
			}
			matrix[want.Split][[2]string{wanted, is}]++
			if wanted != is {
				t.Errorf("%s, want %s", is, wanted)
			}
			if len(got.Findings) == 0 {
				return
			}
			f := got.Findings[0]
			if f.Container != want.Container {
				t.Errorf("container %q, want %q", f.Container, want.Container)
			}
			if want.Confidence != "" && f.Confidence != want.Confidence {
				t.Errorf("%s, want %s", f.Confidence, want.Confidence)
			}
			if t.Failed() {
				var b strings.Builder
				got.Text(&b, 120, nil)
				t.Log("\n" + b.String())
			}
		})
	}
	for _, split := range slices.Sorted(maps.Keys(matrix)) {
		right, all := 0, 0
		for _, k := range slices.SortedFunc(maps.Keys(matrix[split]), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
			n := matrix[split][k]
			all += n
			if k[0] == k[1] {
				right += n
			}
			t.Logf("%-6s %3d  want %-40s got %s", split, n, k[0], k[1])
		}
		t.Logf("%s: %d of %d are right", split, right, all)
	}
}

func (e expectation) key() string { return strings.TrimSpace(fmt.Sprintf("%s %s", e.Verdict, e.Code)) }

func key(r Report) string {
	if len(r.Findings) == 0 {
		return string(r.Verdict)
	}
	return fmt.Sprintf("%s %s", r.Verdict, r.Findings[0].Code)
}

func diagnoseFolder(t *testing.T, folder string) Report {
	t.Helper()
	set, err := evidence.Read(t.Context(), evidence.Options{}, folder)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if len(set.Pods) != 1 {
		t.Fatalf("%d pods in %s", len(set.Pods), folder)
	}
	r, err := Diagnose(t.Context(), set.Pods[0], Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
