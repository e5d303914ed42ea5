package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/doctor/scenario"
	"outrider.dev/internal/doctor/simulate"
)

// everyPod runs a test with each pod in podspec's test data.
func everyPod(t *testing.T, test func(t *testing.T, file string)) {
	files, err := filepath.Glob("../../internal/core/pod/podspec/testdata/pods/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { test(t, file) })
	}
}

// answered runs a command and returns its output. The command may report findings, but must not fail for another
// reason.
func answered(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs strings.Builder
	if status := run(args, &out, &errs); status == cli.Misused || out.Len() == 0 {
		t.Fatalf("%v: status %d\n%s", args, status, errs.String())
	}
	return out.String()
}

// Every output of simulate shows each container, whichever mesh the pod belongs to.
func TestEveryPodIsSimulated(t *testing.T) {
	everyPod(t, func(t *testing.T, file string) {
		var pods []scenario.Simulation
		if err := json.Unmarshal([]byte(answered(t, "simulate", "-f", file, "-o", "json")), &pods); err != nil || len(pods) == 0 {
			t.Fatalf("%v, %d pods", err, len(pods))
		}
		text := answered(t, "simulate", "-f", file)
		svg := answered(t, "simulate", "-f", file, "-o", "svg")
		page := answered(t, "simulate", "-f", file, "-o", "html")
		for _, c := range pods[0].Plan.Containers {
			if !strings.Contains(text, "\n"+c.Name+" ") {
				t.Errorf("%s has no lane:\n%s", c.Name, text)
			}
			for _, drawn := range []string{svg, page} {
				if !strings.Contains(drawn, ">"+c.Name+"<") {
					t.Errorf("%s is not in the picture", c.Name)
				}
			}
		}
		if !slices.ContainsFunc(pods[0].Outcome.Shown, func(s simulate.Shown) bool { return s.HasIP }) {
			t.Errorf("the pod never got an IP: it did not start\n%s", text)
		}
		d := xml.NewDecoder(strings.NewReader(svg))
		var err error
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%v\n%s", err, svg)
		}
	})
}

func TestEveryPodIsVerified(t *testing.T) {
	everyPod(t, func(t *testing.T, file string) {
		var pods []scenario.Verification
		args := []string{"verify", "-f", file, "--faults", "1", "--states", "3000", "-o"}
		if err := json.Unmarshal([]byte(answered(t, append(args, "json")...)), &pods); err != nil || len(pods) == 0 {
			t.Fatalf("%v, %d pods", err, len(pods))
		}
		for _, p := range pods {
			all := true
			for _, r := range p.Results {
				all = all && r.Holds
				if r.Holds != (r.Counterexample == nil && r.CutShort == "") || (r.Counterexample == nil) != (len(r.Violations) == 0) {
					t.Errorf("%s: holds is %v: %+v", r.Promise, r.Holds, r.Result)
				}
			}
			if p.Holds != all {
				t.Errorf("holds is %v, and of all promises %v", p.Holds, all)
			}
		}
		text := answered(t, append(args, "text")...)
		if len(pods[0].Results) == 2 && !(strings.Contains(text, "\nat every start: ") && strings.Contains(text, "\nwhen the pod stops: ")) {
			t.Errorf("not both promises are answered:\n%s", text)
		}
	})
}
