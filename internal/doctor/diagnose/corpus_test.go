package diagnose

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence/gather"
)

const incidents = "../../../testdata/incidents"

// An expectation is the result that the diagnosis of an incident should have.
type expectation struct {
	Verdict    result.Verdict    `json:"verdict"`
	Code       string            `json:"code"`
	Container  string            `json:"container"`
	Confidence result.Confidence `json:"confidence"` // empty: any
	Origin     string            `json:"origin"`     // "written" or "recorded"
	Split      string            `json:"split"`      // "rules": used to write the rules; "test": not looked at meanwhile
}

// mostWrong limits the number of cases of a split whose diagnosis differs from the expectation. The limits are only
// ever lowered. Another cause must never be diagnosed as a start-up race.
var mostWrong = map[string]int{"rules": 11, "test": 5}

// The diagnosis of each incident of the corpus is as expected. mostWrong limits the number of exceptions in each
// split. The test prints the confusion matrix of each split.
func TestIncidents(t *testing.T) {
	all := readExpectations(t)
	matrix := map[string]map[[2]string]int{}
	right, of, races := map[string]int{}, map[string]int{}, map[string][]string{}
	var verdicts strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		want := all[name]
		t.Run(name, func(t *testing.T) {
			got := diagnoseFolder(t, filepath.Join(incidents, name))
			wanted, is := want.key(), key(got)
			fmt.Fprintf(&verdicts, "%s: %s\n", name, got.Verdict)
			for _, f := range got.Findings {
				fmt.Fprintf(&verdicts, "  %s %s %q: %s\n", f.Code, f.Confidence, f.Container, f.Sentence)
			}
			if matrix[want.Split] == nil {
				matrix[want.Split] = map[[2]string]int{}
			}
			matrix[want.Split][[2]string{wanted, is}]++
			of[want.Split]++
			if wrong := want.compare(got); wrong != "" {
				t.Logf("%s\n%+v", wrong, got.Findings)
			} else {
				right[want.Split]++
			}
			if got.Verdict == result.Found && got.Findings[0].Code == "startup-race" && want.Code != "startup-race" {
				races[want.Split] = append(races[want.Split], name)
			}
		})
	}
	asRecorded(t, verdicts.String())
	for _, split := range slices.Sorted(maps.Keys(matrix)) {
		for _, k := range slices.SortedFunc(maps.Keys(matrix[split]), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
			mark := " "
			if k[0] != k[1] {
				mark = "!"
			}
			t.Logf("%-6s %3d %s want %-40s got %s", split, matrix[split][k], mark, k[0], k[1])
		}
		t.Logf("%s: %d of %d are right, %d %%", split, right[split], of[split], 100*right[split]/of[split])
		if len(races[split]) > 0 {
			t.Errorf("%s: false start-up races: %s", split, strings.Join(races[split], ", "))
		}
		if wrong := of[split] - right[split]; wrong > mostWrong[split] {
			t.Errorf("%s: %d are wrong, and %d were", split, wrong, mostWrong[split])
		}
	}
}

var update = flag.Bool("update", false, "write the golden file of verdicts")

// asRecorded compares the findings of all incidents with those that a reviewer has seen, right and wrong ones.
func asRecorded(t *testing.T, verdicts string) {
	t.Helper()
	const golden = "testdata/verdicts.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(verdicts), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(recorded), "\n"), strings.Split(verdicts, "\n")); d != "" {
		t.Errorf("findings that differ from %s (-recorded +got); if they are meant, go test -run TestIncidents -update\n%s", golden, d)
	}
}

// readExpectations reads the list of expectations, and checks that there is one for each folder.
func readExpectations(t *testing.T) map[string]expectation {
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
	for name, e := range all { // in any order: each is reported
		known := slices.Contains([]result.Verdict{result.Found, result.Nothing, result.Undecided}, e.Verdict) && slices.Contains([]string{"recorded", "written"}, e.Origin)
		if _, ok := mostWrong[e.Split]; !ok || !known || (e.Code == "") != (e.Verdict == result.Nothing) {
			t.Errorf("%s: verdict %q, code %q, origin %q, split %q", name, e.Verdict, e.Code, e.Origin, e.Split)
		}
	}
	return all
}

// compare returns the difference of a report to the expectation, or an empty string.
func (e expectation) compare(got result.Report) string {
	if wanted, is := e.key(), key(got); wanted != is {
		return fmt.Sprintf("%s, want %s", is, wanted)
	}
	if len(got.Findings) == 0 {
		return ""
	}
	f := got.Findings[0]
	if f.Container != e.Container {
		return fmt.Sprintf("container %q, want %q", f.Container, e.Container)
	}
	if e.Confidence != "" && f.Confidence != e.Confidence {
		return fmt.Sprintf("%s, want %s", f.Confidence, e.Confidence)
	}
	return ""
}

func (e expectation) key() string { return strings.TrimSpace(fmt.Sprintf("%s %s", e.Verdict, e.Code)) }

func key(r result.Report) string {
	if len(r.Findings) == 0 {
		return string(r.Verdict)
	}
	return fmt.Sprintf("%s %s", r.Verdict, r.Findings[0].Code)
}

func diagnoseFolder(t *testing.T, folder string) result.Report {
	t.Helper()
	return diagnoseWith(t, folder, Options{})
}

func diagnoseWith(t *testing.T, folder string, o Options) result.Report {
	t.Helper()
	set, err := gather.Read(t.Context(), gather.Options{}, folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Pods) != 1 {
		t.Fatalf("%d pods in %s", len(set.Pods), folder)
	}
	r, err := Diagnose(t.Context(), set.Pods[0], o)
	if err != nil {
		t.Fatal(err)
	}
	wellWorded(t, r)
	return r
}
