package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// record is the output of "go test -json" for a package with tests that pass, fail, and are skipped.
const record = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    a_test.go:1: chat of a good test\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"--- PASS: TestGood (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    a_test.go:2: got 1, want 2\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"=== RUN   TestRoot\n"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"    a_test.go:3: needs root: makes network namespaces\n"}
{"Action":"output","Package":"p","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestRoot","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestTable/x","Output":"    a_test.go:4: nightly: one of 3\n"}
{"Action":"skip","Package":"p","Test":"TestTable/x","Elapsed":0}
{"Action":"pass","Package":"p","Test":"TestTable","Elapsed":0}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.01s\n"}
{"Action":"fail","Package":"p","Elapsed":0.01}
`

func TestEventsAreToldAsGoTestDoes(t *testing.T) {
	var out bytes.Buffer
	e := newEvents(&out)
	for rest := record; rest != ""; { // in pieces, as from a pipe
		n := min(100, len(rest))
		if _, err := e.Write([]byte(rest[:n])); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	const want = "    a_test.go:2: got 1, want 2\n--- FAIL: TestBad (0.00s)\nFAIL\nFAIL\tp\t0.01s\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if e.packages != 1 || e.passed != 2 || len(e.failed) != 1 {
		t.Errorf("%d packages, %d passed, %d failed; want 1, 2, 1", e.packages, e.passed, len(e.failed))
	}
	if got := (result{counts: e.counts, reason: "exit"}).cause(); got != "TestBad" {
		t.Errorf("the cause of a red step is %q, want the test that failed", got)
	}
	if e.skipped["needs root: makes network namespaces"] != 1 || e.skipped["nightly: one of 3"] != 1 || len(e.skipped) != 2 {
		t.Errorf("skipped: %v", e.skipped)
	}
}

// runs executes steps with a report, and returns the exit status and the output.
func runs(t *testing.T, steps ...step) (int, string) {
	t.Helper()
	t.Setenv("OUTRIDER_TIMES", filepath.Join(t.TempDir(), "times")) // instead of CI's file
	var out bytes.Buffer
	r := &report{title: "make some", out: &out}
	r.run(context.Background(), steps)
	status := r.close()
	return status, out.String()
}

func TestEveryStepRuns(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	status, out := runs(t, shell("first", "echo no room; exit 3"), shell("second", "echo hello; touch "+ran))
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("the step after a red one did not run: %v", err)
	}
	last := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]
	if status != 1 || !strings.HasPrefix(last, "make some: RED: first;") || !strings.Contains(out, "RED: no room\n") || !strings.Contains(out, "hello\n") {
		t.Errorf("status %d, last line %q, want 1 and RED: first", status, last)
	}
	if times, err := os.ReadFile(os.Getenv("OUTRIDER_TIMES")); err != nil || !strings.Contains(string(times), "second") {
		t.Errorf("the table for CI: %q, %v", times, err)
	}
}

func TestWhatIsMissingIsInTheLastLine(t *testing.T) {
	missing := shell("deps", "exit 1")
	missing.soft = true
	for ci, want := range map[string]int{"": 0, "true": 1} {
		t.Setenv("CI", ci)
		status, out := runs(t, missing, shell("other", "true"))
		if status != want || !strings.Contains(out, "NOT TESTED HERE: what needs deps") {
			t.Errorf("CI=%q: status %d, want %d\n%s", ci, status, want, out)
		}
	}
}

func TestATierWithoutTestsIsRed(t *testing.T) {
	s := goTest("none", []string{"outrider.dev/build/parts"}, "-run", "^TestNone$")
	if status, out := runs(t, s); status != 1 || !strings.Contains(out, "no test was run") {
		t.Errorf("status %d, want 1\n%s", status, out)
	}
}

func TestPartsHaveEachStepOnce(t *testing.T) {
	steps := []step{{name: "a", minutes: 30}, {name: "b", minutes: 1}, {name: "c", minutes: 20}, {name: "d", minutes: 10}}
	var got []string
	for _, part := range parts(steps, 2) {
		var names []string
		for _, s := range part {
			names = append(names, s.name)
		}
		got = append(got, strings.Join(names, ""))
	}
	if strings.Join(got, " ") != "ab cd" {
		t.Errorf("parts %q, want ab and cd", got)
	}
	for _, bad := range []string{"3/2", "1/5", "1/2x", "1/2/3"} {
		if got, err := selected(steps, bad); err == nil {
			t.Errorf("-part %s: %v", bad, got)
		}
	}
	needed := []step{{name: "deps", soft: true}, {name: "a"}, {name: "b", beside: true}, {name: "c"}}
	for _, part := range parts(needed, 3) {
		if part[0].name != "deps" {
			t.Errorf("a part without what it needs: %v", part)
		}
	}
	for part, beside := range map[string]bool{"1/1": true, "3/3": false} { // any order: each part is judged alone; the last one has b without a
		got, err := selected(slices.Clone(needed), part)
		if i := slices.IndexFunc(got, func(s step) bool { return s.name == "b" }); err != nil || i < 0 || got[i].beside != beside {
			t.Errorf("part %s: b stands beside the step before it: %t; want %t: %+v, %v", part, !beside, beside, got, err)
		}
	}
}

func TestUsage(t *testing.T) {
	for line, want := range map[string]int{"--help": 0, "": 2, "quick test": 2, "nosuch": 2, "-part 99/99 e2e": 2} { // any order: the cases are independent
		var out, errs bytes.Buffer
		if status := run(strings.Fields(line), &out, &errs); status != want || strings.Count(errs.String(), "usage:") > 1 || out.Len() > 0 {
			t.Errorf("%q: status %d, want %d\n%s%s", line, status, want, out.String(), errs.String())
		}
	}
}

func TestNightlyHasNothingTwice(t *testing.T) {
	t.Chdir("../..")
	steps, err := nightly(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, s := range steps {
		for _, arg := range s.command {
			if strings.HasPrefix(arg, module) || s.command[0] == "make" && !strings.HasPrefix(arg, "-") && arg != "make" {
				if before, ok := seen[arg]; ok {
					t.Errorf("%s is in %s and in %s", arg, before, s.name)
				}
				seen[arg] = s.name
			}
		}
	}
	for _, want := range []string{module + "test/storm", module + "test/cluster", "attack"} {
		if seen[want] == "" {
			t.Errorf("%s is in no step", want)
		}
	}
	if in := seen[module+"test/attack"]; in != "" {
		t.Errorf("test/attack is in %s, and make attack has it", in)
	}
}
