package scenario

import (
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/lint"
	"outrider.dev/test/corpus"
)

// The simulator lets a pod that should complete run on exactly where lint says that a container may run for ever.
func TestSimulateAndLintAgreeOnJobs(t *testing.T) {
	t.Parallel()
	twins, err := corpus.Twins()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range twins {
		if !strings.HasSuffix(f.Name, "job-never-ends.txtar") {
			continue
		}
		for _, one := range txtar.Parse(f.Data).Files {
			objects, _, err := podfile.Parse(one.Name, one.Data)
			if err != nil || len(objects) != 1 {
				t.Fatal(one.Name, err)
			}
			report, err := lint.Lint([]lint.File{{Name: one.Name, Data: one.Data}}, lint.Options{Kubernetes: 34})
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSubject(objects[0], 34)
			if err != nil || strings.HasPrefix(one.Name, "good-tekton") || !ends(s) { // a controller that is not in the file ends it
				continue
			}
			done, err := s.Simulate(Behaviour{})
			if err != nil {
				t.Fatal(err)
			}
			runsOn := slices.ContainsFunc(report.Findings, func(f finding.Finding) bool { return f.Code == "job-never-ends" })
			if done.Outcome.Over == runsOn {
				t.Errorf("%s: lint finds job-never-ends: %v; simulate: %s", one.Name, runsOn, done.Verdict())
			}
			n++
		}
	}
	if n < 15 {
		t.Errorf("%d pods", n)
	}
}

// ends reports whether the pod should complete.
func ends(s Subject) bool {
	return s.Object.Pod.Spec.RestartPolicy == "Never" || s.Object.Pod.Spec.RestartPolicy == "OnFailure"
}
