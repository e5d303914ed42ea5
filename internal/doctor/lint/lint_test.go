package lint

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/lint/kinds"
	"outrider.dev/startup"
)

var update = flag.Bool("update", false, "write what lint reports into the scenarios")

// readScenario reads a txtar file with manifests, the expected findings of lint, and the expected diff of its fixes.
// The lines of the file's comment are options: "kube: 1.28", "injected".
func readScenario(t testing.TB, file string) (a *txtar.Archive, files []File, o Options) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(a.Comment)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "kube":
			n, err := strconv.Atoi(strings.TrimPrefix(value, "1."))
			if err != nil {
				t.Fatal(err)
			}
			o.Kubernetes = startup.Kubernetes(n)
		case "injected":
			o.Injected = true
		}
	}
	for _, f := range a.Files {
		if f.Name != "want" && f.Name != "fixed" {
			files = append(files, File{f.Name, f.Data})
		}
	}
	return a, files, o
}

func TestScenarios(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) < 8 {
		t.Fatalf("%v, %d scenarios", err, len(names))
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, files, o := readScenario(t, name)
			got := map[string]string{"want": reported(t, files, o), "fixed": fixedBy(t, files, o)}
			for _, file := range []string{"want", "fixed"} {
				i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == file })
				if *update {
					if i < 0 {
						a.Files = append(a.Files, txtar.File{Name: file})
						i = len(a.Files) - 1
					}
					a.Files[i].Data = []byte(got[file])
					continue
				}
				if i < 0 {
					t.Fatalf("the scenario has no %s", file)
				}
				if d := cmp.Diff(string(a.Files[i].Data), got[file]); d != "" {
					t.Errorf("%s (-want +got):\n%s", file, d)
				}
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func reported(t *testing.T, files []File, o Options) string {
	t.Helper()
	report, err := Lint(files, o)
	if err != nil {
		t.Fatal(err)
	}
	all := report.Findings
	for _, f := range all {
		if f.Line > 0 && (f.Text == "" || f.Column < 1 || f.Width < 1) || f.Title == "" || f.Remedy.Sentence == "" || f.Remedy.Command == "" || f.Why == "" {
			t.Errorf("%s: an incomplete finding: %+v", f.Code, f)
		}
	}
	var b strings.Builder
	if err := finding.WriteText(&b, all, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// fixedBy applies all fixes and returns the diff. The test fails if the fixed files still have a finding that was
// fixed, or any finding with a fix.
func fixedBy(t *testing.T, files []File, o Options) string {
	t.Helper()
	fixed, err := Fix(files, o, func(finding.Finding) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	report, err := Lint(fixed.Files, o)
	if err != nil {
		t.Fatalf("what the fixes wrote cannot be read: %v", err)
	}
	for _, f := range report.Findings {
		if f.Fix != nil || slices.ContainsFunc(fixed.Findings, func(d finding.Finding) bool {
			return d.Code == f.Code && d.Object == f.Object && d.Field == f.Field && d.Evidence == f.Evidence
		}) {
			t.Errorf("after all fixes there is still %s: %s", f.Code, f.Title)
		}
	}
	return string(fixed.Diff())
}

// A pod that is too large to be checked gets a finding, because without one it would seem to be fine.
func TestPodTooLarge(t *testing.T) {
	pod := func(annotation string, containers int) File {
		text := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations: {a: \"" + annotation + "\"}\nspec:\n  containers:\n"
		for i := range containers {
			text += fmt.Sprintf("  - {name: c%d, image: i}\n", i)
		}
		return File{"pod.yaml", []byte(text)}
	}
	for at, f := range map[string]File{"spec.containers": pod("", 301), "metadata.annotations": pod(strings.Repeat("a", 1<<18), 1)} {
		report, err := Lint([]File{f}, Options{Kubernetes: 34})
		if err != nil || len(report.Findings) == 0 || report.Findings[0].Code != "pod-too-large" || report.Findings[0].Field != at {
			t.Errorf("%s: %v, %v", at, report.Findings, err)
		}
	}
}

// The pods in podspec's test data get only the warnings that they deserve.
func TestPodsInOrderHaveNoWarning(t *testing.T) {
	want := map[string][]finding.Code{
		"annotated":     {"injection-refused", "job-never-ends"}, // container report has no command, so it cannot get a gate; cache is a server among the regular containers of a CronJob
		"istio-native":  nil,
		"plain":         nil,
		"tekton":        nil,
		"job":           {"proxy-not-awaited"}, // container db does not wait for the proxy
		"istio-hold":    {"hold-fails-open"},
		"linkerd":       {"hold-fails-open"},
		"kuma":          {"hold-fails-open"},
		"istio-regular": {"proxy-not-awaited"},
		"health-loop":   {"health-loop", "health-loop", "health-loop"},
		"sleep":         {"fixed-sleep", "post-start-probe"},

		"sleep-before-proxy": {"fixed-sleep"}, // for the sleep of app; the sleeps of containers before the proxy are only notes
	}
	files, err := filepath.Glob("../../core/pod/podspec/testdata/pods/*.yaml")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%v, %d pods, %d expected", err, len(files), len(want))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			report, err := Lint([]File{{file, data}}, Options{Kubernetes: 34})
			if err != nil {
				t.Fatal(err)
			}
			var got []finding.Code
			for _, f := range finding.Select(report.Findings, finding.Warning) {
				got = append(got, f.Code)
			}
			if d := cmp.Diff(want[name], got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func FuzzLint(f *testing.F) {
	f.Add([]byte("\xff\xfe")) // the mark of UTF-16, and nothing after it
	for _, pattern := range []string{"testdata/*.txtar", "../../core/pod/podspec/testdata/pods/*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			f.Fatal(err, pattern)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if filepath.Ext(name) == ".txtar" {
				for _, file := range txtar.Parse(data).Files {
					f.Add(file.Data)
				}
				continue
			}
			f.Add(data)
		}
	}
	f.Fuzz(checkFixes)
}

// checkFixes checks that the findings in a text can be printed, and that the text can be parsed again after each fix.
func checkFixes(t *testing.T, data []byte) {
	files := []File{{"f.yaml", data}}
	o := Options{Kubernetes: 34, Injected: true}
	report, err := Lint(files, o)
	if err != nil {
		return
	}
	all := report.Findings
	if err := finding.WriteText(&strings.Builder{}, all, true); err != nil {
		t.Fatal(err)
	}
	if err := finding.WriteSARIF(&strings.Builder{}, finding.Tool{Kinds: kinds.All()}, all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Fix == nil {
			continue
		}
		after, err := one.Fix.Apply(data)
		if err != nil {
			t.Fatalf("%s: %v", one.Code, err)
		}
		if _, err := Lint([]File{{"f.yaml", after}}, o); err != nil {
			t.Fatalf("%s: fixed, it cannot be read: %v\n%s", one.Code, err, after)
		}
	}
}
