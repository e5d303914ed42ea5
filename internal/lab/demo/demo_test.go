package demo

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/lab/localpod/containerinit"
	"outrider.dev/startup"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

func TestMain(m *testing.M) {
	containerinit.Become()
	os.Exit(m.Run())
}

func TestActsMatchTheirTitles(t *testing.T) {
	for i, act := range Acts {
		pod, plan, err := act.pod(i + 1)
		if err != nil {
			t.Fatalf("act %d: %v", i+1, err)
		}
		kept := startup.Mechanism("")
		for _, e := range plan.Edges {
			if e.From == proxyName && e.To == appName {
				kept = e.By
			}
		}
		if kept != act.Order {
			t.Errorf("act %d: the app waits by %q, want %q", i+1, kept, act.Order)
		}
		if _, err := podspec.Read(pod); err != nil {
			t.Errorf("act %d: %v", i+1, err)
		}
	}
}

// The first act shows the race, and the others are free of it.
func TestStory(t *testing.T) {
	ns.RequireRoot(t)
	envoy := process.Envoy(t)
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "outrider.dev/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	var out, log bytes.Buffer
	all, err := Run(t.Context(), Options{Out: &out, Log: &log, Programs: Programs{
		Outrider: filepath.Join(bin, "outrider"), Agent: filepath.Join(bin, "outrider-agent"),
		ControlPlane: filepath.Join(bin, "outriderd"), Envoy: envoy,
	}})
	if err != nil {
		t.Fatalf("Run: %v\n%s", err, &out)
	}
	if missed := Missed(all); len(missed) > 0 {
		t.Errorf("%s\n%s\n%s", strings.Join(missed, "\n"), &out, &log)
	}
	var table bytes.Buffer
	if err := Table(&table, all); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &table)
	if page := HTML(all, 3000, "outrider demo"); strings.Count(page, "<svg") != len(Acts) || strings.Contains(page, "<script") {
		t.Errorf("the report has %d charts, want %d, and no script", strings.Count(page, "<svg"), len(Acts))
	}
}

func TestMissedNamesEachActThatWentWrong(t *testing.T) {
	found := result.Report{Verdict: result.Found, Findings: []result.Finding{{Code: "startup-race"}}}
	race := Performance{Act: Acts[0], Refused: 2, Starts: 3, Ready: 1, Diagnosis: found}
	gate := Performance{Act: Acts[3], Starts: 1, Ready: 1}
	tests := map[string]struct {
		change func(race, gate *Performance)
		want   int
	}{
		"the story as written":           {func(_, _ *Performance) {}, 0},
		"the app won the race":           {func(race, _ *Performance) { race.Refused, race.Starts = 0, 1 }, 1},
		"the app lost it once only":      {func(race, _ *Performance) { race.Refused, race.Starts = 1, 2 }, 1},
		"behind a gate it was refused":   {func(_, gate *Performance) { gate.Refused = 1 }, 1},
		"a request failed at the stop":   {func(_, gate *Performance) { gate.Failed = 1 }, 1},
		"the diagnosis saw no race":      {func(race, _ *Performance) { race.Diagnosis = result.Report{} }, 1},
		"the diagnosis saw one too many": {func(_, gate *Performance) { gate.Diagnosis = found }, 1},
		"the race was won, and one lost": {func(race, gate *Performance) { race.Refused, gate.Starts = 0, 2 }, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			race, gate := race, gate
			tt.change(&race, &gate)
			if got := Missed([]Performance{race, gate}); len(got) != tt.want {
				t.Errorf("%d missed, want %d: %v", len(got), tt.want, got)
			}
		})
	}
}
