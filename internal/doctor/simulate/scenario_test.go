package simulate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/podrun"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/startup"
)

var update = flag.Bool("update", false, "rewrite what the scenarios want")

// Each scenario file contains the sections plan, pod (optional; a manifest) and behaviour, and the expected output in
// the sections timeline, api, broken and chart.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := scenario(t, a)
			o, err := Run(s)
			if err != nil {
				t.Fatal(err)
			}
			got := outcomeFiles(s, o)
			if *update {
				rewrite(t, file, a, got)
				return
			}
			for _, f := range got {
				if diff := cmp.Diff(section(a, f.Name), string(f.Data)); diff != "" {
					t.Errorf("%s (-want +got); -update rewrites it:\n%s", f.Name, diff)
				}
			}
		})
	}
}

func section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func scenario(t testing.TB, a *txtar.Archive) Scenario {
	t.Helper()
	plan, err := startup.Parse(section(a, "plan"))
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	pod := PodOf(plan)
	if manifest := section(a, "pod"); manifest != "" {
		pod = podFrom(t, manifest)
	}
	behaviour, err := Parse(section(a, "behaviour"))
	if err != nil {
		t.Fatalf("behaviour: %v", err)
	}
	return Scenario{Pod: pod, Plan: plan, Behaviour: behaviour}
}

// podFrom returns the pod of a manifest.
func podFrom(t testing.TB, manifest string) kubelet.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(manifest), &pod); err != nil {
		t.Fatalf("pod: %v", err)
	}
	return podrun.Lifecycle(&pod)
}

// outcomeFiles formats an outcome as the sections of a scenario file with the expected output.
func outcomeFiles(s Scenario, o Outcome) []txtar.File {
	var api, broken strings.Builder
	for _, sh := range o.Shown {
		fmt.Fprintln(&api, sh)
	}
	for _, v := range o.Violations {
		fmt.Fprintln(&broken, chart.Note(v))
	}
	drawn := o.Chart(s.Plan).Text(chart.TextOptions{Width: 90})
	return []txtar.File{{Name: "timeline", Data: []byte(o.Timeline.String())}, {Name: "api", Data: []byte(api.String())},
		{Name: "broken", Data: []byte(broken.String())}, {Name: "chart", Data: []byte(drawn)}}
}

func rewrite(t *testing.T, file string, a *txtar.Archive, got []txtar.File) {
	t.Helper()
	var files []txtar.File
	for _, f := range a.Files {
		if f.Name == "plan" || f.Name == "pod" || f.Name == "behaviour" {
			files = append(files, f)
		}
	}
	a.Files = append(files, got...)
	if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
		t.Fatal(err)
	}
}
